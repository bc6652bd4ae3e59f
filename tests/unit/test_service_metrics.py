"""Metrics of services and conversations: what is held for whom, which endpoints are idle, and bounded labels."""

from typing import Any

import msgspec
import pytest

from streaming.core.times import iso_time
from streaming.daemons.router.view_metrics import Conversations
from streaming.daemons.transport.metrics import Counts
from streaming.system.service_labels import MOST, OTHER, ServiceLabels
from streaming.wire.record_decoders import InvalidRecordError
from tests.support.viewed import endpoint, transmission

NOW_S = 1_800_000_000
HOUR_S, DAY_S = 3_600, 86_400


def ago(seconds: int) -> str:
    return iso_time((NOW_S - seconds) * 1_000)


def held(**fields: Any) -> bytes:
    return msgspec.json.encode(transmission(**fields))


def spoken(seconds_ago: int, **fields: Any) -> bytes:
    return msgspec.json.encode(endpoint(last_statement=ago(seconds_ago), **fields))


def test_what_is_held_is_counted_by_number_and_by_service_with_the_oldest_age() -> None:
    conversations = Conversations()
    conversations.apply_transmission(b"1", held(messages=9, held_since=ago(10)))
    conversations.apply_transmission(b"1", held(messages=2, held_since=ago(60)))
    conversations.apply_transmission(b"2", held(messages=3, number=None, held_since=ago(30)))
    conversations.apply_transmission(b"3", held(messages=4, to_service="Bills", held_since=ago(5)))
    conversations.apply_transmission(b"4", held(messages=5))
    conversations.apply_transmission(b"4", None)
    found = conversations.held(NOW_S)
    assert found.by_number == {"9796": 6, "none": 3}
    assert found.by_service == {"Stock": 5, "Bills": 4, OTHER: 0}
    assert found.oldest_s == {"Stock": 60, "Bills": 5, OTHER: 0}
    with pytest.raises(InvalidRecordError):
        conversations.apply_transmission(b"1", b"{}")
    assert conversations.held(NOW_S) == found
    conversations.clear()
    assert conversations.held(NOW_S).by_service == {OTHER: 0}


def test_only_the_services_for_which_most_is_held_have_labels_of_their_own() -> None:
    conversations = Conversations()
    for number in range(MOST + 2):
        row = held(messages=number + 1, to_service=f"s{number}", held_since=ago(number))
        conversations.apply_transmission(b"%d" % number, row)
    found = conversations.held(NOW_S)
    assert len(found.by_service) == len(found.oldest_s) == MOST + 1
    assert (found.by_service[OTHER], found.oldest_s[OTHER]) == (1 + 2, 1)
    assert sum(found.by_service.values()) == sum(range(1, MOST + 3))


def test_idle_endpoints_are_those_that_are_not_closed_and_whose_programs_are_silent() -> None:
    conversations = Conversations()
    ages = (0, DAY_S - HOUR_S, DAY_S + 2 * HOUR_S, 8 * DAY_S, 31 * DAY_S)
    for number, age_s in enumerate(ages):
        conversations.apply_endpoint(b"%d" % number, spoken(age_s))
    conversations.apply_endpoint(b"closed", spoken(31 * DAY_S, state="CD"))
    assert conversations.idle(NOW_S) == {"1d": 3, "7d": 2, "30d": 1}
    conversations.apply_endpoint(b"4", spoken(0))
    conversations.apply_endpoint(b"3", None)
    conversations.apply_endpoint(b"never", None)
    assert conversations.idle(NOW_S) == {"1d": 1, "7d": 0, "30d": 0}
    assert conversations.by_state() == {"SO": 0, "CO": 4, "DI": 0, "DO": 0, "ER": 0, "CD": 1}
    with pytest.raises(InvalidRecordError):
        conversations.apply_endpoint(b"0", b'{"state": "CO"}')
    assert conversations.by_state()["CO"] == 4


def test_without_a_last_statement_an_endpoint_is_as_old_as_its_row() -> None:
    conversations = Conversations()
    row = endpoint(last_statement=None, update_time=ago(8 * DAY_S))
    conversations.apply_endpoint(b"1", msgspec.json.encode(row))
    assert conversations.idle(NOW_S) == {"1d": 1, "7d": 1, "30d": 0}


def test_nothing_is_kept_of_endpoints_that_are_gone() -> None:
    conversations = Conversations()
    for number in range(100):
        conversations.apply_endpoint(b"1", spoken(number * HOUR_S))
    conversations.apply_endpoint(b"1", None)
    assert not conversations._counts
    assert not conversations._pairs


def test_the_first_services_have_labels_of_their_own() -> None:
    labels = ServiceLabels()
    assert labels.known("s0") == OTHER
    assert [labels.of(f"s{number}") for number in range(MOST + 1)] == [*[f"s{number}" for number in range(MOST)], OTHER]
    assert (labels.known("s0"), labels.of("s0")) == ("s0", "s0")


def test_a_transport_counts_by_service_and_names_no_invented_one() -> None:
    counts = Counts()
    counts.add({"Stock": 3, "Broken": 0}, {"Stock": 1, "Broken": 1, "invented": 2, "": 1})
    counts.add({"Stock": 1, "Good": 1}, {})
    assert counts.delivered == {OTHER: 0, "Stock": 4, "Broken": 0, "Good": 1}
    assert counts.dead_letters == {OTHER: 3, "Stock": 1, "Broken": 1, "Good": 0}
    assert "Good" in counts.dead_letters
