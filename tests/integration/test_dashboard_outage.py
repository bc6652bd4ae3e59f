"""The dashboard while Kafka does not answer: each page says since when, and goes on by itself."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from selenium import webdriver

from streaming.cli.dashboard.address import Address
from streaming.cli.dashboard.web_server import Served, listen
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.wire.topics import Topics
from tests.support.browsers import browser, show
from tests.support.checked_producer import CheckedProducer
from tests.support.dashboards import row
from tests.support.waiting import wait_until

DEADLINE_S = 30.0
TOPICS = Topics()
SILENT = "Kafka has not answered since"
# A page that shows rows in memory, and two that ask Kafka.
PAGES = {"": "#queues tbody th", "health": "#signs tbody th", "queue?name=orders": "#answer .answer"}
# What was asked just before the silence has failed by then.
LATER = re.compile(r"\((1[5-9]|2\d) s ago\)")


def write(cluster: Cluster, unread: int) -> None:
    producer = CheckedProducer(cluster)
    producer.produce(TOPICS.monitors, json.dumps(row("orders", unread_messages=unread)), "orders")
    producer.flush()


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    with browser() as driver:
        show(driver)
        yield driver


def text_of(driver: webdriver.Chrome, css: str) -> str:
    script = "return Array.from(document.querySelectorAll(arguments[0]), (each) => each.innerText).join(' ')"
    return str(driver.execute_script(script, css))


def awaits_silence(driver: webdriver.Chrome) -> None:
    wait_until(lambda: SILENT in text_of(driver, "#problem"), DEADLINE_S, "the sentence about the silence")
    wait_until(lambda: text_of(driver, "#live") == "no news", DEADLINE_S, "the word beside the navigation")


def awaits_answer(driver: webdriver.Chrome) -> None:
    wait_until(lambda: SILENT not in text_of(driver, "#problem"), DEADLINE_S, "the end of the silence")
    wait_until(lambda: text_of(driver, "#live") == "live", DEADLINE_S, "the word beside the navigation")


def test_a_kafka_that_stands_still_or_is_killed_is_told_on_each_page(
    java_and_jars: None,  # noqa: ARG001
    driver: webdriver.Chrome,
    tmp_path: Path,
) -> None:
    address = Address(port=0)
    with ExitStack() as first:
        broker = first.enter_context(EmbeddedBroker(data_dir=tmp_path))
        cluster = Cluster(broker.bootstrap_servers, {})
        Admin(cluster).create_topics([*TOPICS.specs(), *TOPICS.service_specs()], partitions=1, replication_factor=1)
        with listen(address) as listening, Served(cluster, TOPICS, address, listening) as served:
            write(cluster, 3)
            for path, shown in PAGES.items():
                driver.get(served.url + path)
                wait_until(partial(text_of, driver, shown), DEADLINE_S, "the page")
                os.kill(broker.pid, signal.SIGSTOP)
                try:
                    awaits_silence(driver)
                    if path.startswith("queue"):
                        wait_until(lambda: LATER.search(text_of(driver, "#problem")), DEADLINE_S, "a longer silence")
                    assert text_of(driver, shown), "what was known"
                finally:
                    os.kill(broker.pid, signal.SIGCONT)
                awaits_answer(driver)
                wait_until(partial(text_of, driver, shown), DEADLINE_S, "the page, by itself")
            driver.get(served.url)
            os.kill(broker.pid, signal.SIGKILL)
            awaits_silence(driver)
            assert "orders" in text_of(driver, "#queues tbody th"), "what was known"
            # A page that is opened meanwhile, and shows what Kafka must be asked for.
            driver.get(served.url + "maintenance")
            assert SILENT in text_of(driver, "#problem")
            first.close()
            with EmbeddedBroker(int(cluster.bootstrap_servers.rpartition(":")[2]), tmp_path):
                awaits_answer(driver)
                wait_until(lambda: "none has the right Write" in text_of(driver, "#tasks"), DEADLINE_S, "its content")
                driver.get(served.url)
                write(cluster, 4_321)
                wait_until(lambda: "4,321" in text_of(driver, "#queues tbody"), DEADLINE_S, "what is new")
