"""A transaction that ends inside a record of decisions, and one that repeats a delivery which Kafka has refused."""

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.core.conversations.decision_batches import Carrying, DecisionBatch, Failure, Position
from streaming.core.conversations.decisions import Deliver, Transmit
from streaming.core.conversations.kinds import Kind
from streaming.daemons.transport.transaction import MAX_DECISIONS, Context, Transaction
from streaming.kafka.broker_clock import BrokerClock
from streaming.wire.topics import Topics

DECISIONS = 40
DECISION_S = 0.03


class SlowDestination:
    """The connections to other instances, which take each message after a while."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.clock = BrokerClock()

    def takes(self, _address: str) -> bool:
        return True

    def send(self, _address: str, row: Any) -> None:
        time.sleep(DECISION_S)
        self.taken.append(row[0].decode())


def decisions(partition: int, number: int, first: int) -> DecisionBatch:
    found = [
        Transmit(
            kind=Kind.ACK,
            address="tcp://s:1",
            conversation_id=f"{partition} {number} {each}",
            is_initiator=True,
            from_service="S",
            from_database="D",
            to_service="T",
            hops_remaining=10,
            first_unacknowledged=0,
            receive_sequence=0,
        )
        for each in range(DECISIONS)
    ]
    return DecisionBatch(number - 1, 1, number, first, (0, 0), [*found])


@pytest.mark.parametrize(
    "places", [[(0, 1, 1), (0, 2, 1), (0, 3, 3)], [(0, 1, 1), (1, 1, 1), (0, 2, 2)]], ids=["one", "two partitions"]
)
def test_each_decision_is_carried_out_once_however_many_transactions_it_takes(
    places: list[tuple[int, int, int]],
) -> None:
    records = {(place[0], place[1] - 1): decisions(*place) for place in places}
    waiting = deque(SimpleNamespace(partition=lambda p=p: p, offset=lambda o=n - 1: o) for p, n, _ in places)
    partitions = {place[0]: SimpleNamespace(number=place[0], carrying=Carrying(Position(), {}, 0)) for place in places}
    share = SimpleNamespace(waiting=waiting, partitions=partitions)
    queues = SimpleNamespace(begin=lambda: None, look=lambda _queues: None)
    destination = SlowDestination()
    decoder = SimpleNamespace(decode=lambda message: records[message.partition(), message.offset()])
    context = Context(Topics(), share, None, queues, destination, decoder)  # type: ignore[arg-type]
    lost: dict[int, str] = {}
    transactions = 0
    while waiting:
        transactions += 1
        part = Transaction(context, SimpleNamespace(produce=lambda *_: None), MAX_DECISIONS)  # type: ignore[arg-type]
        part.fill(lambda: False)
        part.committed()
        for number in part.touched:
            partitions[number].carrying.commit(99)
        lost |= part.lost
    assert not lost
    assert sorted(destination.taken) == sorted({f"{p} {n} {each}" for p, n, _ in places for each in range(DECISIONS)})
    assert transactions > 1


REFUSED = Failure(is_lasting=False, reason="Kafka refuses the record: Broker: Unknown topic or partition")


@pytest.mark.parametrize(
    ("problem", "reason"), [("topic q does not exist", "topic q does not exist"), (None, REFUSED.reason)]
)
def test_a_refused_delivery_fails_for_the_reason_of_its_topic_if_it_has_one(problem: str | None, reason: str) -> None:
    delivery = Deliver("c", True, "q", "T", "S", "g", 1)
    record = DecisionBatch(0, 1, 1, 1, (0, 0), [delivery])
    waiting = deque([SimpleNamespace(partition=lambda: 0, offset=lambda: 0)])
    partitions = {0: SimpleNamespace(number=0, carrying=Carrying(Position(), {}, 0))}
    share = SimpleNamespace(waiting=waiting, partitions=partitions)
    queues = SimpleNamespace(begin=lambda: None, look=lambda _queues: None, problem=lambda _queue: problem)
    decoder = SimpleNamespace(decode=lambda _message: record)
    refused = {((0, 0, 0), True): REFUSED}
    context = Context(Topics(), share, None, queues, SlowDestination(), decoder, refused)  # type: ignore[arg-type]
    part = Transaction(context, SimpleNamespace(produce=lambda *_: None), MAX_DECISIONS)  # type: ignore[arg-type]
    part.fill(lambda: False)
    [report] = partitions[0].carrying.reports
    assert report.failure == Failure(is_lasting=False, reason=reason)
