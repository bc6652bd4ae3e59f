"""A shard of the router under random records of all its topics.

No record ends the shard. A record that breaks the contract is a dead letter, once, and changes nothing else; good
conversations beside it go on. A failure prints its seed and the command that replays it.
"""

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import murmur2

from streaming.core.routing.conversation import Instance
from streaming.spark.blocks import RECORDS
from streaming.spark.routing import run_shard
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.sources import RouterSource
from streaming.spark.shard_worker import TakenShard
from streaming.wire.output_records import OutputRow
from streaming.wire.service_decisions import decode_decisions
from tests.support.json_fuzzer import JsonFuzzer
from tests.support.seeds import seeds

PARTITIONS, PARTITION = 4, 0
SETTINGS = RouterShardSettings("", PARTITIONS, 1, Instance(frozenset()))
MAX_ENVELOPE_CUT = 8_193
BATCHES, RECORDS_PER_BATCH = 250, 40
FIXED_SEEDS = (1, 2)

IDS = [name for name in map(str, range(1000)) if murmur2(name.encode(), PARTITIONS) == PARTITION]
GOOD, FUZZED = IDS[:5], [*IDS[5:40], *map(str, range(1000, 1005)), "Ünicode.\u202e.😀", "x" * 128]
START = [
    {"type": "CREATE_DATABASE", "database": "shop", "broker_instance": "A"},
    {"type": "CREATE_DATABASE", "database": "stock", "broker_instance": "B"},
    {"type": "CREATE_SERVICE", "database": "shop", "service": "//orders", "queue": "orders"},
    {"type": "CREATE_SERVICE", "database": "stock", "service": "//reserve", "queue": "reserve"},
]
# Fuzzed commands are about other names, so that good conversations keep their services and routes.
COMMANDS: list[dict[str, Any]] = [
    {"type": "CREATE_SERVICE", "database": "shop", "service": "//other", "queue": "other"},
    {"type": "DROP_SERVICE", "database": "shop", "service": "//other"},
    {"type": "CREATE_ROUTE", "database": "shop", "route": "r", "service_name": "//other", "address": "LOCAL"},
    {"type": "ALTER_ROUTE", "database": "shop", "route": "r", "lifetime_s": 5},
    {"type": "DROP_ROUTE", "database": "shop", "route": "r"},
]

Row = dict[str, Any]


class Scene:
    """Random records, with offsets for each source."""

    def __init__(self, seed: int) -> None:
        self.fuzzer = JsonFuzzer(seed)
        self.random = self.fuzzer.random
        self.offsets = dict.fromkeys(RouterSource, 0)
        self.begun: set[str] = set()
        # Conversation -> the offset of the record that began it, by its last delivery.
        self.begins: dict[str, int] = {}
        self.read = 0

    def row(self, source: RouterSource, key: bytes | None, value: bytes | None) -> Row:
        """Returns a record as the shard gets it."""
        offset = self.offsets[source]
        self.offsets[source] += 1
        is_own = source in (RouterSource.MESSAGES, RouterSource.INCOMING)
        cut = value[:MAX_ENVELOPE_CUT] if value is not None and is_own else value
        headers = self.random.choice((0, 1, 1, 1)) if value is None and is_own else 1
        return {
            "source": source.value,
            "partition": PARTITION if is_own else 0,
            "offset": offset,
            "timestamp_ms": 1_000 + offset,
            "key": key,
            "value": cut,
            "value_bytes": len(value or b"") if headers == 1 else -1 - headers,
        }

    def envelope(self, conversation_id: str, **more: Any) -> Row:
        """Returns a statement of the initiator."""
        return {
            "type": "MESSAGE",
            "conversation_id": conversation_id,
            "is_initiator": True,
            "from_service": "//orders",
            "from_database": "shop",
            "to_service": "//reserve",
            **more,
        }

    def good(self) -> Row:
        """Returns a valid message of a good conversation."""
        name = self.random.choice(GOOD)
        more = {} if name in self.begun else {"begin": True}
        self.begun.add(name)
        return self.row(RouterSource.MESSAGES, name.encode(), json.dumps(self.envelope(name, **more)).encode())

    def bad(self) -> Row:
        """Returns a record that is valid or not, and about no good conversation."""
        random = self.random
        source = random.choice((*RouterSource, RouterSource.MESSAGES, RouterSource.MESSAGES))
        if source is RouterSource.MESSAGES or source is RouterSource.INCOMING:
            name = random.choice(FUZZED)
            kinds = ("MESSAGE", "MESSAGE", "END", "ERROR", "CLEANUP", "TIMER", "ACK")
            fields = self.envelope(name, type=random.choice(kinds), begin=random.random() < 0.7)
            fields |= random.choice(({}, {"timer_ms": 500}, {"lifetime_s": 2}, {"to_service": "//none"}))
            if random.random() < 0.3:
                fields |= {"is_initiator": False, "from_service": "//reserve", "from_database": "stock"}
                fields |= {"to_service": "//orders"}
            if source is RouterSource.INCOMING:
                fields |= self.from_other_instance()
            key = name.encode() if random.random() < 0.9 else random.choice((None, b"", b"\xff", b"other"))
            return self.row(source, key, self.fuzzer.any_value(fields))
        if source is RouterSource.COMMANDS:
            return self.row(source, b"shop", self.fuzzer.any_value(random.choice(COMMANDS)))
        return self.row(source, None, self.fuzzer.any_value(self.report()))

    def from_other_instance(self) -> Row:
        """Returns the fields of a message between instances, most of them valid."""
        choose = self.random.choice
        return {
            "from_broker_instance": choose(("C", "A", None)),
            "to_broker_instance": choose((None, None, "A", "B", "C")),
            "message_sequence_number": choose((0, 0, 1, 2, 2**62, None)),
            "first_unacknowledged": choose((0, 0, 1)),
            "receive_sequence_number": choose((0, 1, 2**62 + 1)),
            "hops_remaining": choose((0, 1, 10, None)),
        }

    def report(self) -> Row:
        """Returns a report about deliveries that may never have been, of records that the router has read."""
        random = self.random
        name = random.choice(FUZZED)
        delivery = {
            "decision": "DELIVER",
            "conversation_id": name,
            "is_initiator": True,
            "queue": "reserve",
            "service": "//reserve",
            "from_service": "//orders",
            "conversation_group_id": name,
            "round": 1,
            "offset": random.randrange(-1, min(50, self.read)),
            "sequence": random.randrange(5),
            "begun": self.begins.get(name, 0),
        }
        if random.random() < 0.3:
            delivery = self.fuzzer.nearly(delivery)
        return {
            "type": "REFUSED",
            "partition": random.choice((PARTITION, 1)),
            "conversation_id": name,
            "is_initiator": True,
            "round": random.randrange(3),
            "is_lasting": random.random() < 0.5,
            "reason": "full",
            "refused": [delivery] * random.choice((0, 1)),
            "begun": self.begins.get(name, 0),
        }


