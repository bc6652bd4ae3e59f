"""The dashboard as a user starts it: in a browser, it shows a queue, and follows it."""

import json
import re
import uuid
from pathlib import Path

from selenium.webdriver.common.by import By

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support.browsers import browser, complaints, show
from tests.support.checked_producer import CheckedProducer
from tests.support.dashboards import row
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import wait_until

DEADLINE_S = 30.0


def test_the_page_shows_a_queue_and_follows_it(broker: SharedBroker, tmp_path: Path) -> None:
    prefix = f"d-{uuid.uuid4().hex[:8]}-"
    cluster, topics = Cluster(broker.bootstrap_servers, {}), Topics(prefix)
    Admin(cluster).create_topics(topics.specs(), partitions=1, replication_factor=1)
    producer = CheckedProducer(cluster)

    def write(unread: int) -> None:
        producer.produce(topics.monitors, json.dumps(row("orders", unread_messages=unread)), "orders")
        producer.flush()

    write(1_234)
    options = ["--port", "0", "--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", prefix]
    log = tmp_path / "dashboard.log"
    command = [*THIS_COMMAND, "dashboard", *options]
    with ChildProcess(command, log_file=log, env=own_environment()) as process, browser() as driver:
        process.wait_until_said("dashboard ready")
        [url] = re.findall(r"dashboard ready (\S+)", log.read_text())
        show(driver)

        def shown() -> str:
            return str(driver.execute_script("return document.querySelector('main').innerText"))

        def has_queue() -> bool:
            driver.get(url)
            return "1,234" in shown()

        wait_until(has_queue, DEADLINE_S, "the queue on the page")
        write(4_321)
        wait_until(lambda: "4,321" in shown(), DEADLINE_S, "the new count, without another request for the page")
        assert complaints(driver) == []
        driver.find_element(By.LINK_TEXT, "Activity").click()
        wait_until(lambda: "No queue was activated" in shown(), DEADLINE_S, "the page of activations")
