"""The demos as `make demo-services` and `make demo-instances` run them."""

import re
from pathlib import Path

import pytest

from tests.support.demos import run_demo


@pytest.mark.usefixtures("java_and_jars")
def test_the_demo_of_services_ends_by_itself_with_everything_answered(tmp_path: Path) -> None:
    output = run_demo(tmp_path, "services")
    assert re.search(r"sent, delivered, answered\s+(\d+), \1, \1\b", output), output
    assert re.search(r"lost, twice, out of order\s+0, 0, 0\b", output), output
    for story in (
        ("ALTER ROUTE", "held (9796)", "CREATE SERVICE", "invoices  ->"),
        ("a timer is set", "DialogTimer", "->  1 reminder"),
    ):
        places = [output.find(text) for text in story]
        assert -1 not in places, output
        assert places == sorted(places), output
    for queue in ("north", "south", "answers", "invoices"):
        assert re.search(rf"{queue}\s+\*\*  activation 1  MESSAGE_ARRIVED_ON_EMPTY_QUEUE", output), output


@pytest.mark.usefixtures("java_and_jars")
def test_the_demo_of_instances_ends_by_itself_with_everything_answered(tmp_path: Path) -> None:
    output = run_demo(tmp_path, "instances")
    assert re.search(r"sent, delivered, answered\s+(\d+), \1, \1\b", output), output
    assert re.search(r"lost, twice, out of order\s+0, 0, 0\b", output), output
    story = (
        *("is cut for 20 s", "3 messages to //stock/audit", "in queue audit", "wait to be acknowledged"),
        "the link is mended",
        *("has everything that waited", "becomes a MIRROR", "in queue mirror", "has taken over: 5 conversations"),
    )
    places = [output.find(text) for text in story]
    assert -1 not in places, output
    assert places == sorted(places), output
    assert re.search(r"forwarded by west\s+3 messages\b", output), output
