"""The dashboard in a real browser: it shows what the records in Kafka say, to everybody, and names are text."""

import json
import uuid
from collections.abc import Iterator, Mapping
from urllib.parse import quote

import pytest
from axe_selenium_python import Axe
from selenium import webdriver
from selenium.webdriver.common.by import By

from streaming.cli.dashboard.address import Address
from streaming.cli.dashboard.batches import Batches
from streaming.cli.dashboard.web_server import Served, listen
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics
from tests.support.browsers import browser, complaints, show
from tests.support.checked_producer import CheckedProducer
from tests.support.dashboards import HOSTILE, activation, row
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import wait_until

DEADLINE_S = 30.0
# Those that show the records of the scene, and those that have none of theirs here.
QUEUES = {"queues": "", "queue": "queue?name=orders", "activity": "activity"}
OTHERS = (
    "services",
    "conversations",
    "transmissions",
    "programs",
    "maintenance",
    "connections",
    "dead-letters",
    "health",
)
PAGES = QUEUES | dict(zip(OTHERS, OTHERS, strict=True))
# Notes the content of a part before the first event, and that it has come.
HEARING = """
const Source = EventSource;
window.EventSource = class extends Source {
  constructor(url) {
    super(url);
    window.first = document.querySelector("#letters").firstElementChild;
  }
  set onmessage(take) {
    super.onmessage = (event) => { take(event); window.heard = true; };
  }
};
"""
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa"]}}


class Scene:
    """The dashboard on topics of its own, and the records of a monitor and of readers."""

    def __init__(self, cluster: Cluster, topics: Topics, url: str) -> None:
        self.topics, self.url = topics, url
        self._producer = CheckedProducer(cluster)

    def write(self, topic: str, queue: str, value: Mapping[str, object] | None) -> None:
        self._producer.produce(topic, None if value is None else json.dumps(value), queue)
        self._producer.flush()

    def page(self, name: str) -> str:
        return self.url + PAGES[name]


@pytest.fixture(scope="module")
def scene(broker: SharedBroker) -> Iterator[Scene]:
    cluster, topics = Cluster(broker.bootstrap_servers, {}), Topics(f"d-{uuid.uuid4().hex[:8]}-")
    Admin(cluster).create_topics([*topics.specs(), *topics.service_specs()], partitions=1, replication_factor=1)
    address = Address(port=0)
    with listen(address) as listening, Served(cluster, topics, address, listening) as served:
        found = Scene(cluster, topics, served.url)
        for queue, unread in (("orders", 3), (HOSTILE, 20), ("parcels", 100)):
            fields = {"unread_messages": unread, "tasks_waiting": 1, "hindrance": "READER_WAITS"}
            found.write(topics.monitors, queue, row(queue, activation_sequence=1, **fields))
            found.write(topics.activations, queue, activation(queue))
            found.write(topics.arrivals, queue, {"type": "MESSAGE_ARRIVED", "queue": queue, "count": unread})
        wait = {"type": "RECEIVE", "queue": "orders", "session_id": HOSTILE, "result": "WAITING"}
        found.write(topics.receives, "orders", wait)
        yield found


@pytest.fixture(scope="module")
def running() -> Iterator[webdriver.Chrome]:
    with browser() as driver:
        yield driver


@pytest.fixture
def driver(running: webdriver.Chrome) -> webdriver.Chrome:
    show(running)
    complaints(running)
    return running


def texts(driver: webdriver.Chrome, css: str) -> list[str]:
    """Returns the texts of elements in one step: a live page may replace them between two."""
    script = "return Array.from(document.querySelectorAll(arguments[0]), (each) => each.innerText)"
    return [text.strip() for text in driver.execute_script(script, css)]


def text_of(driver: webdriver.Chrome, css: str = "main") -> str:
    return "\n".join(texts(driver, css))


def names(driver: webdriver.Chrome) -> list[str]:
    return texts(driver, "#queues tbody th")


def click(driver: webdriver.Chrome, css: str) -> None:
    driver.execute_script("document.querySelector(arguments[0]).click()", css)


