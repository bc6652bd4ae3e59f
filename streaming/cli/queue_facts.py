"""Collects all known facts about a queue from the records of commands, of the monitor and of readers."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from confluent_kafka.admin import AclOperation

from streaming.cli import activators, group_entries, group_facts, monitor_rows, tables
from streaming.cli.activators import Told
from streaming.cli.group_facts import GroupFacts
from streaming.cli.meant import did_you_mean
from streaming.cli.presence import introduce
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.core.activation import events
from streaming.core.activation.definition import DefiningCommand, QueueDefinition
from streaming.core.activation.queue import Queue
from streaming.core.activation.sessions import Session
from streaming.core.activation.settings import CoreSettings
from streaming.core.times import iso_ms
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints, wall_clock
from streaming.system.name_lists import listed
from streaming.system.threads import started
from streaming.wire import input_records, notifications
from streaming.wire.notifications import Activation
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.topics import Topics, topic_name_problem

# A reader reports a wait or a transaction once, when it begins. The search finds no report that is older than this.
SESSIONS_MS = 600_000
# The search for notifications begins this long before the last activation, if its time is known.
_ACTIVATIONS_MS = 3_600_000
_LAST_ACTIVATIONS = 5


@dataclass
class QueueFacts:
    """All known facts about a queue.

    Attributes:
        name: The queue's name.
        partitions: The number of partitions of its topic; None without a topic that this user may see.
        definition: The queue's definition by commands; None if no command names the queue.
        row: The queue's row of the monitors view; None if the monitor does not know the queue.
        tasks: The queue's rows of queue-activated-tasks.
        sessions: Sessions that wait or have an open transaction, by the reports of the last ten minutes.
        activations: The last notifications, oldest first.
        activators: The rows of activators about the queue.
        no_activator: The reason why no activator has a row about the queue, as far as it is known.
        is_nobody: Whether no activator has a row about the queue, and no activator runs.
        missing_topics: The sentences about the topics of its entry, if no topic of the consumer group exists.
        group: The consumer group that the queue stands for; None if its readers report.
        present: The programs that run, of those that the queue needs.
        definition_then: The definition by the commands that are not newer than the row, if by all commands the queue is
            ON, and by its row OFF; else None.
    """

    name: str
    partitions: int | None
    definition: QueueDefinition | None
    row: dict[str, Any] | None
    tasks: list[dict[str, Any]] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)
    activations: list[Activation] = field(default_factory=list)
    activators: list[Told] = field(default_factory=list)
    no_activator: str = ""
    is_nobody: bool = False
    missing_topics: list[str] = field(default_factory=list)
    group: GroupFacts | None = None
    present: Present = NOBODY_MISSING
    definition_then: QueueDefinition | None = None

    @property
    def is_known(self) -> bool:
        """Returns whether a command has created the queue, the monitor knows the queue, or an entry names its group."""
        return self.definition is not None or self.row is not None or self.group is not None

    @property
    def is_on(self) -> bool:
        """Returns the queue's STATUS. Five rollbacks in a row set a queue OFF without a command."""
        return bool(self.row["is_receive_enabled"]) if self.row else self.definition is None or self.definition.is_on

    @property
    def off_by(self) -> str:
        """Returns the sentence about the cause that set the queue OFF; empty if it is ON, or the cause is not known."""
        if self.is_on or self.definition is None:
            return ""
        is_commanded = not all(each.is_on for each in (self.definition, self.definition_then) if each is not None)
        return "A command has set it OFF." if is_commanded else "Five rollbacks in a row have set it OFF."

    @property
    def is_on_soon(self) -> bool:
        """Returns whether a command sets the queue ON that the monitor has not taken yet."""
        then = self.definition_then
        return self.definition is not None and self.definition.is_on and then is not None and not then.is_on

    @property
    def members_now(self) -> int | None:
        """Returns the number of members of the queue's group; None without a group, or if the number is not known."""
        return None if self.group is None or self.group.problem else self.group.members

    @property
    def unread_now(self) -> int | None:
        """Returns the present backlog of the queue's group; None without a group, or if the backlog is not known."""
        return None if self.group is None else self.group.backlog

    @property
    def reader(self) -> str:
        """Returns the fate of the reader that was requested last; empty if the reader may still come."""
        if self.is_nobody:
            return "no activator runs that would start it"
        is_taken = any(task["is_confirmed"] for task in self.tasks)
        if self.present.is_without_host and self.row is not None and self.row["max_queue_readers"] and not is_taken:
            return "no host runs that would take its task"
        activated_at = None if self.row is None else self.row["last_activated_time"]
        found = [each.reader(activated_at) for each in self.activators]
        return found[0] if found and all(found) else ""

    @property
    def written_at(self) -> str | None:
        """Returns when the monitor wrote the queue's row, if a program of the queue has ended after that; else None."""
        at = None if self.row is None else self.row.get("update_time")
        ends = [each.row.last_exit.at for each in self.activators if each.row.last_exit is not None]
        return at if at is not None and any(end > at for end in ends) else None

    @property
    def needs(self) -> dict[str, Any]:
        """Returns the fields that say which programs the queue needs, also if the monitor has written no row."""
        clause = None if self.definition is None else self.definition.activation
        return {
            "max_queue_readers": None if clause is None else clause.max_queue_readers,
            "is_activation_enabled": clause is not None and clause.is_on,
            "members": None if self.group is None else self.group.members,
        }

    @property
    def is_unwatched(self) -> bool:
        """Returns whether no entry of a file names the queue's group, so that no observer reports the group."""
        is_silent = self.row is None or self.row.get("observer_silent_since") is not None
        return self.group is not None and is_silent and group_entries.is_without_entry(self.activators)

    @property
    def blind(self) -> str:
        """Returns the sentence that says why no observer can see the group's messages; empty if no reason is known."""
        if self.group is None:
            return ""
        if group_entries.is_without_entry(self.activators):
            sentence = monitor_rows.without_entry([self.row or {"queue": self.name}])
            return f"{sentence[0].upper()}{sentence[1:]}." if self.is_unwatched else ""
        if self.group.members or self.group.topics or self.group.problem:
            return " ".join(f"{each[0].upper()}{each[1:]}." for each in self.missing_topics)
        return (
            "It has neither members nor committed offsets, so nobody knows which topics it reads: name them in its "
            "entry of the activator's file, with `topics`."
        )