def run(state: Any, batch_ms: int, rows: list[Row]) -> TakenShard:
    """Takes the shard through a batch."""
    return run_shard.run_shard(state, pa.Table.from_pylist(rows, RECORDS), batch_ms, SETTINGS, PARTITION)


def decisions_in(rows: list[OutputRow]) -> list[Row]:
    """Returns the decisions in a batch's rows."""
    values = [value for topic, _, value, _, _ in rows if topic == "service-decisions"]
    return [msgspec.to_builtins(each) for value in values for each in decode_decisions(value).decisions]


def refused_in(decisions: list[Row]) -> list[int]:
    """Returns the offsets of the messages that are dead letters."""
    return [each["offset"] for each in decisions if each["decision"] == "DEAD_LETTER" and each["source"] == "MESSAGES"]


def of_good(decisions: list[Row]) -> list[Row]:
    """Returns the deliveries of good conversations."""
    return [each for each in decisions if each.get("conversation_id") in GOOD]


@pytest.mark.parametrize("seed", seeds("BAD_SERVICE_INPUT_SEED", FIXED_SEEDS))
def test_every_message_is_delivered_held_or_a_dead_letter_and_its_neighbours_go_on(seed: int) -> None:
    print(f"BAD_SERVICE_INPUT_SEED={seed} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    scene, random = Scene(seed), JsonFuzzer(seed).random
    start = [scene.row(RouterSource.COMMANDS, each["database"].encode(), json.dumps(each).encode()) for each in START]
    state = alone = run(None, 0, start).state
    batch_ms, counts = 0, {"refused": 0, "delivered": 0, "from outside": 0}
    for _ in range(BATCHES):
        batch_ms += random.choice((100, 1_000, 6_000, 61_000))
        scene.read = scene.offsets[RouterSource.MESSAGES]
        rows = [scene.good() if random.random() < 0.2 else scene.bad() for _ in range(RECORDS_PER_BATCH)]
        random.shuffle(rows)

        taken = run(state, batch_ms, rows)
        assert run(state, batch_ms, rows) == taken, "the same batch writes the same again"
        decisions = decisions_in(taken.rows)
        scene.begins |= {each["conversation_id"]: each["begun"] for each in decisions if "begun" in each}
        refused = refused_in(decisions)
        messages = {row["offset"] for row in rows if row["source"] == RouterSource.MESSAGES}
        now = [offset for offset in refused if offset in messages]
        assert len(set(now)) == len(now), "a record has one dead letter at most"
        incoming = [row["offset"] for row in rows if row["source"] == RouterSource.INCOMING]
        done = [each["offset"] for each in decisions if each["decision"] in {"DROP", "FORWARD"}]
        done += [each["offset"] for each in decisions if each.get("source") == "INCOMING" and "offset" in each]
        # Messages that are ahead of sequence wait, and acknowledgements leave nothing.
        assert len(set(done)) == len(done), "a record from another instance has one fate"
        counts["from outside"] += len(set(done) & set(incoming))
        counts["refused"] += len(now)
        counts["delivered"] += len(decisions) - len(refused)

        good = [row for row in rows if (row["key"] or b"").decode(errors="replace") in GOOD]
        without = run(alone, batch_ms, good)
        assert of_good(decisions) == decisions_in(without.rows)
        assert len(of_good(decisions)) == len(good), "each good message is delivered"
        state, alone = taken.state or state, without.state or alone
    assert min(counts.values()) > BATCHES, counts
