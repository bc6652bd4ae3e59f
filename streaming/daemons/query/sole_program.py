"""Keeps two monitors, or two routers, from running on the same topics. Both would act on the same records.

Programs of one kind are members of a consumer group on the topic of ticks. They read no records as members. Only the
program that has the topic's partitions may run. Kafka's cooperative assignment leaves the partitions with the member
that has them, so a newcomer gets none. After a program was killed, a program with another checkpoint gets the place
when Kafka has received no heartbeat for the session time-out. The group's committed offset is the sign of life.

The member's id (`group.instance.id`) begins with the checkpoint's id. A newcomer first looks for members with its own
checkpoint. The newcomer evicts them if they are processes of this host that have ended, or if it was started with
--take-over. So a program that was killed has its place back as soon as it is started again. Otherwise the newcomer
waits for the end of their sessions, and is refused if they go on, so that two supervisors cannot end each other's
programs again and again.

Each process has its own id in the group. Kafka gives the place of a member to a newcomer with the same id, but goes on
showing the client id of the former member, whose process has ended. A third program would take that for the end of the
member.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streaming.errors import UserError
from streaming.kafka.access import RightMissingError, denial
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.kafka.group_member import leave
from streaming.system import runs
from streaming.system.client_ids import has_ended, running_here

# Kafka's brokers accept no less than 6 s (group.min.session.timeout.ms), and a busy machine may be silent for some
# seconds.
SESSION_TIMEOUT_S = 10.0
# The time within which a program learns that it has lost its place. Kafka's default is 3 s.
_HEARTBEAT_INTERVAL_S = 1.0
# After this time Kafka has removed a killed program from the group.
_PATIENCE_S = SESSION_TIMEOUT_S + 3.0
# By default a group's first member waits for 3 s (group.initial.rebalance.delay.ms). A new cluster first creates its
# topic of consumer groups.
_JOIN_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.1
_LOOK_INTERVAL_S = 1.0
# Short, because the main thread waits for the answer and must react to Ctrl-C.
_LOOK_TIMEOUT_S = 2.0
# A sign of life is committed at most this often.
_SIGN_INTERVAL_S = 1.0
# Kafka answers a request to join, with the member's new id, in far less than this time.
_NEW_ID_TIMEOUT_S = 2.0
# Kafka fences an evicted member in far less than this time. Otherwise the newcomer tries again.
_EVICTION_TIMEOUT_S = 2.0
# Longest wait for a Kafka that does not answer. Other programs then wait for the end of the session.
_CLOSE_TIMEOUT_S = 3.0

# The commands that run such programs.
_COMMANDS = ("monitor", "router", "observe", "run")
_ADVICE = "Stop one of them, or give it its own --topic-prefix."
_ADVICE_ON_SAME = "Stop it first. To end it and take its place, start this one with --take-over."

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kind:
    """A kind of program of which only one may run on the topics of a prefix.

    Attributes:
        name: The name of the kind, for messages.
        group_id: The consumer group of the programs, without the topic prefix.
        harm: The harm that two such programs would do, as a sentence.
        ready: The line that a program prints when it is ready.
        waits: Whether a second program waits until the first program ends. Otherwise the second program is refused.
    """

    name: str
    group_id: str
    harm: str
    ready: str
    waits: bool = False


class SoleProgram:
    """The place that one program of a kind and a topic prefix can have. A thread keeps the place during the block."""

    def __init__(  # noqa: PLR0913, PLR0917  (the parts of the place)
        self, cluster: Cluster, admin: Admin, kind: Kind, prefix: str, topic: str, partitions: int
    ) -> None:
        """Prepares the place; `join` asks for it.

        Args:
            cluster: The Kafka cluster of the topics.
            admin: Lists the members of the consumer group.
            kind: The kind of program.
            prefix: The topic prefix.
            topic: The topic whose partitions make up the place.
            partitions: The topic's number of partitions.
        """
        self._cluster = cluster
        self._admin = admin
        self._kind = kind
        self._prefix = prefix
        self._group_id = prefix + kind.group_id
        self._topic = topic
        self._partitions = partitions
        self._owned: set[int] = set()
        # The number of partitions that the program needs: all to start, and all to go on after it has lost them. In
        # between, one is enough, because Kafka moves some of several partitions to a newcomer.
        self._least = partitions
        self._holds = threading.Event()
        self._is_doubted = False
        # The ids of the members with the same checkpoint that were there before this program, which takes their place.
        self._predecessors: set[str | None] = set()
        self._is_fenced = False
        self._member_id = ""
        self._is_stopped = threading.Event()
        # The newest sign of life, which the thread of Spark's listener replaces, and the last committed sign.
        self._sign: TopicPartition | None = None
        self._committed: TopicPartition | None = None
        self._problem: Exception | None = None
        self._thread: threading.Thread | None = None
        self._note = ExitStack()
        self._note_ready: Callable[[Collection[str]], None] = lambda _unready: None

    def __enter__(self) -> Self:
        if not self._kind.waits:  # a standby may wait for days
            noted = runs.noted_alone(self._kind.name, self._cluster.bootstrap_servers, self._prefix)
            self._note_ready = self._note.enter_context(noted)
        return self

    def __exit__(self, *_: object) -> None:
        """Gives up the place at once. Waits at most `_CLOSE_TIMEOUT_S` for Kafka."""
        self._note.close()
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def join(self, checkpoint_id: str, name: str, *, takes_over: bool = False) -> None:
        """Asks for the place. Returns at once, except while a program with the same checkpoint may still run.

        Args:
            checkpoint_id: The id of the program's checkpoint.
            name: The name shown to other programs; see `client_ids`.
            takes_over: Whether a running program with the same checkpoint loses its place.

        Raises:
            UserError: A program with the same checkpoint runs, or the Kafka client does not accept its properties.
        """
        self._checkpoint_id = checkpoint_id
        self._instance_id = f"{checkpoint_id}.{uuid.uuid4().hex[:8]}"
        self._client_id = name
        self._await_predecessor(takes_over)
        self._thread = threading.Thread(target=self._run, args=(self._join_group(),), name="sole-program", daemon=True)
        self._thread.start()

    def _join_group(self) -> Consumer:
        """Creates this program's member of the group. The member joins while it is polled."""
        consumer = self._member(self._instance_id)
        consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        return consumer

    def _member(self, instance_id: str) -> Consumer:
        config = {
            "client.id": self._client_id,
            "group.id": self._group_id,
            "group.instance.id": instance_id,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
            "heartbeat.interval.ms": str(int(_HEARTBEAT_INTERVAL_S * 1000)),
            "enable.auto.commit": "false",
        }
        return self._cluster.consumer(config)

    def _await_predecessor(self, takes_over: bool) -> None:
        """Waits until no other program has the same checkpoint, or until this program may take the other's place."""
        begin_s = time.monotonic()
        is_told = False
        while before := self._of_same_checkpoint(self._members()):
            running = [each for each in before if not has_ended(each.client_id)]
            if takes_over or not running:
                self._predecessors = {each.instance_id for each in before}
                state = "that runs, if it still does" if takes_over else "that has ended"
                _log.warning("Taking the place of the %s %s: %s", self._kind.name, state, _names(before))
                return
            if time.monotonic() >= begin_s + _PATIENCE_S:
                raise UserError(
                    f"Another {self._kind.name} runs on the same checkpoint: {_names(running)}. {_ADVICE_ON_SAME}"
                )
            if not is_told:
                is_told = True
                waiting = f"Waiting up to {_PATIENCE_S:.0f} s for a sign that it has ended"
                _log.warning("Another %s has the same checkpoint: %s. %s", self._kind.name, _names(running), waiting)
            time.sleep(_POLL_INTERVAL_S)

    def _of_same_checkpoint(self, members: Sequence[GroupMember]) -> list[GroupMember]:
        """Returns the other programs with this program's checkpoint."""
        same = [each for each in members if checkpoint_of(each) == self._checkpoint_id]
        return [each for each in same if each.instance_id != self._instance_id]

    def _evict_predecessors(self) -> None:
        """Takes predecessors out of the group once this program is a member, so that the place passes to it at once."""
        found = self._members()
        if any(each.instance_id == self._instance_id for each in found):
            for each in self._of_same_checkpoint(found):
                if self._is_predecessor(each):
                    self._evict(str(each.instance_id))

    def _is_predecessor(self, member: GroupMember) -> bool:
        """Returns whether this program takes the place of a member, which has ended, or was there before.

        Of two programs with --take-over that start at once, neither is the predecessor of the other.
        """
        return member.instance_id in self._predecessors or (
            checkpoint_of(member) == self._checkpoint_id and has_ended(member.client_id)
        )

    def _evict(self, instance_id: str) -> None:
        """Joins the group with the id of another member, which Kafka then fences, and leaves the group."""
        consumer = self._member(instance_id)
        consumer.subscribe([self._topic])
        end_s = time.monotonic() + _EVICTION_TIMEOUT_S
        while not consumer.memberid() and time.monotonic() < end_s:
            consumer.poll(_POLL_INTERVAL_S)
        leave(consumer)
        consumer.close()

    def wait(self) -> None:
        """Waits for the place.

        Raises:
            UserError: Another program has the place, or Kafka does not let this program into the group.
        """
        begin_s = time.monotonic()
        next_look_s = begin_s + _LOOK_INTERVAL_S
        is_told = False
        while not self._holds.wait(_POLL_INTERVAL_S):
            self.check()
            now_s = time.monotonic()
            if now_s < next_look_s:
                continue
            next_look_s = now_s + _LOOK_INTERVAL_S
            others, name, waits = self._others(), self._kind.name, self._kind.waits
            found = f"Another {name} runs on the same topics: {_names(others)}"
            if others and now_s >= begin_s + self._patience_s() and not waits:
                raise UserError(f"{found}. {self._kind.harm} {_ADVICE}")
            if now_s >= begin_s + _JOIN_TIMEOUT_S and not (others and waits):
                raise UserError(
                    f"Kafka has not let this {name} into the consumer group {self._group_id} for {_JOIN_TIMEOUT_S:.0f} "
                    f"s. Check that the brokers are healthy, and start the {name} again."
                )
            if others and not is_told:
                is_told = True
                standby = "This one is a standby: it starts to work when that one ends"
                limited = f"Waiting up to {self._patience_s():.0f} s for it to end"
                _log.warning("%s. %s", found, standby if waits else limited)

    def note_ready(self) -> None:
        """Notes that the program is ready. See `runs`."""
        self._note_ready([])

    def check(self) -> None:
        """Raises the error that must end the program, if there is one.

        Raises:
            UserError: Another program has the place now, or Kafka does not allow this user to use the consumer group.
            Exception: The thread has failed.
        """
        if self._problem is not None:
            raise self._problem

    def has_problem(self) -> bool:
        """Returns whether `check` would raise."""
        return self._problem is not None

    def leave_sign(self, offset: int, text: str) -> None:
        """Stores a sign of life. The thread commits the sign soon, if this program still has the place then.

        Args:
            offset: The offset to commit, of the topic's first partition.
            text: The text beside the offset, of at most 4,000 bytes.
        """
        self._sign = TopicPartition(self._topic, 0, offset, text)

    def _run(self, consumer: Consumer) -> None:
        try:
            self._keep(consumer)
            while self._is_fenced and self._is_still_here(consumer):
                consumer.close()
                self._is_fenced = False
                self._on_lost(consumer, [])
                consumer = self._join_group()
                self._keep(consumer)
        except Exception as error:
            self._problem = error
        # Takes 10 s if Kafka does not answer.
        consumer.close()

    def _keep(self, consumer: Consumer) -> None:
        next_sign_s = 0.0
        # Usually nobody is to be evicted, and the program has its place before a look.
        next_look_s = time.monotonic() + (0.0 if self._predecessors else _LOOK_INTERVAL_S)
        # A standby may wait for days. By then, the sessions of programs that have ended are over.
        evicts_until_s = time.monotonic() + _JOIN_TIMEOUT_S
        while not self._is_stopped.is_set() and self._problem is None and not self._is_fenced:
            message = consumer.poll(_POLL_INTERVAL_S)
            error = message.error() if message is not None else None
            if error is not None:
                self._take(error)
            else:
                self._member_id = consumer.memberid() or self._member_id  # a member that was fenced has none
            if (now_s := time.monotonic()) >= next_look_s:
                next_look_s = now_s + _LOOK_INTERVAL_S
                if self._is_doubted:
                    self._look_for_a_successor()
                elif not self._holds.is_set() and now_s < evicts_until_s:
                    self._evict_predecessors()
            if self._sign is not self._committed and time.monotonic() >= next_sign_s:
                next_sign_s = time.monotonic() + _SIGN_INTERVAL_S
                self._commit_sign(consumer)
        if not self._is_fenced:
            self._commit_sign(consumer)
            leave(consumer)

    def _commit_sign(self, consumer: Consumer) -> None:
        sign = self._sign
        # Before the consumer is a member, Kafka would treat its commit like that of another program with the same id.
        if sign is not None and sign is not self._committed and self._owned:
            self._committed = sign
            with suppress(KafkaException):  # the next sign replaces this sign
                consumer.commit(offsets=[sign], asynchronous=True)

    def _take(self, error: KafkaError) -> None:
        if error.code() == KafkaError._FATAL:
            # FENCED_INSTANCE_ID is the only fatal error of a consumer.
            self._is_fenced = True
            return
        denied = denial(error)
        # A missing right ends the program, because waiting does not help. Kafka may accept a rejected login later, so a
        # rejected login ends only a program that has not had the place yet.
        if isinstance(denied, RightMissingError) or (denied is not None and not self._holds.is_set()):
            self._problem = denied

    def _is_still_here(self, consumer: Consumer) -> bool:
        """Returns whether this program still has its place, although Kafka has fenced the program's member.

        After an outage the member joins again, with another member id. A commit that the outage has delayed still has
        the former member id. So Kafka treats it like a commit of a member that another program has evicted.
        """
        end_s = time.monotonic() + _NEW_ID_TIMEOUT_S
        while not self._is_stopped.wait(_POLL_INTERVAL_S):
            with suppress(UserError):
                found = self._admin.members(self._group_id, _LOOK_TIMEOUT_S)
                if successors := self._of_same_checkpoint(found):
                    self._problem = self._taken_by(successors)
                    return False
                own = [each.member_id for each in found if each.instance_id == self._instance_id]
                if own == [consumer.memberid() or self._member_id] or time.monotonic() >= end_s:
                    return True
        return False

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Any offset will do, because nothing is read. With an explicit offset the client does not ask Kafka for one.
        consumer.incremental_assign([TopicPartition(self._topic, each.partition, 0) for each in partitions])
        consumer.pause(partitions)
        self._owned |= {each.partition for each in partitions}
        if len(self._owned) >= self._least:
            self._least = 1
            self._holds.set()
        self._is_doubted = self._holds.is_set() and len(self._owned) < self._least

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned -= {each.partition for each in partitions}

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        # Kafka does not answer, or has received no heartbeat for too long. The member joins again, and gets all
        # partitions back unless another program has come.
        self._owned.clear()
        self._least = self._partitions

    def _look_for_a_successor(self) -> None:
        """Ends the program if another program has its place. If no program has the place, the topic may be gone."""
        others = [each for each in self._others() if each.partitions]
        # Kafka tells an evicted member only that it is not in the group any more, if it asks after the eviction.
        if successors := self._of_same_checkpoint(others):
            self._problem = self._taken_by(successors)
        elif others:
            self._problem = UserError(
                f"Kafka has received no heartbeat from this {self._kind.name} for more than {SESSION_TIMEOUT_S:.0f} s. "
                f"Meanwhile another one was started on the same topics: {_names(others)}. {_ADVICE}"
            )

    def _taken_by(self, successors: Sequence[GroupMember]) -> UserError:
        return UserError(
            f"Another {self._kind.name} was started on the same checkpoint, and has taken this one's place: "
            f"{_names(successors)}. It was started with --take-over, or Kafka had received no heartbeat from this one. "
            "Run only one of them."
        )

    def _others(self) -> list[GroupMember]:
        """Returns the other programs with a partition, or all other programs if none of them has a partition.

        Programs whose place this program takes do not count.

        Returns no program if Kafka does not answer.
        """
        others = [each for each in self._members() if each.instance_id != self._instance_id]
        others = [each for each in others if self._holds.is_set() or not self._is_predecessor(each)]
        return [each for each in others if each.partitions] or others

    def _members(self) -> list[GroupMember]:
        try:
            return self._admin.members(self._group_id, _LOOK_TIMEOUT_S)
        except UserError:
            return []

    def _patience_s(self) -> float:
        # Two programs that start at once on a topic of several partitions may get some partitions each. The program
        # without partition 0 gives up first.
        return _PATIENCE_S * (2 if 0 in self._owned else 1)


def _names(members: Sequence[GroupMember]) -> str:
    return "; ".join(map(_name, members))


def _name(member: GroupMember) -> str:
    """Returns the names of a member in Kafka, with its process if the process is on this machine."""
    name = f"{member.client_id} at {member.host}, id {checkpoint_of(member)}"
    pid = running_here(member.client_id, *_COMMANDS)
    return name if pid is None else f"process {pid} on this machine ({name})"


def checkpoint_of(member: GroupMember) -> str:
    """Returns the id of a member's checkpoint. The id of a member of version 0.2 or older is that of its checkpoint."""
    return (member.instance_id or "").partition(".")[0]
