"""The router's driver without Spark and Kafka: its traces, progress and metrics, and the settings of its batches."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from streaming.core.conversations.snapshot import FORMAT_VERSION
from streaming.core.routing.conversation import Instance
from streaming.daemons.router import progress as progress_module
from streaming.daemons.router import traces as traces_module
from streaming.daemons.router.metrics import RouterMetrics
from streaming.daemons.router.progress import ProgressWriter
from streaming.daemons.router.router import problem_of_partitions
from streaming.daemons.router.traces import Planned, Traces, problem_of, read_traces
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.clients import Cluster
from streaming.spark import checkpoint_files, progress_files
from streaming.spark.blocks import RECORDS
from streaming.spark.format_versions import UnknownFormatError
from streaming.spark.routing import checkpoint_layout
from streaming.spark.routing.checkpoint_layout import Wanted
from streaming.spark.routing.query import decisions_in
from streaming.spark.routing.run_shard import run_shard
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.system.metrics_server import MetricsServer
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.topics import Topics
from tests.support.metric_names import documented_router_metrics
from tests.unit.test_checkpoint_layout import FakePath, Files

TOPICS = Topics("p-")
CLUSTER = Cluster("127.0.0.1:1", {})
LOCATION = "file:///checkpoints/router"
SETTINGS = RouterShardSettings("p-", 2, 1, Instance(frozenset(("tcp://b:1", "tcp://a:1"))))
PLANNED = Planned(1, 4, {"service-messages": {"0": 10, "1": 20}, "service-incoming": {"0": 0, "1": 0}})


def message(topic: str, key: bytes | None, value: bytes | None, partition: int = 0) -> Message:
    return Message(topic=topic, partition=partition, offset=0, key=key, value=value)


class TestTraces:
    def test_without_traces_any_checkpoint_may_begin(self) -> None:
        assert problem_of(Traces(), None, LOCATION) is None
        assert problem_of(Traces(), PLANNED, LOCATION) is None

    def test_traces_without_a_checkpoint_are_refused(self) -> None:
        assert "has committed its batch 3" in str(problem_of(Traces(1, 3), None, LOCATION))
        assert "there is no checkpoint at" in str(problem_of(Traces(1), None, LOCATION))

    @pytest.mark.parametrize(
        ("traces", "part"),
        [
            (Traces(1, 4, PLANNED.ends), None),
            (Traces(1, 3, {"service-messages": {"0": 9}}), None),
            (Traces(1, 5, PLANNED.ends), "batch 5 was committed"),
            (Traces(1, None, {"service-messages": {"1": 21}}), "partition 1 of service-messages up to offset 20"),
            (Traces(1, None, {"service-incoming": {"7": 1}}), "partition 7 of service-incoming up to offset 0"),
            (Traces(2, None, {}), "generation 1, and Kafka has decisions of 2"),
        ],
    )
    def test_a_checkpoint_that_is_behind_is_refused(self, traces: Traces, part: str | None) -> None:
        found = problem_of(traces, PLANNED, LOCATION)
        assert (found is None) if part is None else (part in str(found))

    def test_a_restored_checkpoint_may_begin_if_the_router_before_it_has_not_gone_on(self) -> None:
        restored = replace(PLANNED, generation=2)
        read = {"service-messages": {"0": 10}, "service-commands": {"0": 99}, "service-ticks": {"0": 99}}
        assert problem_of(Traces(1, 9, read), restored, LOCATION) is None
        found = problem_of(Traces(1, 9, {"service-messages": {"1": 21}}), restored, LOCATION)
        assert "gone on with generation 1" in str(found)
        assert "restore again" in str(found)

    def test_the_highest_of_all_records_count_and_invalid_ones_do_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def progress(batch: int, end: int) -> bytes:
            ends = {"service-messages": {"0": end}}
            return json.dumps({"generation": 1, "batch": batch, "ends": ends, "update_time": ""}).encode()

        def decided(*ends: int) -> bytes:
            return json.dumps({"generation": 1, "number": 1, "first": 1, "ends": ends, "decisions": []}).encode()

        found = {
            TOPICS.service_progress: [
                message("", b"router", progress(1, 5)),
                message("", b"router", progress(2, 6)),
                message("", b"other", progress(9, 60)),
                message("", b"router", b"{"),
            ],
            TOPICS.service_decisions: [
                message("", None, decided(8, 1)),
                message("", None, decided(7, 0)),
                message("", None, b"poison"),
                message("", None, decided(3, 0), partition=1),
            ],
        }
        monkeypatch.setattr(traces_module, "last_records", lambda _cluster, topic, *_: found[topic])
        partitions = dict.fromkeys(found, 2)
        traces = read_traces(CLUSTER, TOPICS, partitions)
        assert (traces.generation, traces.batch) == (1, 2)
        assert traces.ends == {"service-messages": {"0": 8, "1": 3}, "service-incoming": {"0": 1, "1": 0}}

    def test_a_restored_router_that_was_killed_in_its_first_batch_starts_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        progress = {"generation": 1, "batch": 500, "ends": {"service-messages": {"0": 10}}, "update_time": ""}
        decided = {"generation": 2, "number": 1, "first": 1, "ends": [10, 0], "decisions": []}
        found = {
            TOPICS.service_progress: [message("", b"router", json.dumps(progress).encode())],
            TOPICS.service_decisions: [message("", None, json.dumps(decided).encode())],
        }
        monkeypatch.setattr(traces_module, "last_records", lambda _cluster, topic, *_: found[topic])
        traces = read_traces(CLUSTER, TOPICS, dict.fromkeys(found, 1))
        assert problem_of(traces, replace(PLANNED, generation=2, batch=0), LOCATION) is None
        assert "batch" not in str(problem_of(traces, None, LOCATION))


# The part of Spark's report of a batch that the progress needs.
BATCH: dict[str, Any] = {"batchId": 3, "sources": [{"endOffset": {"p-service-ticks": {"0": 7}}}, {"endOffset": None}]}


class FakeProducer:
    """A producer that keeps what it is given, or raises an error."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def produce(self, _topic: str, value: bytes, key: bytes, **_more: Any) -> None:
        if self.error is not None:
            raise self.error
        assert key == b"router"
        self.values.append(json.loads(value))

    def poll(self, _timeout_s: float) -> None:
        pass