def find(cluster: Cluster, topics: Topics, queue: str) -> QueueFacts:
    """Reads all known facts about a queue, except the backlog of its consumer group, because that may take seconds.

    Raises:
        UserError: Kafka cannot be reached or denies access, or the monitor's topics are missing.
    """
    definition = definition_of(cluster, topics, queue)
    # At the same time, so that all parts of the view are of the same age.
    row = started(partial(row_of, cluster, topics, queue))
    tasks = started(partial(_tasks, cluster, topics, queue))
    told = started(partial(activators.read, cluster, topics, {queue}))
    sessions = started(partial(_sessions, cluster, topics, queue))
    partitions = started(partial(partitions_of, cluster, topics, queue))
    facts = QueueFacts(queue, partitions.result(), definition, row.result(), tasks.result(), sessions.result())
    facts.activators = told.result().get(queue, [])
    facts.group = _group(cluster, topics, facts)
    facts.missing_topics = _missing_topics(cluster, topics, facts)
    if not facts.is_known:
        return facts
    if facts.row is not None and not facts.is_on and definition is not None and definition.is_on:
        facts.definition_then = definition_of(cluster, topics, queue, iso_ms(facts.row["update_time"]))
    if facts.row is not None and facts.row["activation_sequence"] > 0:
        since_ms = _activations_since_ms(facts.row["last_activated_time"])
        found = up_to(facts.row, _activations(cluster, topics, queue, since_ms))
        facts.activations = found[-_LAST_ACTIVATIONS:]
    return facts


def with_row(facts: QueueFacts, row: dict[str, Any] | None) -> QueueFacts:
    """Returns the facts with a row of the monitors view, if the row is newer than the row of the facts."""
    is_newer = row is not None and (facts.row is None or row["update_time"] >= facts.row["update_time"])
    return replace(facts, row=row) if is_newer else facts


