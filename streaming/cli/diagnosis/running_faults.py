"""Finds faults of a running instance: programs and queues that do not work, held messages, and recent dead letters."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from confluent_kafka.admin import OffsetSpec

from streaming.cli import activators
from streaming.cli.activators import Told
from streaming.cli.conversations import lists, views
from streaming.cli.dead_letters import decode
from streaming.cli.diagnosis import queue_faults
from streaming.cli.presence import beginning, last_sign, lateness
from streaming.cli.routing.definition_faults import Fault
from streaming.core.conversations.endpoint_states import State, Trigger, after
from streaming.core.numbers import plural
from streaming.core.routing.conversation import RoutedMessage
from streaming.core.routing.definitions import Definitions
from streaming.kafka.access import AccessDeniedError, rights
from streaming.kafka.admin import EARLIEST, LATEST, Admin, TooOldError
from streaming.kafka.clients import Cluster
from streaming.kafka.last_records import last_records
from streaming.kafka.own_programs import absence, starting
from streaming.system import hints
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_decisions import MARK, decode_mark
from streaming.wire.service_views import EndpointRow
from streaming.wire.topics import HOUR_MS, Topics

# A transport carries out a decision within a second.
_LATE_MS = 60_000
_RECENT_MS = HOUR_MS
# The most dead letters that are looked at, and the most reasons that are told. A dead letter has up to 256 KiB.
_MAX_DEAD_LETTERS = 100
_MAX_REASONS = 10
# Enough records to find the newest mark, even behind invalid records and refusals.
_LOOKED_AT = 100


@dataclass
class RunningInstance:
    """A running instance. Reports objects at which this user may not look, and leaves them out.

    Attributes:
        kafka: The cluster.
        topics: The topics.
        warn: Takes a line about an object that could not be looked at.
        at_ms: The present, in milliseconds since 1970.
        look: Takes the name of the next object to look at.
    """

    kafka: Cluster
    topics: Topics
    warn: Callable[[str], None]
    at_ms: int
    look: Callable[[str], None] = lambda _at: None

    @cached_property
    def activators(self) -> dict[str, list[Told]]:
        """Returns queue -> the rows of activators about the queue."""
        return activators.read(self.kafka, self.topics)

    def open_conversations(self, definitions: Definitions) -> Counter[RoutedMessage]:
        """Counts the conversations in which endpoints may still send, grouped by the values that routing uses.

        Raises:
            UserError: Kafka cannot be reached, or a topic is missing.
        """
        self.look("the conversations")
        try:
            viewed = views.read_endpoints(self.kafka, self.topics, views.Selection())
        except AccessDeniedError as error:
            self.warn(f"not looked at: {error}")
            return Counter()
        return open_conversations(viewed.endpoints.values(), definitions)

    def programs(self, definitions: Definitions) -> Iterator[Fault]:
        """Yields the faults of programs that do not run or make no progress, the monitor first.

        Leaves out programs that are starting.

        Raises:
            UserError: Kafka cannot be reached, or a topic is missing.
        """
        of_services = ["router", "transport"]
        asked = ["monitor", *of_services, "observer", "activator"]
        begin = {each: begins for each in asked if (begins := starting(self.kafka, self.topics, each))}
        if begin:
            self.warn(f"not up yet: {', '.join(begin)}. {'; '.join(dict.fromkeys(begin.values()))}")
        # Without services, neither router nor transport is needed.
        needed = ["monitor", *(of_services if any(definitions.services()) else [])]
        running = [each for each in needed if each not in begin]
        return self._looked_at({f"the {each}": partial(self._program, each) for each in running})

    def work(self, *, has_services: bool = True) -> Iterator[Fault]:
        """Yields the faults of the work: queues without readers, messages that wait, and dead letters.

        Raises:
            UserError: Kafka cannot be reached, or a topic is missing.
        """
        of_services = {"held messages": self._held_messages, "dead letters": self._dead_letters}
        return self._looked_at({"the queues": self._queues} | (of_services if has_services else {}))

    def _looked_at(self, checks: Mapping[str, Callable[[], Iterator[Fault]]]) -> Iterator[Fault]:
        for name, check in checks.items():
            self.look(name)
            try:
                yield from check()
            except (AccessDeniedError, TooOldError) as error:
                self.warn(f"not looked at: {error}")

    def _program(self, program: str) -> Iterator[Fault]:
        problem = absence(self.kafka, self.topics, program, file=activators.file_of(self.topics, self.activators))
        if problem is not None:
            yield Fault("program down", program, problem)
        else:
            yield from self._stuck_transport() if program == "transport" else self._stuck(program)

    def _stuck(self, program: str) -> Iterator[Fault]:
        sign = last_sign(self.kafka, self.topics, program)
        if (late := lateness(program, sign, self.at_ms)) is None:
            return
        if begins := beginning(self.kafka, self.topics, program, sign):
            self.warn(f"not up yet: {program}. {begins}")
        else:
            yield Fault("program stuck", program, late)

    def _stuck_transport(self) -> Iterator[Fault]:
        admin, topics = Admin(self.kafka), self.topics
        partitions = admin.require_topics(rights(reads=[topics.service_marks, topics.service_decisions]))
        count = partitions[topics.service_decisions]
        done = carried_out(self.kafka, topics, partitions[topics.service_marks])
        first, since, end = (
            admin.offsets(topics.service_decisions, count, spec)
            for spec in (EARLIEST, OffsetSpec.for_timestamp(self.at_ms - _LATE_MS), LATEST)
        )
        # Kafka's answer is negative if no record is newer.
        old = [end[number] if since[number] < 0 else since[number] for number in range(count)]
        late = [number for number in range(count) if max(done[number], first[number]) < old[number]]
        if late:
            problem = (
                f"decisions of more than a minute ago are not carried out in {plural(len(late), 'partition')} "
                f"of {topics.service_decisions} ({', '.join(map(str, late))}). Look at the transports' logs"
            )
            yield Fault("program stuck", "transport", problem)

    def _queues(self) -> Iterator[Fault]:
        yield from queue_faults.find(self.kafka, self.topics, self.activators)

    def _held_messages(self) -> Iterator[Fault]:
        rows = [row for _, row, _ in views.read_transmissions(self.kafka, self.topics)]
        for each in lists.reasons(rows)[:_MAX_REASONS]:
            where = f"service {each.to}" if len(each.services) == 1 else each.to
            problem = f"{each.what}. {each.why}. All of them: `{hints.command('transmissions')}`"
            yield Fault("held messages", where, problem)

    def _dead_letters(self) -> Iterator[Fault]:
        topic = self.topics.service_dead_letters
        Admin(self.kafka).require_topics(rights(reads=[topic]))
        reasons: Counter[str] = Counter()
        for record in last_records(self.kafka, topic, 1, _MAX_DEAD_LETTERS):
            if record.timestamp()[1] >= self.at_ms - _RECENT_MS:
                reasons[str(decode(record)["reason"])] += 1
        for reason, count in reasons.most_common(_MAX_REASONS):
            problem = (
                f"{plural(count, 'record')} in the last hour, among the newest {_MAX_DEAD_LETTERS}. {reason}. "
                f"All of them: `{hints.command('dead-letters', '--services')}`"
            )
            yield Fault("dead letters", topic, problem)


def carried_out(kafka: Cluster, topics: Topics, partitions: int) -> Counter[int]:
    """Returns partition -> offset in service-decisions of the next record that a transport carries out.

    Raises:
        UserError: Kafka cannot be reached, or denies access.
    """
    done: Counter[int] = Counter()
    for record in last_records(kafka, topics.service_marks, partitions, _LOOKED_AT):
        if record.key() == MARK:
            try:
                done[record.partition() or 0] = decode_mark(record.value()).offset
            except InvalidRecordError:
                continue
    return done


def has_services(kafka: Cluster, topics: Topics) -> bool:
    """Returns whether the topics of services exist. Programs that only use queues need none.

    Raises:
        UserError: Kafka cannot be reached, or refuses.
    """
    name = topics.service_commands
    return name in Admin(kafka).find_topics(rights(reads=[name]))


def open_conversations(rows: Iterable[EndpointRow], definitions: Definitions) -> Counter[RoutedMessage]:
    """Counts the conversations in which these endpoints may still send, grouped by the values that routing uses."""
    found: Counter[RoutedMessage] = Counter()
    for row in rows:
        if after(State.__members__.get(row.state, State.ABSENT), Trigger.SEND) is None:
            continue
        # A target's messages name the initiator's broker instance.
        far = None if row.is_initiator else definitions.databases.get(row.far_database or "")
        instance = row.far_broker_instance if far is None else far.broker_instance
        found[RoutedMessage("diagnosed", row.far_service, instance, row.is_initiator, row.database)] += 1
    return found
