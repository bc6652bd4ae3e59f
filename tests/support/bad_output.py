"""Random records, valid and invalid, for the topics that monitor and activator write and other programs read."""

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.json_fuzzer import JsonFuzzer

# The queue of good records. Each program must accept them, whatever records are between them.
GOOD = "good"
QUEUES = [f"q{number}" for number in range(100)] + ["[/x]", "[bold]", "Ünicode.😀", ".".join(["\U0010ffff" * 128] * 3)]
TOPICS = ("queue-activations", "queue-monitors", "queue-tasks", "queue-activated-tasks", "queue-activators")
_EVENTS = {"QUEUE_ACTIVATION": "queue.activation.v1", "BROKER_QUEUE_DISABLED": "queue.disabled.v1"}
_EXTENSIONS = ("notification", "service", "sequence", "reason", "unread_messages", "tasks_waiting", "expires_at")
_TIME = "2026-01-01T00:00:00.000Z"


@dataclass(frozen=True)
class OutputRecord:
    """A record of one of TOPICS, with the methods of confluent-kafka's records."""

    topic_: str
    key_: bytes | None
    value_: bytes | None
    headers_: tuple[tuple[str, bytes | None], ...] = ()
    offset_: int = 0

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self.headers_) or None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def error(self) -> None:
        return None


class OutputFuzzer(JsonFuzzer):
    """Random records of a topic. Only `good` makes records about the queue GOOD."""

    def good(self, topic: str, number: int, offset: int = 0) -> OutputRecord:
        """Returns a valid record about the queue GOOD with `number` as its sequence."""
        fields = valid_fields(topic, GOOD, number)
        return OutputRecord(topic, key_of(topic, fields).encode(), json.dumps(fields).encode(), offset_=offset)

    def record(self, topic: str, offset: int = 0) -> OutputRecord:
        """Returns a random record, valid or not."""
        random = self.random
        queue = random.choice(QUEUES)
        fields = valid_fields(topic, queue, random.choice((1, 2, 3, 2**40)))
        if "task_id" in fields:
            fields["task_id"] = f"task-{random.randrange(300)}"
        key: bytes | None = key_of(topic, fields).encode()
        if random.random() < 0.1:
            key = random.choice((None, b"", b"\xff", b"k" * 5_000, b"\0", key and key + b"x"))
        if topic == "queue-activations" and random.random() < 0.3:
            return OutputRecord(topic, key, b"<EVENT_INSTANCE/>", tuple(self._headers(fields)), offset)
        return OutputRecord(topic, key, self.any_value(fields), (), offset)

    def _headers(self, fields: dict[str, Any]) -> list[tuple[str, bytes | None]]:
        """Returns the headers that a notification in XML has, a few of them odd."""
        random = self.random
        texts = {"type": _EVENTS[fields["EventType"]], "time": fields["PostTime"], "subject": fields["queue"]}
        texts |= {"id": fields["notification_id"]}
        texts |= {name.replace("_", ""): str(fields[name]) for name in _EXTENSIONS if fields[name] is not None}
        headers: list[tuple[str, bytes | None]] = [("content-type", b"application/xml")]
        headers += [(f"ce_{name}", text.encode()) for name, text in texts.items()]
        for _ in range(random.choice((0, 0, 1, 2))):
            at = random.randrange(len(headers))
            name, value = headers[at]
            odd = random.choice((None, b"", b"\xff", self.some_bytes(value or b"x"), b"9" * 5_000, b"-1", b"1.5"))
            headers[at] = (name, odd) if random.random() < 0.8 else (name.upper(), value)
        return headers


def key_of(topic: str, fields: dict[str, Any]) -> str:
    """Returns the key of a valid record."""
    if topic == "queue-activators":
        return f"{fields['activator']}/{fields['queue']}"
    return str(fields["task_id" if topic == "queue-activated-tasks" else "queue"])


def valid_fields(topic: str, queue: str, sequence: int) -> dict[str, Any]:
    """Returns the fields of a record that the monitor, or an activator, writes to a topic."""
    names = {"database_name": "kafka", "schema_name": "dbo", "queue_name": queue}
    if topic == "queue-activations":
        return {
            "EventType": "QUEUE_ACTIVATION", "PostTime": _TIME, "SPID": 0, "ServerName": "s", "LoginName": "sa",
            "UserName": "dbo", "DatabaseName": "kafka", "SchemaName": "dbo", "ObjectName": queue,
            "ObjectType": "QUEUE", "queue": queue, "notification": "default", "service": None,
            "notification_id": f"{queue} {sequence}", "sequence": sequence,
            "reason": "MESSAGE_ARRIVED_ON_EMPTY_QUEUE", "unread_messages": 1, "tasks_waiting": 0,
            "expires_at": None,
        }  # fmt: skip
    if topic == "queue-monitors":
        return names | {
            "state": "NOTIFIED", "last_empty_rowset_time": None, "last_activated_time": _TIME, "tasks_waiting": 0,
            "unread_messages": 1, "tasks_running": 0, "task_limit_reached": 0, "is_procedure_failed": False,
            "max_queue_readers": None, "is_receive_enabled": True, "is_activation_enabled": False,
            "activation_sequence": sequence, "next_check_time": None, "update_time": _TIME, "queue": queue,
        }  # fmt: skip
    if topic == "queue-activators":
        held = {"notification_id": "n", "sequence": sequence, "why": "w"}
        return {
            "queue": queue, "activator": "a", "group_id": "g", "host": "h", "config_file": "/a.toml", "entry": "*",
            "refusal": None, "max": 3, "partitions": 2, "programs": [{"pid": 1, "start_time": _TIME}], "held": held,
            "crashes": 2, "backoff_until": _TIME, "gave_up_until": _TIME, "fatal_exit_code": 3,
            "exits_without_receive": sequence, "last_exit": {"at": _TIME, "how": "exit code 1"},
            "last": {"at": _TIME, "action": "held", "why": "w"}, "log_file": "/q.log", "last_line": "end",
        }  # fmt: skip
    task = {"queue": queue, "task_id": str(uuid.uuid4()), "procedure_name": "p", "execute_as": None}
    if topic == "queue-tasks":
        expires = datetime.now(UTC) + timedelta(hours=1)
        because = {"reason": "MESSAGE_ARRIVED_ON_EMPTY_QUEUE", "unread_messages": 3, "tasks_waiting": 0}
        decided = {"sequence": sequence, "expires_at": expires.isoformat()}
        return {"type": "START_ACTIVATED_TASK", **task, **decided, **because}
    return names | task | {"sequence": sequence, "host": "h", "is_confirmed": True, "start_time": _TIME}