def open_page(driver: webdriver.Chrome, scene: Scene, page: str) -> None:
    """Opens a page and waits for its content: the page loads itself again when the dashboard has read its records."""
    driver.get(scene.page(page))
    status = "return document.querySelector('main')?.dataset.status"
    wait_until(lambda: driver.execute_script(status) == "200", DEADLINE_S, "the page with its content")


def open_queues(driver: webdriver.Chrome, scene: Scene) -> None:
    """Opens the page of queues when the dashboard has read all of them."""

    def has_all() -> bool:
        driver.get(scene.page("queues"))
        return len(names(driver)) >= 3

    wait_until(has_all, DEADLINE_S, "all queues on the page")


def test_queues_sort_filter_and_update_while_one_looks(driver: webdriver.Chrome, scene: Scene) -> None:
    open_queues(driver, scene)
    assert names(driver) == ["parcels", HOSTILE, "orders"]
    click(driver, "#queues thead th a")
    wait_until(lambda: names(driver) == sorted(names(driver)), DEADLINE_S, "the order of names")
    field = driver.find_element(By.NAME, "search")
    field.send_keys("PARC")
    field.submit()
    wait_until(lambda: names(driver) == ["parcels"], DEADLINE_S, "the search")
    assert "100" in text_of(driver, "#queues tbody")
    wait_until(lambda: text_of(driver, "#live") == "live", DEADLINE_S, "the stream")
    scene.write(scene.topics.monitors, "parcels", row("parcels", unread_messages=4_321))
    wait_until(lambda: "4,321" in text_of(driver, "#queues tbody"), DEADLINE_S, "the new count")
    scene.write(scene.topics.monitors, "parcels", row("parcels", unread_messages=100, activation_sequence=1))
    assert complaints(driver) == []


def test_a_selection_lasts_while_the_page_goes_on(driver: webdriver.Chrome, scene: Scene) -> None:
    open_queues(driver, scene)
    wait_until(lambda: text_of(driver, "#live") == "live", DEADLINE_S, "the stream")
    select = "getSelection().selectAllChildren(document.querySelector('#queues tbody th'))"
    chosen = driver.execute_script(f"{select}; return getSelection().toString()")
    scene.write(scene.topics.monitors, "parcels", row("parcels", unread_messages=5_678))
    wait_until(lambda: "not where text is selected" in text_of(driver, "#live"), DEADLINE_S, "news that waits")
    assert driver.execute_script("return getSelection().toString()") == chosen
    assert "5,678" not in text_of(driver, "#queues tbody")
    # Other parts are not held back.
    assert driver.execute_script("return document.querySelectorAll('#summary li').length") > 1
    driver.execute_script("getSelection().removeAllRanges()")
    wait_until(lambda: "5,678" in text_of(driver, "#queues tbody"), DEADLINE_S, "the new count")
    wait_until(lambda: text_of(driver, "#live") == "live", DEADLINE_S, "the word beside the navigation")
    scene.write(scene.topics.monitors, "parcels", row("parcels", unread_messages=100, activation_sequence=1))
    assert complaints(driver) == []


def test_what_has_not_changed_is_not_replaced(driver: webdriver.Chrome, scene: Scene) -> None:
    open_page(driver, scene, "dead-letters")
    wait_until(lambda: "No dead letters" in text_of(driver, "#letters"), DEADLINE_S, "the answer")
    script = {"source": HEARING}
    listener = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)["identifier"]
    try:
        driver.get(scene.page("dead-letters"))
        wait_until(lambda: driver.execute_script("return window.heard"), DEADLINE_S, "the first event, with all parts")
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": listener})
    assert driver.execute_script("return window.first === document.querySelector('#letters').firstElementChild")


def test_all_instants_of_a_page_are_in_the_zone_of_the_reader(running: webdriver.Chrome, scene: Scene) -> None:
    activated = {"state": "NOTIFIED", "hindrance": "UNANSWERED", "last_activated_time": "2026-01-31T12:00:00.250Z"}
    scene.write(scene.topics.monitors, "zoned", row("zoned", activation_sequence=1, **activated))
    running.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    try:
        running.get(f"{scene.url}queue?name=zoned")
        wait_until(lambda: "17:30:00" in text_of(running, ".why"), DEADLINE_S, "the instant in the sentence")
        assert "12:00:00" not in text_of(running)
        title = "return document.querySelector('.why time').title"
        assert running.execute_script(title) == "2026-01-31 12:00:00 UTC"
    finally:
        running.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
        scene.write(scene.topics.monitors, "zoned", None)


