"""Reads the log of batches (`--log-batches`), and puts the parts of each batch together again."""

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

# (queue, timestamp of a batch) -> number of a part -> the part
Parts = dict[tuple[str, int], dict[int, dict[str, Any]]]


def distinct_parts(log: Iterable[tuple[bytes, bytes]]) -> Parts:
    """Returns each part once, however often its batch ran. While a batch is being written, some parts may be missing.

    Args:
        log: Key and value of each record of queue-batches, in order.

    Raises:
        AssertionError: A batch that ran again had another input.
    """
    parts: Parts = defaultdict(dict)
    known: dict[tuple[str, int, int], bytes] = {}
    for key, value in log:
        part = json.loads(value)
        queue, batch_ms, number = key.decode(), part["batch_ms"], part["part"]
        assert known.setdefault((queue, batch_ms, number), value) == value, "a batch that runs again has the same input"
        parts[queue, batch_ms][number] = part
    return parts


def merged_batches(log: Iterable[tuple[bytes, bytes]]) -> dict[str, list[dict[str, Any]]]:
    """Merges the parts. Returns queue -> its batches in order, each with all its events.

    Args:
        log: Key and value of each record of queue-batches, in order.

    Raises:
        AssertionError: A part is missing, or a batch that ran again had another input.
    """
    merged: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (queue, batch_ms), by_number in distinct_parts(log).items():
        numbers = sorted(by_number)
        first = by_number[numbers[0]]
        assert numbers == [*range(1, first["parts"] + 1)], f"a part is missing: {queue}, {batch_ms}: {numbers}"
        whole = {
            name: [each for number in numbers for each in by_number[number][name]] for name in ("events", "times_ms")
        }
        merged[queue].append(first | whole)
    return dict(merged)