def up_to(row: Mapping[str, Any], activations: list[Activation]) -> list[Activation]:
    """Returns the notifications of activations up to a row, which was read before the notifications.

    A dropped queue with the same name may have notifications with higher numbers, but these are older than the row.
    """
    sequence, at = row["activation_sequence"], row.get("update_time") or ""
    return [each for each in activations if each.sequence <= sequence or each.post_time <= at]


def look_around(cluster: Cluster, topics: Topics, facts: QueueFacts, *, as_json: bool) -> None:
    """Adds the running programs that a queue needs. Says how old the queue's row is, and which programs are missing.

    Raises:
        UserError: Kafka cannot be reached or denies access.
    """
    told = {facts.name: facts.activators}
    times = [] if facts.row is None else [facts.row["update_time"]]
    facts.present = introduce(
        cluster,
        topics,
        "monitor",
        as_json=as_json,
        file=activators.file_of(topics, told),
        times=times,
        needs=[facts.needs],
        file_of_observer=activators.file_of_observer(topics, told),
        has_tasks=bool(facts.tasks),
    )
    ask_for_activators(cluster, topics, facts)


def ask_for_activators(cluster: Cluster, topics: Topics, facts: QueueFacts) -> None:
    """Adds advice on starting an activator, if no activator runs. Call it last, so that no advice comes twice."""
    facts.activators = activators.with_starts(cluster, topics, {facts.name: facts.activators})[facts.name]
    definition = facts.definition
    if not facts.activators and (definition is None or definition.notifications):
        file = activators.file_here(cluster, topics)
        missing, entry = activators.absence(cluster, topics, file), activators.entry_here(facts.name, file)
        facts.no_activator, facts.is_nobody = activators.nobody(missing, entry), missing is not None


def _tasks(cluster: Cluster, topics: Topics, queue: str) -> list[dict[str, Any]]:
    return [row for row in tables.read_tasks(cluster, topics) if row["queue"] == queue]


def _group(cluster: Cluster, topics: Topics, facts: QueueFacts) -> GroupFacts | None:
    """Returns the consumer group that an entry or an observer names for a queue; None if the readers report."""
    named = next((each.row for each in facts.activators if each.row.group is not None), None)
    if named is not None and named.group is not None:
        return group_facts.find(cluster, named.group, named.topics)
    entry = activators.entry_of_run(cluster, topics, facts.name)
    if facts.row is None and entry is not None and entry.group is not None:
        found = group_facts.find(cluster, facts.name if entry.is_pattern else entry.group, [*entry.topics])
        return found if found.is_there or not entry.is_pattern else None
    if facts.row is None or monitor_rows.observed(facts.row) is None:
        return None
    found = group_facts.find(cluster, facts.name, [])  # the name of a group without an entry is its queue's
    if found.is_there or found.problem:
        return found
    nobody = "unknown: no activator says which consumer group the queue stands for, and there is none of its name"
    return GroupFacts(facts.name, problem=nobody)


def _missing_topics(cluster: Cluster, topics: Topics, facts: QueueFacts) -> list[str]:
    """Returns the sentences of `queues` about the missing topics of a group's entry.

    Returns an empty list if the group has members, or any topic that this user sees.
    """
    group = facts.group
    if group is None or group.members or any(count is not None for count in group.topics.values()):
        return []
    with suppress(UserError):  # this user may not look
        told = {facts.name: facts.activators}
        return [each.problem for each in group_entries.missing_topics(cluster, topics, told)]
    return []


def is_known(cluster: Cluster, topics: Topics, queue: str) -> bool:
    """Returns whether a command has created the queue, or the monitor knows the queue. Raises as `find` does."""
    return definition_of(cluster, topics, queue) is not None or row_of(cluster, topics, queue) is not None


