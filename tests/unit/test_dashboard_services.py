"""The dashboard's page of services: what is defined, and where a message would go."""

import html as escaping
import re
import socket
from dataclasses import replace
from urllib.parse import urlencode

import msgspec
import pytest

from streaming.cli.dashboard import live_services as live_services_module
from streaming.cli.dashboard.address import Address
from streaming.cli.dashboard.batches import Batches
from streaming.cli.dashboard.live_services import BoundedRows
from streaming.cli.dashboard.server import Dashboard, News, application
from streaming.cli.dashboard.table_pages import paged
from streaming.cli.dashboard.web_server import Served
from streaming.cli.routing.explained_routes import Origin, instance_of, one_case, results
from streaming.core.times import iso_time
from streaming.system import wall_clock
from streaming.wire.service_commands import CreateDatabase, CreateRoute, CreateService, DropService
from streaming.wire.service_views import EndpointRow, decode_endpoint
from streaming.wire.topics import Topics
from tests.support.conversation_scene import DEFINITIONS
from tests.support.dashboards import ask
from tests.support.service_records import CLUSTER, html, live_services, record
from tests.support.viewed import endpoint, transmission

HOSTILE = "<script>alert(1)</script>"


def text(page: str) -> str:
    return escaping.unescape(re.sub(r"<[^>]+>", " ", page.partition("<main")[2]))


def value(row: EndpointRow) -> bytes:
    return msgspec.json.encode(row)


def test_services_are_shown_with_their_queues_and_what_waits_for_them() -> None:
    open_, ended = endpoint(database="A"), endpoint(database="A", conversation_id="d", state="CD")
    live = live_services(DEFINITIONS, [open_, ended], [transmission(to_service="Orders", messages=1_234)])
    page = html(live, "/services")
    assert 'href="/queue?name=orders"' in page
    [row] = re.findall(r'<th scope="row">Orders</th>.*?</tr>', page, re.DOTALL)
    said = " ".join(text(f"<main{row}").split())
    assert said == "Orders A orders unknown to the monitor unknown 1 1,234"


def test_the_state_of_a_queue_that_no_monitor_knows_is_unknown_and_not_zero() -> None:
    page = html(live_services(DEFINITIONS), "/services")
    assert re.search(r'data-label="Unread" class="number"><span class="unknown"', page)


def test_the_page_says_how_old_the_states_of_queues_are_if_no_monitor_runs() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        entries = Served(CLUSTER, Topics(), Address(), listening)._dashboard._entries
    news = News(monitor="no monitor runs", as_of="2026-01-31T12:00:00.000Z")
    app = application(Dashboard(entries, lambda: 0, lambda: news), ["*"], None, is_secure=False)
    page = " ".join(text(ask(app, "/services").text).split())
    assert "No monitor runs. What follows is as of 12:00:00 UTC (" in page


def test_an_expired_route_is_marked() -> None:
    expired = CreateRoute("A", "brief", "LOCAL", lifetime_s=1)
    page = text(html(live_services([*DEFINITIONS, expired]), "/services"))
    assert len(re.findall("expired", page)) == 1
    assert re.search(r"brief\s+A\s+any\s+any\s+LOCAL\s+none\s+00:00:01 UTC\s+expired", page)


