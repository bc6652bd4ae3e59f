"""The records of service-decisions: a batch's decisions, numbered without gaps."""

from collections.abc import Iterable, Iterator

import msgspec

from streaming.core.conversations.decisions import Decision
from streaming.wire.decision_fields import fields_of

# The most bytes of encoded decisions in a record. A single decision has at most some 20 kB.
MAX_DECISIONS_BYTES = 200_000

_encode = msgspec.json.Encoder().encode


def decision_records(
    decisions: Iterable[Decision], generation: int, last_number: int, ends: tuple[int, int]
) -> Iterator[bytes]:
    """Yields the values of the records that carry a batch's decisions.

    Args:
        decisions: The decisions, in order.
        generation: The generation of the router's checkpoint.
        last_number: The number of the last record before the batch.
        ends: The offsets of service-messages and service-incoming up to which the router has read.
    """
    first = last_number + 1
    for number, portion in enumerate(_portions(decisions), first):
        yield _encode({"generation": generation, "number": number, "first": first, "ends": ends, "decisions": portion})


def _portions(decisions: Iterable[Decision]) -> Iterator[list[msgspec.Raw]]:
    portion: list[msgspec.Raw] = []
    portion_bytes = 0
    for decision in decisions:
        encoded = _encode(fields_of(decision))
        if portion and portion_bytes + len(encoded) > MAX_DECISIONS_BYTES:
            yield portion
            portion, portion_bytes = [], 0
        portion.append(msgspec.Raw(encoded))
        portion_bytes += len(encoded)
    if portion:
        yield portion