class TestProgress:
    @pytest.fixture
    def producer(self, monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
        producer = FakeProducer()
        monkeypatch.setattr(Cluster, "producer", lambda _self, _config: producer)
        monkeypatch.setattr(progress_module.wall_clock, "now_ms", lambda: 0)
        return producer

    def test_a_committed_batch_is_written_without_the_prefix(self, producer: FakeProducer) -> None:
        ProgressWriter(CLUSTER, TOPICS, 2).batch_is_committed(BATCH)
        time = "1970-01-01T00:00:00.000Z"
        assert producer.values == [
            {"generation": 2, "batch": 3, "ends": {"service-ticks": {"0": 7}}, "update_time": time}
        ]

    def test_a_full_queue_is_no_failure_and_a_refusal_ends_the_router(self, producer: FakeProducer) -> None:
        writer = ProgressWriter(CLUSTER, TOPICS, 1)
        producer.error = BufferError()
        writer.batch_is_committed(BATCH)
        assert (writer.failure, writer.denied) == (None, None)
        producer.error = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        writer.batch_is_committed(BATCH)
        assert isinstance(writer.denied, RightMissingError)
        assert writer.failure is None
        producer.error = KeyError("a bug")
        writer.batch_is_committed(BATCH)
        assert writer.failure is producer.error


class TestMetrics:
    server: MetricsServer

    @pytest.fixture
    def metrics(self) -> Iterator[RouterMetrics]:
        names = [*TOPICS.service_inputs(), TOPICS.service_conversations, TOPICS.service_transmissions]
        with MetricsServer("127.0.0.1", 0) as self.server:
            yield RouterMetrics(self.server, 1_000, CLUSTER, TOPICS, dict.fromkeys(names, 1))

    def sample(self, name: str, **labels: str) -> float | None:
        return self.server.registry.get_sample_value(f"queue_activation_router_{name}", labels)

    def test_endpoints_and_held_messages_count_as_in_the_last_row_of_each_key(self, metrics: RouterMetrics) -> None:
        conversations, transmissions = TOPICS.service_conversations, TOPICS.service_transmissions
        for key, state in ((b"a/initiator", "CO"), (b"a/target", "CO"), (b"a/target", "DI"), (b"b/initiator", "SO")):
            row = {"state": state, "update_time": "2026-01-31T12:00:00.000Z"}
            metrics.apply(message(conversations, key, json.dumps(row).encode()))
        metrics.apply(message(conversations, b"b/initiator", None))
        for key, held, number in ((b"a/initiator", 3, 9796), (b"a/initiator", 5, 9796), (b"c/initiator", 1, None)):
            held_row = {"messages": held, "number": number, "to_service": "Stock", "held_since": None}
            metrics.apply(message(transmissions, key, json.dumps(held_row).encode()))
        metrics.apply(message(transmissions, b"d/initiator", None))
        with pytest.raises(InvalidRecordError):
            metrics.apply(message(conversations, b"a/initiator", b"{}"))
        assert self.sample("endpoints", state="CO") is None, "the views are not complete"
        metrics._is_view_complete = True
        assert self.sample("endpoints", state="CO") == 1
        assert self.sample("endpoints", state="DI") == 1
        assert self.sample("endpoints", state="SO") == 0
        assert self.sample("held_messages", number="9796") == 5
        assert self.sample("held_messages", number="none") == 1
        assert self.sample("service_held_messages", service="Stock") == 6
        assert self.sample("oldest_held_age_seconds", service="Stock") == 0
        assert (self.sample("idle_endpoints", idle="1d") or 0) >= 1
        assert self.sample("decisions_total", decision="DELIVER") == 0
        metrics.clear_view()
        assert self.sample("endpoints", state="CO") == 0

    def test_each_metric_is_documented(self, metrics: RouterMetrics) -> None:
        metrics._is_view_complete = True
        metrics._batches.last_committed_s = 0.0
        families = {family.name for family in self.server.registry.collect()}
        told = {name for name in families if name.startswith("queue_activation_router_")}
        assert told == {name.removesuffix("_total") for name in documented_router_metrics()}


def test_decisions_are_counted_whatever_text_they_contain() -> None:
    text = json.dumps(
        {"decisions": [{"decision": "DELIVER", "service": '"decision":"DEAD_LETTER"'}]}, separators=(",", ":")
    )
    rows = [("decisions", None, text.encode(), None, 0), ("other", None, text.encode(), None, None)]
    assert decisions_in(cast(Any, rows), "decisions") == {"DELIVER": 1, "DEAD_LETTER": 0, "CLEAN_UP": 0}


def test_topics_whose_partitions_do_not_correspond_are_named() -> None:
    right = {spec.name: 4 if spec.is_partitioned else 1 for spec in TOPICS.service_specs()}
    assert problem_of_partitions(TOPICS, right) is None
    wrong = right | {TOPICS.service_decisions: 3, TOPICS.service_commands: 2}
    said = str(problem_of_partitions(TOPICS, wrong))
    assert "p-service-decisions has 3 instead of 4, p-service-commands has 2 instead of 1" in said


class RouterFiles(Files):
    """Files that can be listed and deleted, too."""

    def exists(self, path: FakePath) -> bool:
        return path in self.content or any(name.startswith(f"{path}/") for name in self.content)

    def listStatus(self, folder: FakePath) -> list[Any]:  # noqa: N802  (Hadoop's name)
        names = {
            name.removeprefix(f"{folder}/").partition("/")[0] for name in self.content if name.startswith(f"{folder}/")
        }
        return [_Status(name) for name in sorted(names)]

    def delete(self, path: FakePath, _is_recursive: bool) -> None:
        del self.content[path]


class _Status:
    def __init__(self, name: str) -> None:
        self._name = name

    def getPath(self) -> "_Status":  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self._name


class TestCheckpoint:
    @pytest.fixture
    def files(self, monkeypatch: pytest.MonkeyPatch) -> RouterFiles:
        files = RouterFiles({})
        monkeypatch.setattr(checkpoint_files, "open_path", files.open_path)
        monkeypatch.setattr(checkpoint_files, "read", files.read)
        monkeypatch.setattr(checkpoint_layout, "shuffle_partitions", lambda _spark: 2)
        return files

    def batch(self, files: RouterFiles, number: int, *, is_committed: bool) -> None:
        files.content[f"{LOCATION}/offsets/{number}"] = b'v1\n{}\n{"p-service-messages":{"0":5}}\n-'
        if is_committed:
            files.content[f"{LOCATION}/commits/{number}"] = b"v1\n{}"

    def unfinished(self, settings: RouterShardSettings) -> RouterShardSettings | None:
        return checkpoint_layout.unfinished(cast(Any, None), LOCATION, settings)

    def keep(self, settings: RouterShardSettings) -> None:
        checkpoint_layout.keep_settings(cast(Any, None), LOCATION, settings)

    def newest(self, files: RouterFiles) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in files.content if "settings-" in name)

    def test_a_layout_is_kept_and_found_again(self, files: RouterFiles) -> None:
        wanted = Wanted("p-", 2, {"p-service-messages": "id"})
        layout, is_there = checkpoint_layout.settle(cast(Any, None), LOCATION, wanted)
        assert (is_there, files.content, len(layout.shard_keys)) == (False, {}, 2)
        checkpoint_layout.keep(cast(Any, None), LOCATION, layout)
        assert checkpoint_layout.settle(cast(Any, None), LOCATION, wanted) == (layout, True)
        for other, part in (
            (replace(wanted, topic_prefix="q-"), "belongs to the topic prefix 'p-', not 'q-'"),
            (replace(wanted, partitions=3), "service-messages had 2 partitions, and it has 3 now"),
            (replace(wanted, topic_ids={"p-service-messages": "new"}), "created again: p-service-messages"),
        ):
            with pytest.raises(UserError, match=part):
                checkpoint_layout.settle(cast(Any, None), LOCATION, other)

    @pytest.mark.usefixtures("files")
    def test_a_newer_format_is_refused(self) -> None:
        wanted = Wanted("p-", 2, {})
        layout, _ = checkpoint_layout.settle(cast(Any, None), LOCATION, wanted)
        layout.format_version += 1
        checkpoint_layout.keep(cast(Any, None), LOCATION, layout)
        with pytest.raises(UserError, match="Start the version that wrote it"):
            checkpoint_layout.settle(cast(Any, None), LOCATION, wanted)

    def test_a_state_of_a_newer_format_is_refused(self) -> None:
        state = (FORMAT_VERSION + 1, 0, 0, 0, b"", b"", b"")
        with pytest.raises(UnknownFormatError, match=f"state of format {FORMAT_VERSION + 1}.*up to {FORMAT_VERSION}"):
            run_shard(state, RECORDS.empty_table(), 0, SETTINGS, 0)

    def test_settings_change_with_the_batch_after_the_last_complete_one(self, files: RouterFiles) -> None:
        other = replace(SETTINGS, keep_ms=1)
        assert self.unfinished(SETTINGS) is None
        self.keep(SETTINGS)
        self.keep(SETTINGS)
        self.keep(other)
        self.keep(SETTINGS)
        assert self.newest(files) == ["queue-activation.settings-0"], "no batch has run with the others"
        self.batch(files, 0, is_committed=True)
        assert self.unfinished(other) is None
        self.keep(other)
        assert self.newest(files) == ["queue-activation.settings-0", "queue-activation.settings-1"]

    def test_a_batch_that_was_begun_keeps_its_settings(self, files: RouterFiles) -> None:
        self.keep(SETTINGS)
        self.batch(files, 0, is_committed=False)
        assert self.unfinished(SETTINGS) is None, "it runs again with the same"
        assert self.unfinished(replace(SETTINGS, keep_ms=1)) == SETTINGS
        assert self.unfinished(replace(SETTINGS, instance=Instance(frozenset(), True))) == SETTINGS

    def test_a_batch_that_was_begun_by_other_rules_is_refused(
        self, files: RouterFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.keep(SETTINGS)
        self.batch(files, 0, is_committed=False)
        now = checkpoint_layout.RULES_VERSION
        monkeypatch.setattr(checkpoint_layout, "RULES_VERSION", now + 1)
        with pytest.raises(UserError, match=rf"decides by other rules \({now} instead of {now + 1}\)"):
            self.unfinished(SETTINGS)
        self.batch(files, 0, is_committed=True)
        assert self.unfinished(SETTINGS) is None

    def test_torn_settings_say_what_to_do(self, files: RouterFiles) -> None:
        files.content[f"{LOCATION}/queue-activation.settings-0"] = b""
        with pytest.raises(UserError, match="settings-0 is corrupt"):
            self.unfinished(SETTINGS)

    def test_the_end_of_a_batch_is_read_from_sparks_file(self, files: RouterFiles) -> None:
        self.batch(files, 7, is_committed=False)
        assert progress_files.end_offsets(cast(Any, None), LOCATION, 7) == {"p-service-messages": {"0": 5}}
        assert not progress_files.is_complete(cast(Any, None), LOCATION)
