"""The records that the monitor writes: every field and header of the contract."""

import uuid
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from streaming.core.activation import snapshot
from streaming.core.times import iso_time
from streaming.spark.activation.sources import Source
from tests.support.fake_spark import (
    SETTINGS,
    FakeGroupState,
    FakeShard,
    Output,
    Record,
    activations,
    arrival,
    command,
    of_topic,
    receive,
    record,
)
from tests.support.histories import SECOND, T, W

START = 1_700_000_000_123  # 2023-11-14T22:13:20.123Z
BACK = START - 3_600_000  # the wall clock was set back by an hour
NAMESPACE = uuid.UUID("6f0c9f0e-7f0b-5c0e-9a5e-9f2f0d1c7a11")


TAKEN = receive("MESSAGES", messages=1, transaction_id="t")
GIVEN_BACK = replace(TAKEN, value=b'{"type":"ROLLBACK","queue":"Q","session_id":"r","transaction_id":"t"}')


def rows(outputs: list[Output]) -> dict[str, dict[str, Any]]:
    found = {}
    for one in of_topic(outputs, "queue-monitors"):
        assert one.key is not None
        if one.value is not None:
            found[one.key.decode()] = one.json
    return found


class TestActivations:
    def test_every_field_and_header(self) -> None:
        shard = FakeShard()
        shard.batch(START, command("CREATE_QUEUE"), command("CREATE_EVENT_NOTIFICATION", notification="n", service="s"))
        # The shard's clock stays at START, and the wall clock goes on from BACK.
        [written] = activations(shard.batch(BACK, receive("WAITING", where=True), arrival(count=3)))

        assert shard.clock_ms == START
        assert written.topic == "queue-activations"
        assert written.key == b"Q"
        value = written.json
        notification_id = value.pop("notification_id")
        assert str(uuid.UUID(notification_id)) == notification_id
        assert uuid.UUID(notification_id).version == 5
        assert uuid.UUID(notification_id).variant == uuid.RFC_4122
        assert value == {
            "EventType": "QUEUE_ACTIVATION",
            "PostTime": "2023-11-14T21:13:20.123Z",
            "SPID": 0,
            "ServerName": "server",
            "LoginName": "sa",
            "UserName": "dbo",
            "DatabaseName": "database",
            "SchemaName": "dbo",
            "ObjectName": "Q",
            "ObjectType": "QUEUE",
            "queue": "Q",
            "notification": "n",
            "service": "s",
            "sequence": 1,
            "reason": "MESSAGE_ARRIVED_ON_EMPTY_QUEUE",
            "unread_messages": 3,
            "tasks_waiting": 1,
            "expires_at": "2023-11-14T21:13:50.123Z",
        }
        assert written.headers == {
            "ce_specversion": b"1.0",
            "ce_id": notification_id.encode(),
            "ce_source": b"/server",
            "ce_type": b"queue.activation.v1",
            "ce_subject": b"Q",
            "ce_time": b"2023-11-14T21:13:20.123Z",
            "content-type": b"application/json",
        }

    def test_ids_differ_when_a_sequence_begins_again_within_a_batch(self) -> None:
        create = [command("CREATE_QUEUE"), command("CREATE_EVENT_NOTIFICATION", notification="n"), arrival()]
        written = activations(
            FakeShard().batch(START, *create, *[TAKEN, GIVEN_BACK] * 5, command("DROP_QUEUE"), *create)
        )
        assert [one.json["EventType"] for one in written] == ["BROKER_QUEUE_DISABLED", "QUEUE_ACTIVATION"]
        assert [one.json["sequence"] for one in written] == [1, 1]
        assert len({one.json["notification_id"] for one in written}) == 2

    @pytest.mark.parametrize("notifications", [[], ["n"], ["n", "m"]])
    def test_a_disabled_queue(self, notifications: list[str]) -> None:
        shard = FakeShard()
        shard.batch(START, command("CREATE_QUEUE"), arrival(count=4))
        shard.batch(START, *(command("CREATE_EVENT_NOTIFICATION", notification=name) for name in notifications))
        written = activations(shard.batch(START + SECOND, *[TAKEN, GIVEN_BACK] * 5))

        expected: list[str | None] = [*notifications] or [None]
        assert [one.json["notification"] for one in written] == expected
        for one in written:
            assert one.headers["ce_type"] == b"queue.disabled.v1"
            assert one.json["EventType"] == "BROKER_QUEUE_DISABLED"
            assert one.json["sequence"] == (2 if notifications else 1)
            assert (one.json["reason"], one.json["expires_at"], one.json["service"]) == (None, None, None)

    @pytest.mark.parametrize(
        ("queue", "parts"),
        [
            ("orders", ("database", "dbo", "orders")),
            ("sales.orders", ("database", "sales", "orders")),
            ("shop.sales.orders", ("shop", "sales", "orders")),
            ("Käse \N{GRINNING FACE}", ("database", "dbo", "Käse \N{GRINNING FACE}")),
        ],
    )
    def test_the_parts_of_a_name(self, queue: str, parts: tuple[str, str, str]) -> None:
        outputs = FakeShard().batch(START, arrival(queue))
        [written] = activations(outputs)
        assert (written.key, written.headers["ce_subject"]) == (queue.encode(), queue.encode())
        assert written.json["queue"] == queue
        assert tuple(written.json[field] for field in ("DatabaseName", "SchemaName", "ObjectName")) == parts
        row = rows(outputs)[queue]
        assert tuple(row[field] for field in ("database_name", "schema_name", "queue_name")) == parts

    def test_copies_share_the_sequence_and_differ_in_the_notification(self) -> None:
        shard = FakeShard()
        shard.batch(START, command("CREATE_EVENT_NOTIFICATION", notification="n", service="s"))
        first, second = activations(shard.batch(START, arrival()))
        assert {first.json["notification"], second.json["notification"]} == {"default", "n"}
        assert first.json["notification_id"] != second.json["notification_id"]
        assert first.json["sequence"] == second.json["sequence"] == 1

    @pytest.mark.parametrize("seed", range(5))
    def test_ids_are_unique_and_the_same_in_a_replay(self, seed: int) -> None:
        shard = FakeShard()
        seen: set[str] = set()
        for batch_ms, records in random_batches(Random(seed)):  # noqa: S311  (no secret)
            before, offset = shard.state.value, shard.offset
            written = activations(shard.batch(batch_ms, *records))
            replay = FakeShard(state=FakeGroupState(before), offset=offset)
            assert activations(replay.batch(batch_ms, *records)) == written
            ids = [one.json["notification_id"] for one in written]
            assert len(set(ids)) == len(ids)
            assert seen.isdisjoint(ids)
            seen.update(ids)
        assert len(seen) > 20

    def test_ids_differ_from_server_to_server(self) -> None:
        other = replace(SETTINGS, server_name="other")
        ids = {activations(FakeShard(one).batch(0, arrival()))[0].headers["ce_id"] for one in (SETTINGS, other)}
        assert len(ids) == 2

    @pytest.mark.parametrize("batch_ms", range(START, START + 50))
    def test_an_id_is_the_uuid_of_a_name_so_that_every_version_gives_the_same(self, batch_ms: int) -> None:
        [written] = activations(FakeShard().batch(batch_ms, arrival(queue="Qü")))
        name = f'["server","Qü","default",1,{batch_ms},0]'
        assert written.json["notification_id"] == str(uuid.uuid5(NAMESPACE, name))