def test_a_queue_shows_what_its_records_say(driver: webdriver.Chrome, scene: Scene) -> None:
    open_page(driver, scene, "queue")
    assert text_of(driver, "h1") == "orders"
    assert "No reader is started" in text_of(driver, ".answer")
    script = "return Array.from(document.querySelectorAll('.timeline title'), (each) => each.textContent)"
    titles = driver.execute_script(script)
    assert "3 arrived" in titles
    assert f"{HOSTILE} waits" in titles
    assert complaints(driver) == []


@pytest.mark.parametrize("page", PAGES)
def test_names_are_text_and_the_console_is_silent(driver: webdriver.Chrome, scene: Scene, page: str) -> None:
    open_page(driver, scene, page)
    wait_until(lambda: text_of(driver, "#live") == "live", DEADLINE_S, "the stream")
    assert [each.get_attribute("src") for each in driver.find_elements(By.TAG_NAME, "script")] == [
        f"{scene.url}static/dashboard.js"
    ]
    assert complaints(driver) == []


def test_the_navigation_counts_the_faults(driver: webdriver.Chrome, scene: Scene) -> None:
    open_page(driver, scene, "queues")
    link = "nav a[href='/health']"
    wait_until(lambda: "Health 1 fault" in " ".join(text_of(driver, link).split()), DEADLINE_S, "that no monitor runs")
    assert complaints(driver) == []


def test_a_queue_with_a_hostile_name_has_its_page(driver: webdriver.Chrome, scene: Scene) -> None:
    open_queues(driver, scene)
    click(driver, f"#queues tbody a[href*='{quote('<script>')}']")
    wait_until(lambda: text_of(driver, "h1") == HOSTILE, DEADLINE_S, "its page")
    assert complaints(driver) == []


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_everybody_can_use_each_page(driver: webdriver.Chrome, scene: Scene, page: str, is_dark: bool) -> None:
    show(driver, is_dark=is_dark)
    open_page(driver, scene, page)
    axe = Axe(driver)
    axe.inject()
    found = axe.run(options=RULES)
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_wider_than_the_screen(driver: webdriver.Chrome, scene: Scene, page: str) -> None:
    open_page(driver, scene, page)
    for width in (320, 400, 1_600):
        show(driver, width=width)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("page", PAGES)
def test_without_a_script_a_page_shows_the_same(driver: webdriver.Chrome, scene: Scene, page: str) -> None:
    open_page(driver, scene, page)
    title = text_of(driver, "h1")
    show(driver, has_scripts=False)
    driver.get(scene.page(page))
    assert text_of(driver, "h1") == title
    assert page not in QUEUES or "orders" in text_of(driver)
    assert text_of(driver, "#live") == ""


def test_the_table_of_queues_fits_into_half_of_a_wide_screen(
    driver: webdriver.Chrome, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Batches, "is_current", True)  # without a monitor, the table has no instant of a next check
    show(driver, width=1_000)
    check = {"activation_sequence": 1, "next_check_time": "2999-01-31T12:00:00.250Z", "max_queue_readers": 2}
    scene.write(scene.topics.monitors, "parcels", row("parcels", unread_messages=100, **check))
    open_queues(driver, scene)
    wait_until(lambda: "12:00:00" in text_of(driver, "#queues tbody"), DEADLINE_S, "the row with all that it can have")
    script = "const found = document.querySelector('#queues .wide'); return found.scrollWidth - found.clientWidth"
    assert driver.execute_script(script) <= 0


def test_a_queue_that_nobody_knows(driver: webdriver.Chrome, scene: Scene) -> None:
    driver.get(f"{scene.url}queue?name=nobody")
    assert "There is no queue 'nobody'" in text_of(driver)
