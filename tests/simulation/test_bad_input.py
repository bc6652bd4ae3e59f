"""A shard under 100,000 random records, and the invariants that must hold after each batch.

A record either is valid or becomes one dead letter. A dead letter changes nothing: the same batch without its record
writes the same output and leaves the same state. Queues with valid records are processed as if they were alone. A batch
that runs again writes the same bytes. A failure prints its seed and the command that replays it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from zlib import crc32

import pytest

from streaming.core.activation.settings import CoreSettings
from streaming.spark.activation.sources import Source
from tests.support.bad_input import Fuzzer, as_read, is_valid
from tests.support.fake_spark import (
    SETTINGS,
    TICK,
    FakeGroupState,
    FakeShard,
    Output,
    Record,
    arrival,
    command,
    frame,
    of_topic,
    receive,
    record,
)
from tests.support.seeds import seeds

FIXED_SEEDS = (1, 2, 3, 4)
BATCHES = 20
RECORDS = 1_000

LIMITS = {
    "streaming.core.activation.sessions.MAX_SESSIONS": 6,
    "streaming.core.activation.sessions.MAX_TRANSACTIONS": 8,
    "streaming.core.activation.definition.MAX_EVENT_NOTIFICATIONS": 4,
    "streaming.core.activation.queue.MAX_MESSAGES": 10**10,
    "streaming.core.activation.sessions.MAX_MESSAGES": 10**10,
    "streaming.core.activation.tasks.MAX_QUEUE_READERS": 5,
}
GOOD = [f"good-{number}" for number in range(5)]
TASKS = "queue-activated-tasks"
GOOD_KEYS = {queue.encode() for queue in GOOD}
# More queues than the limit allows.
FUZZED = [f"q{number}" for number in range(60)] + ["Ünicode.\u202e.😀", ".".join(["\U0010ffff" * 128] * 3)]
LIMITED = CoreSettings(max_queues_per_shard=30)


def good_records(random: Random) -> list[Record]:
    """Returns the records that ordinary senders, readers and administrators write in a batch."""
    kinds = (
        arrival,
        arrival,
        lambda queue: receive("EMPTY", queue),
        lambda queue: receive("WAITING", queue),
        lambda queue: receive("MESSAGES", queue, messages=1, transaction_id="t"),
        lambda queue: record(
            Source.RECEIVES, {"type": "COMMIT", "queue": queue, "session_id": "r", "transaction_id": "t"}
        ),
        lambda queue: command("ALTER_QUEUE", queue, activation={"procedure_name": "p"}),
    )
    return [random.choice(kinds)(queue) for queue in GOOD for _ in range(random.randrange(4))]


@dataclass
class Numbering:
    """Gives records their places: the records of one key are in one partition, in order."""

    offset: int = 0

    def place(self, records: Iterable[Record], batch_ms: int) -> list[Record]:
        placed = []
        for one in records:
            self.offset += 1
            partition = crc32(one.key or b"") % 3
            placed.append(replace(one, offset=self.offset, partition=partition, timestamp_ms=batch_ms + self.offset))
        return placed


def by_place(outputs: Iterable[Output]) -> dict[tuple[str, bytes | None], list[Output]]:
    """Returns the output without dead letters, by topic and key, because a queue may be named like a session.

    It is in order, but rows of tasks are sorted, because tasks of several queues can have the same id.
    """
    found = defaultdict(list)
    for output in outputs:
        if output.topic != "queue-dead-letters":
            found[output.topic, output.key].append(output)
    return {place: sorted(rows, key=repr) if place[0] == TASKS else rows for place, rows in found.items()}


def of_good(outputs: Iterable[Output]) -> dict[tuple[str, bytes | None], list[Output]]:
    return {place: rows for place, rows in by_place(outputs).items() if place[1] in GOOD_KEYS}


def run(shard: FakeShard, batch_ms: int, records: list[Record]) -> list[Output]:
    return shard.batch_as_is(batch_ms, [frame([*records, TICK])])


def dead_letters(records: list[Record], outputs: list[Output]) -> dict[int, str]:
    """Returns the reason of each dead letter by its record's offset; checks that each record has at most one."""
    letters = of_topic(outputs, "queue-dead-letters")
    sent = {one.offset: one for one in records}
    reasons = {}
    for letter in letters:
        one = sent[int(letter.headers["source_offset"])]
        assert int(letter.headers["source_partition"]) == one.partition
        topic = f"queue-{one.source.name.lower()}"
        assert letter.headers["source_topic"] == topic.encode()
        assert (letter.key, letter.value) == (one.key and one.key[:1024], one.value)
        reasons[one.offset] = letter.headers["reason"].decode()
    assert len(reasons) == len(letters), "a record has one dead letter at most"
    return reasons


class TestFuzzedShard:
    @pytest.fixture(autouse=True)
    def limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, limit in LIMITS.items():
            monkeypatch.setattr(name, limit)

    @pytest.mark.parametrize("seed", seeds("BAD_INPUT_SEED", FIXED_SEEDS))
    def test_every_record_is_valid_or_a_dead_letter_that_changed_nothing(self, seed: int) -> None:
        print(f"BAD_INPUT_SEED={seed} pytest {__file__}")  # noqa: T201  (shown if the test fails)
        fuzzer, numbering = Fuzzer(seed, FUZZED, GOOD), Numbering()
        random = fuzzer.random
        shard, alone = FakeShard(replace(SETTINGS, core=LIMITED)), FakeShard()
        batch_ms, first = 0, numbering.place([arrival(queue) for queue in GOOD], 0)
        run(shard, batch_ms, first)
        run(alone, batch_ms, first)
        kinds = {"valid": 0, "invalid": 0, "refused": 0}
        for number in range(BATCHES):
            batch_ms += random.choice((100, 1_000, 6_000, 61_000))
            given = [as_read(fuzzer.record(number % 2 == 0)) for _ in range(RECORDS)] + good_records(random)
            random.shuffle(given)
            given = numbering.place(given, batch_ms)
            before = shard.state.value

            outputs = run(shard, batch_ms, given)
            reasons = dead_letters(given, outputs)
            for one in given:
                reason = reasons.get(one.offset, "")
                kind = "refused" if reason.startswith("too many ") else "invalid" if reason else "valid"
                kinds[kind] += 1
                assert is_valid(one) in (None, kind != "invalid"), (one, reason)

            again = FakeShard(shard.settings, FakeGroupState(before))
            assert run(again, batch_ms, given) == outputs, "the same batch writes the same again"
            assert again.state.value == shard.state.value

            without = FakeShard(SETTINGS, FakeGroupState(before))
            rest = run(without, batch_ms, [one for one in given if one.offset not in reasons])
            assert by_place(rest) == by_place(outputs), "a dead letter changes nothing"
            assert without.queues() == shard.queues()

            theirs = [one for one in given if one.key in GOOD_KEYS and one.offset not in reasons]
            good = run(alone, batch_ms, theirs)
            assert of_good(outputs) == of_good(good)
            assert {queue: shard.queues()[queue] for queue in GOOD} == alone.queues()
        assert all(count > BATCHES * RECORDS // 200 for count in kinds.values()), kinds