def random_batches(random: Random) -> list[tuple[int, list[Record]]]:
    """Returns batches that create, activate and drop queues, within one batch and over many. The wall clock jumps."""
    batches, wall_ms = [], START
    for _ in range(100):
        wall_ms += random.choice((0, 1, 1_000, 6_000, 31_000, -5_000))
        kinds = [
            arrival(random.choice("ab")),
            arrival("a", count=2),
            receive("MESSAGES", "a", messages=1, transaction_id="t"),
            receive("EMPTY", "b", unread=0),
            command("DROP_QUEUE", random.choice("ab")),
            command("CREATE_QUEUE", "a"),
            command("CREATE_EVENT_NOTIFICATION", "a", notification="n"),
        ]
        batches.append((wall_ms, random.choices(kinds, k=random.randint(0, 4))))
    return batches


class TestTasks:
    CLAUSE = {"procedure_name": "p", "max_queue_readers": 2, "execute_as": "me"}  # noqa: RUF012

    def started(self) -> tuple[FakeShard, list[Output]]:
        """Returns a shard and its output: a task, started while the wall clock is an hour behind the shard's clock."""
        shard = FakeShard()
        shard.batch(START, command("CREATE_QUEUE", "sales.Q", activation=self.CLAUSE))
        return shard, shard.batch(BACK, arrival("sales.Q", count=3))

    def test_every_field(self) -> None:
        _, outputs = self.started()
        [start], [row] = of_topic(outputs, "queue-tasks"), of_topic(outputs, "queue-activated-tasks")
        task_id = start.json["task_id"]
        # The id is made from a name, so a batch that runs again starts the same task, also with another version.
        name = f'["server","sales.Q",1,{BACK}]'
        assert task_id == str(uuid.uuid5(NAMESPACE, name))
        assert (start.key, row.key) == (b"sales.Q", task_id.encode())
        assert start.json == {
            "type": "START_ACTIVATED_TASK",
            "queue": "sales.Q",
            "task_id": task_id,
            "procedure_name": "p",
            "execute_as": "me",
            "sequence": 1,
            "expires_at": "2023-11-14T21:14:20.123Z",
            "reason": "MESSAGE_ARRIVED_ON_EMPTY_QUEUE",
            "unread_messages": 3,
            "tasks_waiting": 0,
        }
        assert row.json == {
            "task_id": task_id,
            "database_name": "database",
            "schema_name": "sales",
            "queue_name": "Q",
            "queue": "sales.Q",
            "procedure_name": "p",
            "execute_as": "me",
            "sequence": 1,
            "host": None,
            "is_confirmed": False,
            "start_time": "2023-11-14T21:13:20.123Z",
        }
        assert activations(outputs) == [], "the queue has no event notification"

    def test_the_view_of_running_tasks_follows_the_reports_of_the_host(self) -> None:
        shard, outputs = self.started()
        task_id = of_topic(outputs, "queue-tasks")[0].json["task_id"]
        alive = task("TASK_STARTED", "sales.Q", task_id=task_id, host="here")
        for expected in ([(True, "here")], []):  # written once, not with every repeat
            outputs = shard.batch(BACK + SECOND, alive)
            rows = of_topic(outputs, "queue-activated-tasks")
            assert [(one.json["is_confirmed"], one.json["host"]) for one in rows] == expected
            assert of_topic(outputs, "queue-tasks") == []
        [tombstone] = of_topic(
            shard.batch(BACK + 2 * SECOND, task("TASK_EXITED", "sales.Q", task_id=task_id, exit_code=0)),
            "queue-activated-tasks",
        )
        assert (tombstone.key, tombstone.value) == (task_id.encode(), None)

    def test_a_task_leaves_the_view_with_its_queue(self) -> None:
        shard, outputs = self.started()
        task_id = of_topic(outputs, "queue-tasks")[0].json["task_id"]
        [tombstone] = of_topic(shard.batch(BACK + SECOND, command("DROP_QUEUE", "sales.Q")), "queue-activated-tasks")
        assert (tombstone.key, tombstone.value) == (task_id.encode(), None)

    def test_tasks_and_notifications_share_the_sequence(self) -> None:
        shard = FakeShard()
        create = command("CREATE_QUEUE", activation=self.CLAUSE)
        shard.batch(START, create, command("CREATE_EVENT_NOTIFICATION", notification="n"))
        outputs = shard.batch(START, arrival())
        assert [one.json["sequence"] for one in (*of_topic(outputs, "queue-tasks"), *activations(outputs))] == [1, 1]

    def test_a_task_started_again_has_another_id_and_the_same_one_in_a_replay(self) -> None:
        shard, ids = FakeShard(), []
        shard.batch(START, command("CREATE_QUEUE", activation=self.CLAUSE), arrival())
        for failed_s, again_s in ((0, 5), (10, 20), (30, 50)):  # after 5 s, then each time after twice as long
            [row] = rows_of_tasks(shard)
            ids.append(row)
            failed = task("TASK_FAILED_TO_START", task_id=row)
            shard.batch(START + failed_s * SECOND, failed)
            before = shard.state.value
            outputs = shard.batch(START + again_s * SECOND)
            again = FakeShard(state=FakeGroupState(before)).batch(START + again_s * SECOND)
            assert of_topic(again, "queue-tasks") == of_topic(outputs, "queue-tasks") != []
        assert len(set(ids)) == 3