@pytest.mark.parametrize(
    ("asked", "case"),
    [
        ({"to": "Stock", "from": "A"}, ("Stock", None, True, "A")),
        ({"to": "Stock", "from": ""}, ("Stock", None, True, None)),
        ({"to": "Orders", "from": "B", "reply": "yes"}, ("Orders", None, False, "B")),
        ({"to": "Nowhere", "from": "A", "instance": "x"}, ("Nowhere", "x", True, "A")),
        ({"to": HOSTILE, "from": "A"}, (HOSTILE, None, True, "A")),
        ({"to": "Stock", "from": "missing"}, ("Stock", None, True, "missing")),
    ],
)
def test_a_route_is_explained_as_the_command_does(
    asked: dict[str, str], case: tuple[str, str | None, bool, str | None]
) -> None:
    live = live_services(DEFINITIONS)
    with live.read() as found:
        origin = Origin(lambda: found.definitions, instance_of(live.addresses, is_forwarding=False))
        [said] = results(origin, [one_case("explained", *case, None)])
    page = html(live, "/services", urlencode(asked))
    shown = text(page)
    for title, lines in said.fields():
        assert title == "=>" or title in shown
        assert all(line in shown for line in lines)
    assert f"It is {said.heading().partition(': ')[2]}." in shown
    assert f'class="answer {said.decision.outcome}"' in page
    assert HOSTILE not in page


def test_nothing_is_explained_until_a_reader_asks() -> None:
    page = html(live_services(DEFINITIONS), "/services")
    assert "Where a message would go" not in page
    assert '<option value="Stock">' in page


def test_the_form_stays_as_the_reader_has_filled_it_in() -> None:
    page = html(live_services(DEFINITIONS), "/services", urlencode({"to": "Stock", "from": "B", "reply": "yes"}))
    assert 'name="to" value="Stock"' in page
    assert '<option value="B" selected>' in page
    assert 'value="yes" checked' in page


def test_names_are_text() -> None:
    page = html(live_services([*DEFINITIONS, CreateService("A", HOSTILE, "q")]), "/services")
    assert HOSTILE not in page
    assert HOSTILE in text(page)


def test_services_are_searched_by_name_database_and_queue() -> None:
    live = live_services(DEFINITIONS)
    for search in ("ORDERS", "orders"):
        page = html(live, "/services", urlencode({"search": search}))
        assert '<th scope="row">Orders</th>' in page
        assert '<th scope="row">Stock</th>' not in page
    assert re.findall(r"No \w+ matches the search\.", html(live, "/services", "search=zzz")) == [
        "No service matches the search.",
        "No database matches the search.",
        "No route matches the search.",
    ]


def test_more_than_a_hundred_services_are_on_several_pages() -> None:
    live = live_services([*DEFINITIONS, *(CreateService("A", f"s{number:03}", "q") for number in range(150))])
    assert "1 to 100 of 152" in text(html(live, "/services"))
    second = html(live, "/services", "page=2")
    assert "101 to 152 of 152" in text(second)
    assert '<th scope="row">s149</th>' in second


def test_what_is_not_read_yet_is_not_said_to_be_missing() -> None:
    page = text(html(live_services(is_complete=False), "/services"))
    assert "The topics of services are being read" in page
    assert "There is no service yet" not in page
    assert "Services are not used here" not in page
    assert "There is no service yet" in text(html(live_services([CreateDatabase("A", "a-id")]), "/services"))


@pytest.mark.parametrize("path", ["/services", "/conversations", "/transmissions"])
def test_where_no_service_is_defined_one_sentence_says_so_and_names_the_guide(path: str) -> None:
    live = live_services()
    live.router = "no router runs"
    page = html(live, path)
    assert text(page).count("Services are not used here: only programs that answer each other") == 1
    assert "docs/guide/services.md" in page
    assert 'class="wrong"' not in page
    assert "<form" not in page
    assert "<h2>" not in page


@pytest.mark.parametrize("path", ["/services", "/conversations", "/transmissions"])
def test_without_topics_each_page_says_what_to_do_and_shows_the_rest_later(path: str) -> None:
    live = live_services(DEFINITIONS)
    parts = re.findall('<section id="([^"]+)"', html(live, path))
    live.problem = "Topics are missing. Create them: run `queue-activation topics`."
    page = html(live, path)
    assert page.count("Topics are missing. Create them: run <code>queue-activation topics</code>.") == 1
    assert re.findall('<section id="([^"]+)"', page) == parts


