"""The input of a shard's batch: each record is decoded as if it were alone, whatever the other records contain."""

import json
from random import Random
from typing import Any

import pytest

from streaming.core.activation.events import Receive
from streaming.spark.activation.input_batch import by_key, events_of, keys_of
from streaming.spark.activation.sources import Source
from streaming.wire import input_records
from streaming.wire.record_decoders import Decoder
from tests.support.fake_spark import Record, table

DECODERS: dict[Any, Decoder[Any]] = {
    Source.COMMANDS: input_records.commands_decoder,
    Source.ARRIVALS: input_records.arrivals_decoder,
    Source.RECEIVES: input_records.receives_decoder,
}
KEYS = [b"a", "straße".encode(), b"a.b.c.d", b"\xff", b"", None]


def values(key: bytes | None) -> list[tuple[Source, bytes | None]]:
    """Returns records of every kind, good and bad."""
    name = (key or b"").decode(errors="replace")
    receive = {"type": "RECEIVE", "queue": name, "session_id": "s"}
    return [
        (Source.ARRIVALS, json.dumps({"queue": name}).encode()),
        (Source.ARRIVALS, json.dumps({"queue": name, "count": 7, "note": "ß"}, ensure_ascii=False).encode()),
        (Source.ARRIVALS, b'{"queue": "other"}'),
        (Source.ARRIVALS, b'{"queue": "' + (key or b"") + b'", "note": "\xff"}'),
        (Source.ARRIVALS, b"\xbf" + json.dumps({"queue": name}).encode()),
        (Source.ARRIVALS, b"{"),
        (Source.ARRIVALS, b"[" * 5_000),
        (Source.ARRIVALS, b""),
        (Source.ARRIVALS, None),
        (Source.RECEIVES, json.dumps(receive | {"result": "MESSAGES", "messages": 2}).encode()),
        (Source.RECEIVES, json.dumps(receive | {"result": "MESSAGES"}).encode()),
        (Source.RECEIVES, json.dumps(receive | {"result": "EMPTY"}).encode()),
        (Source.COMMANDS, json.dumps({"type": "DROP_QUEUE", "queue": name}).encode()),
        (Source.COMMANDS, json.dumps({"type": "DROP_QUEUE", "queue": name, "x": "y" * 70_000}).encode()),
    ]


@pytest.mark.parametrize("seed", range(60))
def test_a_batch_is_decoded_as_its_records_would_be_one_by_one(seed: int) -> None:
    random = Random(seed)  # noqa: S311  (no secret)
    # The batches range from only good records to mostly bad ones.
    kinds = random.sample(range(14), random.randrange(1, 14)) if seed % 3 else [0, 9, 11]
    batch = []
    for offset in range(random.randrange(1, 40)):
        key = random.choice(KEYS if seed % 2 else KEYS[:2])
        source, value = values(key)[random.choice(kinds)]
        batch.append(Record(source, value, key, offset, timestamp_ms=offset))

    seen = {}
    whole = table(batch)
    for given in by_key(whole, keys_of(whole)):
        seen[given.key] = given.decode()

    assert list(seen) == list(dict.fromkeys(one.key for one in batch)), "keys come in the order of their first records"
    for key, (name, events, wrong) in seen.items():
        good, written_ms, bad = [], [], {}
        for number, one in enumerate(one for one in batch if one.key == key):
            try:
                good.append(input_records.decode(DECODERS[one.source], key, one.value, len(one.value or b"")))
                written_ms.append(one.timestamp_ms)
            except input_records.InvalidRecordError as error:
                bad[number] = str(error)
        assert (events, wrong) == (events_of(good, written_ms), bad)
        assert name == (good[0].queue if good else None)


def test_no_two_of_many_keys_are_taken_for_one() -> None:
    count = 70_000  # more than 16 bits can distinguish
    batch = [Record(Source.ARRIVALS, b"%d" % number, b"%d" % number, number) for number in range(count)]
    whole = table(batch)
    found = [(given.key, given.values) for given in by_key(whole, keys_of(whole))]
    assert found == [(b"%d" % number, [b"%d" % number]) for number in range(count)]


@pytest.mark.parametrize("is_plain", [True, False], ids=["decoded at once", "decoded one by one"])
def test_the_count_of_a_reader_is_as_old_as_its_record(is_plain: bool) -> None:
    report = b'{"type": "RECEIVE", "queue": "q", "session_id": "s", "result": "EMPTY", "unread": 3}'
    batch = [
        Record(Source.ARRIVALS, b'{"queue": "q"}' if is_plain else b"{", b"q", 0, timestamp_ms=100),
        Record(Source.RECEIVES, report, b"q", 0, timestamp_ms=200),
        Record(Source.RECEIVES, report, b"q", 1, timestamp_ms=300),
    ]
    whole = table(batch)
    (given,) = by_key(whole, keys_of(whole))
    _, events, _ = given.decode()
    assert [event.reported_ms for event in events if isinstance(event, Receive)] == [200, 300]
