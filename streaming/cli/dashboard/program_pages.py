"""The pages about programs: running programs, held notifications, periodic tasks, connections, and dead letters."""

import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import structs
from starlette.datastructures import QueryParams

from streaming.cli import activators, dead_letters, maintenance, presence
from streaming.cli.activators import Told
from streaming.cli.dashboard.kept import Kept
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.server import Page, Part
from streaming.cli.diagnosis import diagnosis
from streaming.cli.monitor_rows import needs_host, observed
from streaming.core.texts import cut
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka import own_programs
from streaming.kafka.access import rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.last_records import last_records
from streaming.system import wall_clock
from streaming.system.logs import printable
from streaming.wire.service_maintenance import ProgramRow
from streaming.wire.topics import Topics

_EVERY_S = 5.0
_SHOWN_QUEUES = 200
# A dead letter has up to 256 KiB.
_SHOWN_LETTERS = 100
# As a user writes them, and as Kafka does.
_LOOPBACKS = ("localhost", "127.0.0.1", "::1", "0:0:0:0:0:0:0:1")
_LETTERS_OF = {"": "the monitor", "services": "the router and the transports"}


@dataclass(frozen=True)
class Program:
    """A kind of program.

    Attributes:
        name: Its name.
        group: The consumer group of its processes.
        hosts: The machine of each process: its address, or the name of this machine; None: not known.
        seen: The time of the last sign of life; None: not known.
        is_needed: Whether something is known to depend on the program.
        problem: The sentence about its fault; empty if no fault is known.
    """

    name: str
    group: str
    hosts: list[str] | None
    seen: str | None
    is_needed: bool
    problem: str = ""

    @property
    def state(self) -> str:
        """Returns the word for its state."""
        if self.hosts is None:
            return "unknown"
        if self.hosts:
            return "runs"
        return "does not run" if self.is_needed else "not needed"


def find(
    kafka: Cluster, topics: Topics, view: list[dict[str, Any]]
) -> tuple[list[Program], list[ProgramRow], list[Told]]:
    """Returns the kinds of programs, the rows of running programs, and all rows of the activators.

    Args:
        kafka: The cluster.
        topics: The topics.
        view: The monitors view.

    Raises:
        UserError: Kafka cannot be reached, or refuses.
    """
    told, rows = activators.read(kafka, topics), maintenance.read(kafka, topics)
    latest = [each for of_queue in told.values() for each in of_queue]
    needed = {"monitor"}
    needed |= {"host"} if any(map(needs_host, view)) else set()
    needed |= {"observer"} if any(map(observed, view)) else set()
    needed |= {"activator"} if any(each.row.entry is not None for each in latest) else set()
    needed |= {"router", "transport"} if diagnosis.needs_router(kafka, topics) else set()
    seen = {row.program: row.update_time for row in sorted(rows, key=lambda row: row.update_time)}
    if latest:
        seen["activator"] = iso_time(max(each.at_ms for each in latest))
    kinds = [_kind(kafka, topics, name, name in needed, seen.get(name)) for name in own_programs.PROGRAMS]
    # Last, so that the advice is given once, beside the program.
    told = activators.with_starts(kafka, topics, told)
    running = [row for row in rows if not maintenance.is_gone(row)]
    return kinds, running, [each for of_queue in told.values() for each in of_queue]


def _kind(kafka: Cluster, topics: Topics, name: str, is_needed: bool, seen: str | None) -> Program:
    group = topics.prefix + own_programs.PROGRAMS[name][0]
    try:
        hosts = sorted(_machine(kafka, each.host) for each in own_programs.members(kafka, topics, name))
        sign, problem = None, None
        has_signs = name in ("monitor", "router")
        if has_signs:
            sign = presence.last_sign(kafka, topics, name)
            seen = seen if sign is None else iso_time(sign.committed_ms)
        begins = presence.beginning(kafka, topics, name, sign)
        if hosts and has_signs:
            problem = begins or presence.lateness(name, sign, wall_clock.now_ms())
        elif not hosts and is_needed:
            problem = begins or own_programs.absence(kafka, topics, name)
        return Program(name, group, hosts, seen, is_needed, problem or "")
    except UserError as error:
        return Program(name, group, None, seen, is_needed, str(error))


def _machine(kafka: Cluster, address: str) -> str:
    """Returns the name of this machine, as its programs write it, for Kafka's address of it; otherwise the address."""
    is_here = address in _LOOPBACKS and kafka.bootstrap_servers.rpartition(":")[0].strip("[]") in _LOOPBACKS
    return socket.gethostname() if is_here else address


