"""A monitor continues from a checkpoint of an older version, with the same number of shards or with another one.

tests/fixtures/make_checkpoint.py, which wrote the checkpoint, lists the state of each queue.
"""

import json
import shutil
from pathlib import Path

import pytest

from streaming.daemons.monitor.sole_monitor import GROUP_ID
from streaming.daemons.query.sole_program import checkpoint_of
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from tests.fixtures.make_checkpoint import PREFIX, STATE_PARTITIONS
from tests.support.monitor_topics import Tail
from tests.support.monitors import Monitored
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication

FIXTURES = Path(__file__).parents[1] / "fixtures"


def take_checkpoint(version: str, folder: Path, topic_prefix: str) -> None:
    """Copies a checkpoint, with this topic prefix in all names of topics, and without the ids of its own topics."""
    shutil.copytree(FIXTURES / f"checkpoint-{version}", folder)
    layout = folder / "queue-activation.json"
    layout.write_text(json.dumps(json.loads(layout.read_text()) | {"topic_ids": {}}))
    for path in (layout, *folder.glob("offsets/*"), *folder.glob("sources/*/*")):
        path.write_text(path.read_text().replace(PREFIX, topic_prefix))


def fill_topics(monitored: Monitored, checkpoint: Path) -> None:
    """Fills the topics up to the checkpoint's offsets. The monitor does not read these records again."""
    newest = max((checkpoint / "offsets").iterdir(), key=lambda path: int(path.name))
    for line in newest.read_text().splitlines()[2:]:
        for topic, ends in json.loads(line).items():
            for partition, end in ends.items():
                for _ in range(end):
                    monitored.producer.produce(topic, b"read before", partition=int(partition))
    monitored.producer.flush()


def test_a_procedure_that_0_2_0_had_given_up_is_tried_again(
    broker: SharedBroker, spark: SparkApplication, tmp_path: Path
) -> None:
    monitored = Monitored(broker.bootstrap_servers, tmp_path, [], spark)
    take_checkpoint("0.2.0", monitored.checkpoint, monitored.prefix)
    fill_topics(monitored, monitored.checkpoint)
    with monitored.running(), monitored.started_tasks() as tasks:
        [started] = tasks.wait_for("failed", 1)
    assert started["sequence"] == 1


@pytest.mark.parametrize("shards", [None, 3], ids=["same-shards", "other-shards"])
def test_the_state_in_a_checkpoint_of_0_1_0_is_kept(
    broker: SharedBroker, spark: SparkApplication, tmp_path: Path, shards: int | None
) -> None:
    options = ["--external-activation-timeout", "2m", "--transaction-lease", "1s"]
    monitored = Monitored(broker.bootstrap_servers, tmp_path, options, spark)
    older = tmp_path / "older" if shards else monitored.checkpoint
    take_checkpoint("0.1.0", older, monitored.prefix)
    fill_topics(monitored, older)
    if shards:
        options += ["--continue-from", str(older), "--shards", str(shards)]
    monitored.arrive("inactive", "silent", "waiting", "task")  # while no monitor runs
    tasks = Tail(monitored.bootstrap_servers, monitored.topics.tasks, "read_committed")
    with monitored.running(), monitored.activations() as activations, monitored.view() as view:
        for queue in ("inactive", "timed-out", "receiving", "transaction"):
            activations.wait_for(queue, 1)
        # Its time-out never expires, so it stays NOTIFIED.
        silent = view.wait_for("silent", lambda row: row["unread_messages"] == 2)
        waiting = view.wait_for("waiting", lambda row: row["unread_messages"] == 1)
        task = view.wait_for("task", lambda row: row["unread_messages"] == 2)
        found = {
            queue: [(record["sequence"], record["reason"]) for record in activations.of(queue)]
            for queue in ("inactive", "timed-out", "receiving", "transaction", "silent", "waiting")
        }
        started = list(tasks.records())
        place = Admin(Cluster(broker.bootstrap_servers, {})).members(monitored.prefix + GROUP_ID, 10)
    tasks.close()
    assert found == {
        "inactive": [(2, "MESSAGE_ARRIVED_ON_EMPTY_QUEUE")],
        "timed-out": [(2, "TIMEOUT_EXPIRED")],
        "receiving": [(2, "MESSAGES_ACCUMULATING")],
        "transaction": [(2, "MESSAGES_ACCUMULATING")],
        "silent": [],
        "waiting": [],
    }
    assert (silent["state"], waiting["tasks_waiting"], task["tasks_running"]) == ("NOTIFIED", 1, 1)
    assert started == [], "the running task was started again"
    # The checkpoint of 0.1.0 has no id of the project's; the id of Spark's query is used.
    spark_id = json.loads((older / "metadata").read_text())["id"]
    assert ([checkpoint_of(member) for member in place] == [spark_id]) == (shards is None)
    if shards is None:
        # The checkpoint's number, and not one that depends on this machine's cores.
        parts = {path.name for path in (monitored.checkpoint / "state" / "0").glob("[0-9]*")}
        assert parts == set(map(str, range(STATE_PARTITIONS)))