def no_queue(cluster: Cluster, topics: Topics, queue: str) -> UserError:
    """Returns the error about an unknown queue. For a consumer group, it does not advise to create a queue."""
    entry = activators.entry_of_run(cluster, topics, queue)
    if entry is not None and entry.group is not None and not entry.is_pattern:
        return UserError(
            f"There is no queue {queue!r} yet. An entry of the activator's file names its consumer group, "
            f"{entry.group}, so the queue is there once the observer has reported the group."
        )
    commanded = _commanded(cluster, topics)
    is_dropped = queue in commanded
    group = group_facts.find(cluster, queue, [])
    # The readers of a dropped queue leave a group of its name, which has read no other topic.
    if group.is_there and not (is_dropped and group.topics.keys() <= {queue}):
        return UserError(
            f"There is no queue {queue!r}, but a consumer group of this name, which no observer has reported. Readers "
            "are started for it once an entry of the activator's file names it, with `group`."
        )
    create = f"`{hints.command('queue', 'create', queue)}` creates this one, with a topic"
    if (problem := topic_name_problem(queue, topics)) is not None:
        create = f"no queue's topic can have this name: {problem}"
    unknown = "no command has created it, and the monitor knows of no message for it"
    return UserError(
        f"There is no queue {queue!r}: {'a command has dropped it' if is_dropped else unknown}."
        f"{did_you_mean(queue, _known(cluster, topics, commanded))} "
        f"`{hints.command('queues')}` lists the queues; {create}. A consumer group needs no topic of its "
        "name, but an entry with `group` in the activator's file, and `topics` there until it has committed something."
    )


def without_topic(cluster: Cluster, topics: Topics, queue: str, refusal: UserError) -> UserError:
    """Returns the error about a queue that has no topic.

    Names the queues that may be meant if the queue is unknown, and the topics of a consumer group if the queue stands
    for the group.

    Args:
        cluster: The cluster.
        topics: The topics.
        queue: The queue.
        refusal: The error of the client.
    """
    with suppress(UserError):  # a sender or a reader needs no right to look for other queues
        row = row_of(cluster, topics, queue)
        if row is not None and monitor_rows.observed(row) is not None:
            return _elsewhere(cluster, topics, queue, row)
        known = _known(cluster, topics, _commanded(cluster, topics))
        return refusal if queue in known else UserError(f"{refusal}{did_you_mean(queue, known)}")
    return refusal


def _elsewhere(cluster: Cluster, topics: Topics, queue: str, row: dict[str, Any]) -> UserError:
    """Returns the error about a queue that stands for a consumer group, with the group's topics if they are known."""
    told = activators.read(cluster, topics, {queue}).get(queue, [])
    group = _group(cluster, topics, QueueFacts(queue, None, None, row, activators=told))
    names = [] if group is None else [*group.topics]
    where = f"topic{'s' if len(names) > 1 else ''} {listed(names)}"
    return UserError(
        f"Queue {queue} stands for a consumer group, whose messages are in "
        f"{where if names else 'the topics that the group reads'}. Send and read them there, with any client of Kafka."
    )


def _commanded(cluster: Cluster, topics: Topics) -> dict[str, bool]:
    """Returns queue -> whether it exists, for each queue that a command has named. Raises as `find` does."""
    with TopicFollower(cluster, [topics.commands], Start.BEGINNING) as follower:
        found = _events(follower, input_records.commands_decoder)
        return {name: not isinstance(event, events.DropQueue) for name, event, _ in found}


def _known(cluster: Cluster, topics: Topics, commanded: Mapping[str, bool]) -> set[str]:
    """Returns the names of all queues that the monitor knows or a command has named. Raises as `find` does."""
    rows = {row["queue"] for row in tables.read_monitors(cluster, topics)}
    return {name for name in rows | commanded.keys() if commanded.get(name, True)}


def row_of(cluster: Cluster, topics: Topics, queue: str) -> dict[str, Any] | None:
    """Returns a queue's row of the monitors view; None if there is no such row. Raises what `find` raises."""
    return next((row for row in tables.read_monitors(cluster, topics) if row["queue"] == queue), None)


def definition_of(cluster: Cluster, topics: Topics, queue: str, until_ms: int | None = None) -> QueueDefinition | None:
    """Returns a queue's definition as `definitions_of` does; None if the queue has none. Raises what it raises."""
    return definitions_of(cluster, topics, {queue}, until_ms).get(queue)