def task(kind: str, queue: str = "Q", **more: object) -> Record:
    return record(Source.RECEIVES, {"type": kind, "queue": queue} | more)


def seen(unread: int = 0, received: int = 0) -> Record:
    value = {"type": "OBSERVED", "queue": "Q", "unread": unread, "one_more": False, "members": 1, "received": received}
    return record(Source.RECEIVES, value)


def rows_of_tasks(shard: FakeShard) -> list[str]:
    """Returns the ids of the tasks that the state of a shard counts as running in `Q`."""
    _, blob = shard.queues()["Q"]
    return list(snapshot.restore(msgspec.msgpack.decode(blob), SETTINGS.core).tasks.running)


class TestMonitors:
    def test_every_field(self) -> None:
        shard = FakeShard()
        clause = {"procedure_name": "p", "max_queue_readers": 3}
        shard.batch(START, command("CREATE_QUEUE", "shop.dbo.Q", activation=clause))
        shard.batch(START, command("CREATE_EVENT_NOTIFICATION", "shop.dbo.Q", notification="n"))
        shard.batch(START + SECOND, arrival("shop.dbo.Q", count=9))
        shard.batch(START + 2 * SECOND, receive("EMPTY", "shop.dbo.Q"))
        shard.batch(START + 3 * SECOND, receive("WAITING", "shop.dbo.Q", where=True, timeout_ms=90_000))
        # The wall clock was set back by an hour. All times in the row follow its new setting.
        outputs = shard.batch(BACK, command("ALTER_QUEUE", "shop.dbo.Q", poison_message_handling="OFF"))

        [written] = of_topic(outputs, "queue-monitors")
        assert written.key == b"shop.dbo.Q"
        assert written.json == {
            "database_name": "shop",
            "schema_name": "dbo",
            "queue_name": "Q",
            "state": "RECEIVES_OCCURRING",
            "last_empty_rowset_time": "2023-11-14T21:13:19.123Z",
            "last_activated_time": "2023-11-14T21:13:18.123Z",
            "tasks_waiting": 1,
            "unread_messages": 9,
            "tasks_running": 1,
            "task_limit_reached": 0,
            "is_procedure_failed": False,
            "max_queue_readers": 3,
            "is_receive_enabled": True,
            "is_activation_enabled": True,
            "activation_sequence": 1,
            "next_check_time": "2023-11-14T21:13:24.123Z",
            "update_time": "2023-11-14T21:13:20.123Z",
            "hindrance": "QUIET_WINDOW",
            "quiet_since": "2023-11-14T21:13:19.123Z",
            "quiet_until": "2023-11-14T21:13:24.123Z",
            "tasks_waiting_where": 1,
        }

    def test_how_often_tasks_have_failed_since_when_and_when_the_next_one_starts(self) -> None:
        shard = FakeShard()
        clause = {"procedure_name": "p", "max_queue_readers": 1}
        shard.batch(START, command("CREATE_QUEUE", activation=clause), arrival())
        [first] = rows_of_tasks(shard)
        shard.batch(START + SECOND, task("TASK_EXITED", task_id=first, exit_code=1))
        shard.batch(START + 6 * SECOND)
        [second] = rows_of_tasks(shard)
        row = rows(shard.batch(START + 7 * SECOND, task("TASK_EXITED", task_id=second, exit_code=1)))["Q"]
        assert (row["task_failures"], row["is_procedure_failed"]) == (2, True)
        assert row["task_failure"] == "it exited without calling RECEIVE, with exit code 1"
        assert (row["failing_since"], row["failing_procedure"]) == (iso_time(START + SECOND), "p")
        assert row["next_start_time"] == iso_time(START + 17 * SECOND)
        row = rows(shard.batch(START + 8 * SECOND, receive("MESSAGES", messages=1)))["Q"]
        assert not {"task_failures", "task_failure", "failing_since", "next_start_time"} & row.keys()

    def test_what_an_observer_says_and_since_when_it_is_silent(self) -> None:
        shard = FakeShard()
        report = {"type": "OBSERVED", "queue": "Q", "unread": 5, "one_more": True, "members": 2}
        row = rows(shard.batch(START, record(Source.RECEIVES, report, timestamp_ms=START)))["Q"]
        assert (row["members"], row["one_more"], row["unread_messages"]) == (2, True, 5)
        assert "observer_silent_since" not in row
        row = rows(shard.batch(START + W + SECOND))["Q"]
        assert (row["members"], row["observer_silent_since"]) == (2, iso_time(START))
        assert "one_more" not in row

    def test_since_when_a_group_is_idle_and_when_it_last_committed_if_an_observer_says_so(self) -> None:
        shard = FakeShard()
        row = rows(shard.batch(START, seen(unread=2)))["Q"]
        assert (row["members"], row["one_more"]) == (1, False)
        assert not {"last_commit_time", "idle_since"} & row.keys()
        shard.batch(START + SECOND, seen(received=2))
        row = rows(shard.batch(START + 3 * SECOND, seen()))["Q"]
        assert (row["last_commit_time"], row["idle_since"]) == (iso_time(START + SECOND),) * 2
        row = rows(shard.batch(START + 60 * SECOND))["Q"]
        assert (row["last_commit_time"], row.keys() & {"one_more", "idle_since"}) == (iso_time(START + SECOND), set())

    def test_a_queue_that_is_off(self) -> None:
        shard = FakeShard()
        shard.batch(START, command("CREATE_QUEUE"), arrival(count=2))
        row = rows(shard.batch(START + SECOND, command("ALTER_QUEUE", status="OFF")))["Q"]
        assert (row["state"], row["is_receive_enabled"], row["is_activation_enabled"]) == (None, False, False)
        assert (row["next_check_time"], row["last_activated_time"], row["last_empty_rowset_time"]) == (None,) * 3
        assert (row["unread_messages"], row["max_queue_readers"]) == (2, None)

    @pytest.mark.parametrize(
        ("records", "state", "next_check_ms"),
        [
            ([], "INACTIVE", None),
            ([arrival()], "NOTIFIED", T),
            ([arrival(count=9), receive("MESSAGES", messages=1)], "NOTIFIED", T),
            ([receive("EMPTY"), receive("WAITING", timeout_ms=7_000)], "INACTIVE", 7_000),
        ],
    )
    def test_state_and_next_check(self, records: list[Record], state: str, next_check_ms: int | None) -> None:
        shard = FakeShard()
        row = rows(shard.batch(0, command("CREATE_EVENT_NOTIFICATION", notification="n"), *records))["Q"]
        expected = None if next_check_ms is None else f"1970-01-01T00:00:{next_check_ms // SECOND:02}.000Z"
        assert (row["state"], row["next_check_time"]) == (state, expected)

    def test_a_dropped_queue_is_a_tombstone(self) -> None:
        shard = FakeShard()
        shard.batch(START, arrival())
        assert shard.batch(START + W, command("DROP_QUEUE")) == [Output("queue-monitors", b"Q", None, {})]
