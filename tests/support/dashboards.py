"""The dashboard without Kafka: rows of a view in memory, and requests to the application without a socket."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

from streaming.cli.dashboard.activations import of_notification
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.pages import QueuePages
from streaming.cli.dashboard.server import Dashboard, Entry, News, application
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.core.times import iso_time
from streaming.kafka.clients import Cluster
from streaming.system import wall_clock
from streaming.wire.notifications import Activation
from streaming.wire.topics import Topics

HOSTILE = "<script>alert(1)</script>"
NAMES = ["localhost", "127.0.0.1", "[::1]", "::1"]


def row(queue: str, **fields: Any) -> dict[str, Any]:
    """Returns a row of the monitors view: a queue with one unread message that was never activated."""
    values: dict[str, Any] = {
        "database_name": "kafka",
        "schema_name": "dbo",
        "queue_name": queue,
        "state": "RECEIVES_OCCURRING",
        "last_empty_rowset_time": None,
        "last_activated_time": None,
        "tasks_waiting": 0,
        "unread_messages": 1,
        "tasks_running": 0,
        "task_limit_reached": 0,
        "is_procedure_failed": False,
        "max_queue_readers": None,
        "is_receive_enabled": True,
        "is_activation_enabled": False,
        "activation_sequence": 0,
        "next_check_time": None,
        "update_time": iso_time(wall_clock.now_ms()),
    }
    return values | fields


def activation(queue: str, **fields: Any) -> dict[str, Any]:
    """Returns the value of a notification: the first of a queue, because a message has arrived."""
    values: dict[str, Any] = {
        "EventType": "QUEUE_ACTIVATION",
        "PostTime": iso_time(wall_clock.now_ms()),
        "queue": queue,
        "notification_id": "id",
        "sequence": 1,
        "unread_messages": 1,
        "tasks_waiting": 0,
        "notification": "default",
        "reason": "MESSAGE_ARRIVED_ON_EMPTY_QUEUE",
    }
    return values | fields


class RowsInMemory(LiveView):
    """The rows that a test gives, as if they had been read."""

    def __init__(
        self,
        rows: list[dict[str, Any]],
        activations: list[Activation] | None = None,
    ) -> None:
        super().__init__(Cluster("127.0.0.1:1", {}), Topics(""))
        self.found: tuple[Present, Sequence[str]] = NOBODY_MISSING, ()
        self.unfinished.clear()
        self._monitors.rows = {each["queue_name"]: each for each in rows}
        for each in activations or []:
            self._activations.take(of_notification(each))

    def programs(self) -> tuple[Present, Sequence[str]]:
        return self.found


def application_of(
    view: RowsInMemory, token: str | None = None, *, is_secure: bool = False, news: News | None = None
) -> ASGIApp:
    """Returns the application with the pages that need no Kafka."""
    pages = QueuePages(view)
    entries = [
        Entry("/", pages.queues, "Queues", needs_monitor=True),
        Entry("/activity", pages.activity, "Activity", needs_monitor=True),
    ]
    dashboard = Dashboard(entries, lambda: view.version, lambda: news or News(view.problem))
    return application(dashboard, NAMES, token, is_secure=is_secure)


@dataclass(frozen=True)
class Answer:
    """The answer to a request; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str


def ask(app: ASGIApp, target: str = "/", *, method: str = "GET", body: str = "", **headers: str) -> Answer:
    """Sends one request as a browser does; `_` in the names of headers stands for `-`."""
    path, _, query = target.partition("?")
    given = {"host": "127.0.0.1:8466", "accept": "text/html"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("utf-8")) for name, value in given.items()],
        "server": ("127.0.0.1", 8466),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
    sent: list[Message] = []
    bodies: list[Message] = [{"type": "http.request", "body": body.encode(), "more_body": False}]

    async def receive() -> Message:
        if bodies:
            return bodies.pop()
        return await asyncio.Future()  # the reader stays connected, and says nothing more

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        await app(scope, receive, send)

    asyncio.run(run())
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, b"".join(part.get("body", b"") for part in sent[1:]).decode())