@pytest.mark.parametrize("path", ["/services", "/conversations", "/transmissions"])
def test_where_services_are_not_used_it_is_no_fault_that_they_have_no_topics(path: str) -> None:
    live = live_services(DEFINITIONS)
    live.problem, live.unused = "Topics are missing.", "`queue-activation topics` creates their topics."
    page = html(live, path)
    assert "Services are not used here: only programs that answer each other" in page
    assert "docs/guide/services.md</code> describes. <code>queue-activation topics</code> creates" in page
    assert "Topics are missing." not in page
    assert 'class="wrong"' not in page


@pytest.mark.parametrize("path", ["/services", "/conversations", "/transmissions"])
@pytest.mark.parametrize("is_normal", [True, False])
def test_without_a_router_each_page_says_so_and_how_old_it_is(
    path: str, is_normal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wall_clock, "now_ms", lambda: 1_790_000_000_000)
    live = live_services(DEFINITIONS)
    assert "What follows" not in html(live, path), "a router runs"
    live.router, live.is_normal = "no router runs. Start one: `queue-activation router`", is_normal
    old = "What follows may be old."
    assert (old in text(html(live, path))) != is_normal
    live.committed = iso_time(1_789_999_940_000)
    page = html(live, path)
    assert "No router runs. Start one: <code>queue-activation router</code>." in page
    assert "What follows is as of 14:12:20 UTC ( 60 s ago )." in " ".join(text(page).split())
    assert ('class="wrong"' in page) != is_normal


def test_a_router_is_looked_for_while_kafka_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    live = live_services(DEFINITIONS)
    found = Batches("router", "2026-09-21T14:12:20.000Z", problem="late")
    monkeypatch.setattr(live_services_module, "batches", lambda *_: found)
    live.contact._answered_ms = 0
    live._look_for_router()
    assert (live.router, live.version) == ("", 0)
    live.contact._answered_ms = None
    live._look_for_router()
    assert (live.router, live.is_normal, live.committed, live.version) == ("late", False, found.committed, 1)
    live._look_for_router()
    assert live.version == 1, "there is no news"
    found = replace(found, beginning="`run` is starting")
    live._look_for_router()
    assert (live.router, live.is_normal) == ("`run` is starting", True)


def test_a_refused_command_and_a_dropped_service_are_as_for_the_router() -> None:
    live = live_services([*DEFINITIONS, CreateService("missing", "Lost", "q"), DropService("B", "Stock")])
    with live.read() as found:
        assert [each.name for each in found.definitions.services()] == ["Orders"]
        assert not found.definitions.changes, "the changes that only a router takes grow without end"


def test_rows_are_bounded_and_those_that_are_kept_go_on() -> None:
    rows = BoundedRows("row", decode_endpoint, most=2)
    for name in ("a", "b", "c"):
        rows.take(record(name, value(endpoint(conversation_id=name))))
    assert [*rows.rows] == ["a", "b"]
    assert rows.is_full
    rows.take(record("a", value(endpoint(conversation_id="a", state="ER"))))
    rows.take(record("c", None))
    rows.take(record("b", None))
    rows.take(record("d", value(endpoint(conversation_id="d"))))
    assert {key: row.state for key, row in rows.rows.items()} == {"a": "ER", "d": "CO"}


def test_an_invalid_row_is_passed_over() -> None:
    rows = BoundedRows("row", decode_endpoint)
    rows.take(record("a", b"{"))
    assert not rows.rows
    assert not rows.is_full


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [(None, 1, 100), ("2", 101, 200), ("3", 201, 250), ("99", 201, 250), ("0", 1, 100), ("x", 1, 100), ("²", 1, 100)],
)
def test_a_page_is_the_one_that_is_wanted_or_the_nearest(wanted: str | None, first: int, last: int) -> None:
    page = paged(range(250), wanted)
    assert (page.first, page.last, page.pages) == (first, last, 3)
    assert [*page.rows] == [*range(first - 1, last)]