def definitions_of(
    cluster: Cluster, topics: Topics, queues: Collection[str], until_ms: int | None = None
) -> dict[str, QueueDefinition]:
    """Applies the commands of queues as the monitor does.

    Returns queue -> definition, without queues that no command has named or that are dropped.

    Args:
        cluster: The cluster.
        topics: The topics.
        queues: The queues.
        until_ms: Later commands are left out; None: no command is.

    Raises:
        UserError: Kafka cannot be reached or denies access, or the monitor's topics are missing.
    """
    found: dict[str, QueueDefinition] = {}
    with TopicFollower(cluster, [topics.commands], Start.BEGINNING) as follower:
        for queue, event, at_ms in _events(follower, input_records.commands_decoder, queues):
            if until_ms is not None and at_ms > until_ms:
                continue
            if isinstance(event, events.DropQueue):
                found.pop(queue, None)
            elif isinstance(event, DefiningCommand):
                if queue not in found:
                    is_created = isinstance(event, events.CreateQueue)
                    found[queue] = QueueDefinition() if is_created else QueueDefinition.automatic(True)
                with suppress(events.RefusedEventError):
                    found[queue].apply(event)
    return found


def _events(
    follower: TopicFollower, decoder: Any, queues: Collection[str] | None = None
) -> Iterator[tuple[str, events.Event, int]]:
    """Yields the queue, the event and the timestamp in ms of each valid record.

    Args:
        follower: Reads the records.
        decoder: Decodes the records.
        queues: The queues of interest; None: all queues.
    """
    keys = None if queues is None else {each.encode() for each in queues}
    for message in follower.to_end():
        if keys is None or message.key() in keys:
            with suppress(InvalidRecordError):
                value = message.value()
                record = input_records.decode(decoder, message.key(), value, len(value or b""))
                yield record.queue, record.event(), message.timestamp()[1]


def partitions_of(cluster: Cluster, topics: Topics, queue: str) -> int | None:
    """Returns the number of partitions of a queue's topic; None without a topic that this user may see."""
    return (topic_of(cluster, topics, queue) or {}).get(queue)


def topic_of(cluster: Cluster, topics: Topics, queue: str) -> dict[str, int] | None:
    """Returns a queue's topic -> its number of partitions; empty without a topic; None if this user may not look.

    Raises:
        UserError: Kafka cannot be reached or refuses.
    """
    if topic_name_problem(queue, topics) is not None:
        return {}
    try:
        return Admin(cluster).find_topics({queue: (AclOperation.DESCRIBE,)})
    except RightMissingError:
        return None


def _sessions(cluster: Cluster, topics: Topics, queue: str) -> dict[str, Session]:
    """Applies the recent reports of readers as the monitor does, and returns the sessions that result."""
    now_ms = wall_clock.now_ms()
    definition = QueueDefinition.automatic(True)
    definition.handles_poison = False
    settings = CoreSettings()
    state = Queue(definition, settings)
    with TopicFollower(cluster, [topics.receives], Start.END, since_ms=now_ms - SESSIONS_MS) as follower:
        for _, event, timestamp_ms in _events(follower, input_records.receives_decoder, {queue}):
            with suppress(events.RefusedEventError):
                state.apply(event, timestamp_ms)
    # Each at its instant: the core extends what is long overdue, as after a time without a monitor.
    while (due_ms := state.sessions.next_due_ms(settings)) <= now_ms:
        state.end_due(due_ms)
    return state.sessions.by_id


def _activations_since_ms(last_activated_time: str | None) -> int:
    """Returns the instant at which the search for notifications begins; 0 if the row lacks the time."""
    if last_activated_time is None:
        return 0
    return int(datetime.fromisoformat(last_activated_time).timestamp() * 1000) - _ACTIVATIONS_MS


def _activations(cluster: Cluster, topics: Topics, queue: str, since_ms: int) -> list[Activation]:
    found: list[Activation] = []
    with TopicFollower(cluster, [topics.activations], Start.END, since_ms=since_ms) as follower:
        for message in follower.to_end():
            if message.key() == queue.encode():
                with suppress(InvalidRecordError):
                    found.append(notifications.decode(message))
    return found
