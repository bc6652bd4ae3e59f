"""Faults around a monitor: of its checkpoint, its disk, its topics, its clock and its broker, and its absence.

After each fault the notifications are those of the core, and repeats are the same bytes. A monitor that cannot continue
says in one message what to do. FAULTS_SEED replays the histories.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from tests.support.differential import Outcome, logged_batches
from tests.support.fault_scene import DEADLINE_S, KillableBroker, Report, Scene
from tests.support.monitor_topics import Tail
from tests.support.monitors import Activations
from tests.support.seeds import fresh_seed
from tests.support.waiting import wait_until

HOUR_MS = 3_600_000
HISTORY_S = 4.0
BROKER_AWAY_S = 60.0
# The time-out in OPTIONS.
T_S = 3.0
DISK_BYTES = 4 * 2**20
pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def scene(killable_broker: KillableBroker, tmp_path: Path) -> Iterator[Scene]:
    seed = fresh_seed("FAULTS_SEED")
    print(f"FAULTS_SEED={seed} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    with Scene(killable_broker, tmp_path, seed) as scene:
        yield scene


def play(scene: Scene, seconds: float = HISTORY_S) -> None:
    """Sends a part of the history."""
    with scene.history.going_on():
        time.sleep(seconds)


def newest(scene: Scene, folder: str) -> Path:
    """Returns the newest file of the checkpoint's `offsets` or `commits`."""
    return max(
        (path for path in (scene.checkpoint / folder).iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )


def stop_when_all_is_committed(scene: Scene) -> None:
    """Stops the monitor, again if a stop has come after a batch was planned and before it began."""
    for _ in range(5):
        assert scene.monitor.stop() == 0
        if newest(scene, "commits").name == newest(scene, "offsets").name:
            return
        scene.start()
    raise AssertionError("each stop left a batch that was planned only")


def test_the_newest_commit_is_deleted(scene: Scene, report: Report) -> None:
    play(scene)
    with scene.monitored.activations() as activations:
        # So the last batch has something to write when it runs again.
        scene.history.sent["last"]["queue-arrivals"].append({"queue": "last"})
        scene.monitored.arrive("last")
        activations.wait_for("last", 1)
    stop_when_all_is_committed(scene)
    commit = newest(scene, "commits")
    commit.unlink()
    with scene.history.going_on():
        scene.start()
        assert commit.exists(), "the batch ran again"
    scene.finish("the newest commit deleted", 1, report)


def test_an_offsets_file_is_torn(scene: Scene, report: Report) -> None:
    play(scene)
    scene.wait_until_all_is_read()
    scene.kill_driver()
    torn = newest(scene, "offsets")
    content = torn.read_bytes()
    for cut in (content[: len(content) // 2], b""):
        torn.write_bytes(cut)
        scene.monitor.start()
        assert f"offsets/{torn.name} is corrupt. Put a backup" in scene.ends_by_itself()
    torn.write_bytes(content)
    scene.start()
    play(scene)
    scene.finish("the newest offsets torn, then from a backup", 2, report)


def test_the_disk_of_the_checkpoint_is_full(killable_broker: KillableBroker, tmp_path: Path, report: Report) -> None:
    seed = fresh_seed("FAULTS_SEED")
    print(f"FAULTS_SEED={seed} pytest {__file__}")  # noqa: T201
    (tmp_path / "checkpoint").mkdir()
    with (
        small_disk(tmp_path / "checkpoint") as (within, seen_from_here),
        Scene(killable_broker, tmp_path, seed, within) as scene,
    ):
        play(scene)
        with pytest.raises(OSError, match="No space left"):
            fill_up(seen_from_here / "filler")
        with scene.history.going_on():
            assert "No space left on device" in scene.ends_by_itself()
        (seen_from_here / "filler").unlink()
        scene.start()
        play(scene)
        scene.finish("the disk of the checkpoint full", 1, report)


def fill_up(path: Path) -> None:
    """Writes until the file system is full.

    Raises:
        OSError: No space is left.
    """
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[list[str], Path]]:
    """Mounts a small file system at a folder in a new namespace.

    Yields the words that run a command within the namespace, and the path of the file system outside of it.
    """
    script = f"mount -t tmpfs -o size={DISK_BYTES} tmpfs '{folder}' && echo mounted && exec sleep 1000"
    with subprocess.Popen(["unshare", "-rm", "sh", "-c", script], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"mounted\n", "no namespace with a file system of its own can be made"
            within = ["nsenter", "-t", str(holder.pid), "-U", "-m", "--preserve-credentials", "--"]
            yield within, Path(f"/proc/{holder.pid}/root{folder}")
        finally:
            holder.kill()


def test_the_broker_is_away_for_a_minute(scene: Scene, report: Report) -> None:
    play(scene)
    with scene.history.going_on():
        scene.broker.kill()
        time.sleep(BROKER_AWAY_S)
        scene.monitor.check()
        scene.broker.start()
        time.sleep(HISTORY_S)
    scene.finish("the broker away for a minute", 1, report)


def test_a_topic_is_deleted_and_created_again(scene: Scene, report: Report) -> None:
    play(scene)
    scene.wait_until_all_is_read()
    arrivals = scene.monitored.topics.arrivals
    create_again(scene, arrivals)
    queues = [f"new-{number}" for number in range(20)]
    scene.monitored.arrive(*queues)
    assert sum(end_of(scene, arrivals).values()) == len(queues), "the acknowledged records are in the new topic"
    assert f"deleted and created again: {arrivals}" in scene.ends_by_itself()
    scene.monitor.start()
    assert f"deleted and created again: {arrivals}" in scene.ends_by_itself()

    scene.monitor.options += ["--checkpoint-location", str(scene.checkpoint.with_name("another"))]
    with scene.monitored.activations() as activations:
        # Before it ended, the monitor may have read the new topic as if it were the old one.
        activations.read_all()
        before = activations.counts()
        scene.start()
        for queue in queues:
            activations.wait_for(queue, before[queue] + 1)
        assert scene.monitor.stop() == 0
        activations.read_all()
        # Later activations come from time-outs that have expired.
        found = [[one for one in activations.of(queue)[before[queue] :] if one["sequence"] == 1] for queue in queues]
    outcome = Outcome(len(queues), found.count([]), sum(max(0, len(of_queue) - 1) for of_queue in found), 0)
    report("a topic deleted and created again", 1, outcome)
    assert outcome == Outcome(len(queues), 0, 0, 0)


def create_again(scene: Scene, topic: str) -> None:
    """Deletes a topic with records in each partition, and creates it again; returns when the new one is ready for use.

    Kafka answers both requests before the broker has carried them out. Until then the broker acknowledges records for
    the old log, or refuses a record for the new one and takes the next. Then librdkafka reports both as delivered.
    """
    cluster = Cluster(scene.broker.bootstrap_servers, {})
    admin = Admin(cluster)
    old_id = admin.topic_ids([topic])[topic]
    assert all(end_of(scene, topic).values()), "an empty log would look like the new one"
    client = cluster.admin_client()
    client.delete_topics([topic])[topic].result()
    specs = [spec for spec in scene.monitored.topics.specs() if spec.name == topic]
    wait_until(lambda: admin.create_topics(specs, partitions=2, replication_factor=1), DEADLINE_S, "the new topic")

    def is_in_place() -> bool:
        return admin.topic_ids([topic]).get(topic, old_id) != old_id and not any(end_of(scene, topic).values())

    wait_until(is_in_place, DEADLINE_S, "the new topic's logs")


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS], ids=["on", "back"])
def test_the_clock_jumps_an_hour(scene: Scene, jump_ms: int, report: Report) -> None:
    """Gives one batch a timestamp that is an hour off, as if the clock jumped before the batch and back after it."""
    play(scene)
    scene.wait_until_all_is_read()
    stop_between_batches(scene)
    play(scene)
    planned_ms = plan_next_batch(scene, jump_ms)
    scene.start()
    play(scene)
    scene.finish(f"the clock {'an hour on' if jump_ms > 0 else 'an hour back'}, and right again", 1, report)
    by_queue = logged_batches(scene.monitored)
    assert planned_ms in {batch["batch_ms"] for of_queue in by_queue.values() for batch in of_queue}


def stop_between_batches(scene: Scene) -> None:
    """Stops the monitor so that every batch that has begun is committed."""
    for _ in range(10):
        assert scene.monitor.stop() == 0
        if newest(scene, "offsets").name == newest(scene, "commits").name:
            return
        scene.start()
    pytest.fail("at each stop a batch had begun and was not committed")


def plan_next_batch(scene: Scene, jump_ms: int) -> int:
    """Writes the offsets of a batch with all records since the last batch, as Spark does before a batch begins.

    Returns:
        The batch's timestamp.
    """
    last = newest(scene, "offsets")
    version, metadata, *sources = last.read_text().splitlines()
    plan = json.loads(metadata)
    planned_ms = time.time_ns() // 1_000_000 + jump_ms
    plan["batchTimestampMs"] = planned_ms
    ends = [json.dumps({topic: end_of(scene, topic) for topic in json.loads(source)}) for source in sources]
    last.with_name(str(int(last.name) + 1)).write_text("\n".join([version, json.dumps(plan), *ends]))
    return planned_ms


def end_of(scene: Scene, topic: str) -> dict[str, int]:
    tail = Tail(scene.broker.bootstrap_servers, topic, "read_committed")
    try:
        return tail.ends()
    finally:
        tail.close()


def test_hundreds_of_time_outs_expire_while_no_monitor_runs(scene: Scene, report: Report) -> None:
    queues = [f"many-{number}" for number in range(300)]
    with scene.monitored.activations() as activations:
        scene.monitored.arrive(*queues)
        for queue in queues:
            scene.history.sent[queue]["queue-arrivals"].append({"queue": queue})
        wait_for_more(activations, dict.fromkeys(queues, 0))
        assert scene.monitor.stop() == 0
        stopped_s = time.monotonic()
        activations.read_all()
        before = activations.counts()
        wait_until(lambda: time.monotonic() > stopped_s + 2 * T_S, DEADLINE_S, "the end of all time-outs")
        scene.start()
        back_s = time.monotonic()
        wait_for_more(activations, before)
        outcome = scene.finish("down while 300 time-outs expire", 1, report)
        # After the start they expire again, once every T.
        most = 2 + (time.monotonic() - back_s) / T_S
        activations.read_all()
        after = activations.counts()
        assert all(after[queue] - before[queue] <= most for queue in queues), "at most one notification for each T"
        reasons = {
            json.loads(record.value)["reason"] for record in activations.records_of(queues[0])[before[queues[0]] :]
        }
    assert reasons == {"TIMEOUT_EXPIRED"}
    assert outcome.due >= 2 * len(queues)


def wait_for_more(activations: Activations, before: Mapping[str, int]) -> None:
    """Waits until each of these queues has been activated once more."""

    def have_come() -> bool:
        now = activations.counts()
        return all(now[queue] > count for queue, count in before.items())

    wait_until(have_come, DEADLINE_S, "an activation of each")
