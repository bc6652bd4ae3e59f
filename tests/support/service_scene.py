"""A scene for tests of services: databases, services and routes by commands, programs that send, queues that are read.

The router, the transport and, if a test needs it, the monitor are processes as a user starts them.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from confluent_kafka import Message

from tests.support.killable_programs import Program
from tests.support.shell import Shell
from tests.support.transporting import Scene, headers_of

ORDERS, RESERVE = "//shop/orders", "//stock/reserve"


class ServiceScene(Scene):
    """Two databases: shop with the service ORDERS, and stock with RESERVE, each with a queue of its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.admin.create_topics(self.topics.specs(), 1, 1)
        self.shell = Shell(self.bootstrap_servers, self.prefix)
        self.orders, self.reserve = self.create_queue("orders"), self.create_queue("reserve")
        self._producer = self.cluster.producer({"linger.ms": 5, "enable.idempotence": True})

    def define(self) -> None:
        """Creates both databases and their services."""
        for database, service, queue in (("shop", ORDERS, self.orders), ("stock", RESERVE, self.reserve)):
            self.shell.run("database", "create", database)
            self.shell.run("service", "create", service, "--database", database, "--queue", queue)

    def program(self, name: str, *options: str) -> Program:
        """Returns a router, a transport or a monitor, which is not started."""
        connection = ["--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", self.prefix]
        if name == "transport":
            return Program(name, [*connection, *options], f"{name} ready", self.folder)
        connection += ["--checkpoint-location", str(self.folder / f"checkpoint-{name}")]
        return Program(name, [*connection, *options], f"{name} ready", self.folder, application=self.application)

    @contextmanager
    def running(self, *programs: Program) -> Iterator[None]:
        """Runs programs, which must end with code 0 at the end of the block."""
        with ExitStack() as stack:
            for program in programs:
                program.start()
                stack.callback(stop_and_show, program)
            for program in programs:
                program.wait_until_ready()
            yield
            codes = {program.name: program.stop() for program in programs}
        assert set(codes.values()) == {0}, codes

    def say(self, kind: str, conversation_id: str, body: bytes | None = None, **fields: Any) -> None:
        """Sends a statement of the initiator, or with `is_initiator=False` of the target, as a program does."""
        is_initiator = fields.get("is_initiator", True)
        sides = [(ORDERS, "shop"), (RESERVE, "stock")]
        (from_service, database), (to_service, _) = sides if is_initiator else sides[::-1]
        envelope = {
            "type": kind,
            "conversation_id": conversation_id,
            "is_initiator": is_initiator,
            "from_service": from_service,
            "from_database": database,
            "to_service": to_service,
        }
        value = json.dumps(envelope | fields).encode()
        self.produce(self.topics.service_messages, body, conversation_id.encode(), [("envelope", value)])

    def produce(
        self, topic: str, value: bytes | None, key: bytes, headers: Sequence[tuple[str, str | bytes | None]]
    ) -> None:
        """Sends a record."""
        while True:
            try:
                self._producer.produce(topic, value, key, headers=[*headers])
            except BufferError:
                self._producer.poll(0.1)
            else:
                break
        self._producer.poll(0)

    def flush(self) -> None:
        """Waits until Kafka has all statements."""
        assert self._producer.flush(30) == 0

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """Returns what `list --json` shows of databases, services or routes."""
        return [json.loads(line) for line in self.shell.run(kind, "list", "--json").splitlines()]

    def rows(self, topic: str) -> dict[str, dict[str, Any]]:
        """Returns the rows of a view by their keys."""
        found: dict[str, dict[str, Any]] = {}
        for message in self.read(topic, 0):
            key = (message.key() or b"").decode()
            value = message.value()
            if value is None:
                found.pop(key, None)
            else:
                found[key] = json.loads(value)
        return found


def new_id() -> str:
    """Returns the id of a new conversation."""
    return str(uuid.uuid4())


def seen(messages: Sequence[Message]) -> dict[str, list[tuple[str | None, bytes | None]]]:
    """Returns conversation -> sequence number and body of its messages, in order."""
    found: dict[str, list[tuple[str | None, bytes | None]]] = {}
    for message in messages:
        headers = headers_of(message)
        entry = headers.get("message_sequence_number"), message.value()
        found.setdefault(headers["conversation_id"], []).append(entry)
    return found


def stop_and_show(program: Program) -> None:
    """Ends a program, and prints its log for the case that the test fails."""
    if program.process is not None:
        program.process.stop(10)
        print(f"--- {program.name}\n{program.log_file.read_text()}")  # noqa: T201
