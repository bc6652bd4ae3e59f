"""Services and conversations on the dashboard without Kafka: records in memory, and pages as a browser gets them."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from confluent_kafka import Message
from starlette.types import Message as Part

from streaming.cli.dashboard.contact import Contact
from streaming.cli.dashboard.conversation_pages import ConversationPages
from streaming.cli.dashboard.live_services import LiveServices
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.server import Build, Dashboard, Entry, News, application
from streaming.cli.dashboard.service_pages import ServicePages
from streaming.kafka.clients import Cluster
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.service_views import EndpointRow, TransmissionRow
from streaming.wire.topics import Topics

CLUSTER = Cluster("127.0.0.1:1", {})


def record(key: str, value: bytes | None) -> Message:
    """Returns a record of any topic, of the first millisecond of 1970."""
    return Message(topic="", partition=0, offset=0, key=key.encode(), value=value, timestamp=(1, 1))


def live_services(
    commands: Iterable[ServiceCommand] = (),
    endpoints: Iterable[EndpointRow] = (),
    held: Iterable[TransmissionRow] = (),
    *,
    is_complete: bool = True,
) -> LiveServices:
    """Returns the live view after it has read these records."""
    live = LiveServices(Contact(CLUSTER, Topics()), CLUSTER, Topics())
    with live.read() as found:
        for command in commands:
            found.take_command(record(command.database, msgspec.json.encode(command)))
        for row in endpoints:
            found.endpoints.take(record(_key(row), msgspec.json.encode(row)))
        for each in held:
            found.held.take(record(_key(each), msgspec.json.encode(each)))
        found.is_complete = is_complete
    return live


def _key(row: EndpointRow | TransmissionRow) -> str:
    return f"{row.conversation_id}/{'initiator' if row.is_initiator else 'target'}"


def entries_of(live: LiveServices) -> list[Entry]:
    """Returns the pages that need no Kafka."""
    conversations = ConversationPages(live)
    return [
        Entry("/services", ServicePages(LiveView(CLUSTER, Topics()), live).services, "Services"),
        Entry("/conversations", conversations.conversations, "Conversations"),
        Entry("/transmissions", conversations.transmissions),
    ]


def html(live: LiveServices, path: str, query: str = "") -> str:
    """Returns a page as a browser gets it."""
    return _answer(entries_of(live), path, query)


def html_of(build: Build) -> str:
    """Returns one page as a browser gets it."""
    return _answer([Entry("/", build)], "/", "")


def _answer(entries: list[Entry], path: str, query: str) -> str:
    app = application(Dashboard(entries, lambda: 0, News), ["*"], None, is_secure=False)
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (b"accept", b"text/html")],
        "root_path": "",
    }
    sent: list[Part] = []

    async def receive() -> Part:
        return {"type": "http.request"}

    async def send(part: Part) -> None:
        sent.append(part)

    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 200
    return b"".join(part.get("body", b"") for part in sent[1:]).decode()