def letters(kafka: Cluster, topics: Topics, of: str) -> list[dict[str, Any]]:
    """Returns the last dead letters, newest first.

    Args:
        kafka: The cluster.
        topics: The topics.
        of: `services` for the dead letters of services; otherwise for the dead letters of the monitor.

    Raises:
        UserError: Kafka cannot be reached or denies access, or the topic is missing.
    """
    topic = topics.service_dead_letters if of else topics.dead_letters
    Admin(kafka).require_topics(rights(reads=[topic]))
    found = last_records(kafka, topic, 1, _SHOWN_LETTERS)
    return [dead_letters.decode(each) | (dead_letters.of_service(each) if of else {}) for each in reversed(found)]


class ProgramPages:
    """Builds the pages."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._kept = Kept(_EVERY_S, silent_since_ms=view.contact.silent_since_ms)

    def programs(self, query: QueryParams) -> Page:
        """Returns the page of programs and of the activators' work."""
        view, search = self._view, query.get("search", "")
        answer = self._kept.get("programs", lambda: find(view.cluster, view.topics, view.monitors()))
        kinds, running, told = answer.found
        rows = [each for each in without_shared_lines(told) if search.casefold() in each.row.queue.casefold()]
        rows.sort(key=lambda each: (not each.why(), each.row.queue))
        parts = [
            Part("programs", "programs.html", {"kinds": kinds, "rows": running}),
            Part("warnings", "warnings.html", {"warnings": answer.warnings}),
            Part("activators", "activators.html", {"rows": rows[:_SHOWN_QUEUES], "found": len(rows), "search": search}),
        ]
        return Page("Programs", parts, "activators_form.html", {"search": search})

    def maintenance(self, _: QueryParams) -> Page:
        """Returns the page of periodic tasks."""
        rows, warnings = self._rows()
        tasks = {"programs": [row for row in rows if row.tasks]}
        return Page("Periodic tasks", [warnings, Part("tasks", "maintenance.html", tasks)])

    def connections(self, _: QueryParams) -> Page:
        """Returns the page of connections to other instances."""
        rows, warnings = self._rows()
        transports = [row for row in rows if row.program == "transport"]
        values = {"found": maintenance.connections_of(transports), "is_running": bool(transports)}
        return Page("Connections", [warnings, Part("connections", "connections.html", values)])

    def dead_letters(self, query: QueryParams) -> Page:
        """Returns the page of the last dead letters, newest first."""
        of = query.get("of", "")
        of = of if of in _LETTERS_OF else ""
        found = self._kept.get(f"letters of {of}", partial(letters, self._view.cluster, self._view.topics, of)).found
        shown = [each | {name: _cut(each.get(name)) for name in ("key", "value", "envelope")} for each in found]
        values = {"letters": shown, "of": of, "kinds": _LETTERS_OF, "most": _SHOWN_LETTERS}
        return Page("Dead letters", [Part("letters", "dead_letters.html", values)])

    def _rows(self) -> tuple[list[ProgramRow], Part]:
        """Returns the rows of programs that run, and a part with the sentences about other programs."""
        answer = self._kept.get("rows", partial(_rows, self._view.cluster, self._view.topics))
        rows, gone = answer.found
        return rows, Part("warnings", "warnings.html", {"warnings": [*answer.warnings, *gone]})


def _rows(kafka: Cluster, topics: Topics) -> tuple[list[ProgramRow], list[str]]:
    """Returns the rows of programs that run, and the sentences about programs that are gone but have left a row."""
    rows = maintenance.read(kafka, topics)
    gone = maintenance.gone(rows, partial(own_programs.how_to_start, kafka, topics))
    return [row for row in rows if not maintenance.is_gone(row)], gone


def without_shared_lines(told: Iterable[Told]) -> list[Told]:
    """Returns the rows without the last lines of logs that the programs of several queues share."""
    told = list(told)
    queues = Counter((each.row.host, each.row.log_file) for each in told)
    return [
        replace(each, row=structs.replace(each.row, last_line=None))
        if queues[each.row.host, each.row.log_file] > 1
        else each
        for each in told
    ]


def _cut(text: str | None) -> str:
    return "" if text is None else printable(cut(text, dead_letters.MAX_VALUE_LENGTH))
