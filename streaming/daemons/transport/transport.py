"""The transport: delivers messages into the topics of queues, as the router has decided, each once and in order.

All records that a decision causes are in one Kafka transaction with the marks and the consumer group's offsets: the
messages, their arrivals, dead letters, and reports of failed deliveries. Records for other instances are not in the
transaction. They may be lost or repeated, which the router repairs.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message

from streaming.core.conversations.decision_batches import Failure
from streaming.core.maintenance.schedule import PeriodicTask
from streaming.core.maintenance.tasks import RESUME_DELETIONS
from streaming.core.routing.resolution import FORWARDING_OFF
from streaming.daemons.transport.clean_up import CleanUps
from streaming.daemons.transport.connections import Connections
from streaming.daemons.transport.metrics import Counts, Metrics
from streaming.daemons.transport.queue_topics import QueueTopics, TopicsUnknownError
from streaming.daemons.transport.records import Records, RecordsUnavailableError
from streaming.daemons.transport.settings import TransportSettings
from streaming.daemons.transport.share import Share
from streaming.daemons.transport.transaction import MAX_DECISIONS, Context, Transaction, Written, decision_batch
from streaming.errors import UserError
from streaming.kafka import errors
from streaming.kafka.access import AccessDeniedError, Rights, rights
from streaming.kafka.admin import Admin
from streaming.kafka.broker_clock import BrokerClock
from streaming.kafka.errors import ClientRefusedError, TransactionAbortedError
from streaming.kafka.periodic_tasks import PeriodicTasks, Publisher
from streaming.kafka.transactions import TransactionalProducer
from streaming.system import hints
from streaming.system.metrics_server import MetricsServer
from streaming.system.threads import within
from streaming.wire.own_groups import own_group
from streaming.wire.record_decoders import RecordDecoder
from streaming.wire.topics import Topics

# The consumer group of all transports of a topic prefix; the prefix is put before it.
GROUP_ID = own_group("transport")
# The line that a transport prints when it has its share of the decisions. Programs wait for exactly this line.
READY = "transport ready"
STEP_S = 0.2
_AGAIN_AFTER_S = 0.2
# As for the task host: calls of librdkafka that take longer never return.
_COMMIT_TIMEOUT_S = 30.0
_STOPPED_INTERVAL_S = 60.0

_PRODUCER = {
    # The broker decides what is too large, by the topic's own limit.
    "message.max.bytes": 1_000_000_000,
    # A queue's topic that is missing must not be created by accident.
    "allow.auto.create.topics": False,
    "linger.ms": 5,
    "delivery.report.only.error": True,
}
# The fate of the other records of a transaction that is aborted.
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
# A record that fails this often, alone in its transaction, is refused even if Kafka's reason is another one.
_MAX_REFUSALS = 3


class Transport:
    """The transport. In the block of this context manager, call either `run`, or `step` repeatedly.

    Attributes:
        counts: The work of the transport so far, and its position.
    """

    def __init__(self, settings: TransportSettings, say: Callable[[str], None]) -> None:
        """Stores the settings.

        Args:
            settings: The transport's settings.
            say: Writes a line to the transport's log. The line is READY when the transport has its share.
        """
        self._settings = settings
        self._say = say
        self._topics = Topics(settings.topic_prefix)
        self._producer: TransactionalProducer | None = None
        self._limit = MAX_DECISIONS
        self._again_s = 0.0
        self.counts = Counts()
        self._refusals: Counter[Written] = Counter()
        self._refused: KafkaError | None = None
        self._has_lost = False
        self._tell_lost_s = 0.0
        self._is_stopping: Callable[[], bool] = lambda: False

    def __enter__(self) -> Self:
        """Joins the consumer group of the transports.

        Raises:
            UserError: Kafka denies access or cannot be reached, or a topic is missing.
        """
        cluster, topics = self._settings.cluster, self._topics
        group_id = self._settings.group_id or self._settings.topic_prefix + GROUP_ID
        self._admin = admin = Admin(cluster)
        partitions = admin.require_topics(needed_rights(topics))
        admin.require_group(group_id)
        with ExitStack() as resources:
            if self._settings.metrics_port is not None:
                topic = topics.service_decisions
                address = self._settings.metrics_host, self._settings.metrics_port
                server = resources.enter_context(MetricsServer(*address))
                resources.enter_context(Metrics(server, cluster, topic, partitions[topic], self.counts))
            self._producer = self._open()
            self._share = Share(cluster, topics.service_decisions, topics.service_marks, group_id)
            self._records = Records(cluster)
            self._queues = QueueTopics(admin, topics)
            self._clean_ups = CleanUps(admin, topics, self._say)
            clock = BrokerClock()
            # The program's record is written at once and then every 5 s, and the brokers' stamps on it set the clock.
            reports = cluster.producer({"enable.idempotence": True, "on_delivery": clock.on_delivery})
            self._connections = Connections(self._settings, topics, reports, self._say, clock)
            self._periodic = PeriodicTasks(
                {**self._connections.periodic_tasks(), PeriodicTask(*RESUME_DELETIONS): self._clean_ups.resume},
                Publisher("transport", reports, topics),
                self._say,
                self._settings.notification_interval_ms,
                self._connections.rows,
            )
            self.counts.tasks = self._periodic.tasks
            decoder = RecordDecoder("record of decisions", decision_batch, self._say)
            self._context = Context(topics, self._share, self._records, self._queues, self._connections, decoder)
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._resources:
            self._share.close()
            self._records.close()
            self._periodic.close()
            self._connections.close()
            self._close_producer()

    def run(self, stop: Event) -> bool:
        """Carries out decisions until `stop` is set, and finishes the transaction in progress.

        Returns:
            Whether no decision was lost. Otherwise a partition has stopped.
        """
        self._is_stopping = stop.is_set
        has_said = False
        while not stop.is_set():
            self.step(STEP_S)
            if self._share.is_member and not has_said:
                has_said = True
                self._say(READY)
        return not self._has_lost

    def step(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` for decisions, and carries out the decisions that have arrived.

        Raises:
            UserError: Kafka does not grant a right that the transport needs.
        """
        share = self._share
        has_to_wait = time.monotonic() < self._again_s
        share.fill(0 if share.waiting and not has_to_wait else timeout_s)
        self._records.keep_only(share.partitions)
        self._clean_ups.look()
        self.counts.dropped.update({str(number): n for number, n in self._connections.serve().items()})
        self._periodic.look()
        self._note_share()
        self._tell_lost()
        if not share.waiting or time.monotonic() < self._again_s:
            return
        try:
            self._producer = self._producer or within(_COMMIT_TIMEOUT_S, self._open)
            self._carry_out(self._producer)
        except ClientRefusedError as error:
            self._require_rights()
            self._wait(str(error))
        except AccessDeniedError:
            raise
        except (TransactionAbortedError, RecordsUnavailableError, TopicsUnknownError) as error:
            self._wait(str(error))
        except (UserError, TimeoutError) as error:
            # The outcome of the transaction is unknown.
            self._producer = None
            share.rejoin()
            self._wait(str(error))

    def _carry_out(self, producer: TransactionalProducer) -> None:
        """Carries out waiting decisions in one transaction."""
        group = self._share.group_metadata()
        if group is None:
            return  # Kafka has expelled the transport from the group. The next steps join the group again.
        done = Transaction(self._context, producer, self._limit)
        self._refused = None

        def attempt() -> None:
            with producer.transaction():
                done.fill(self._is_stopping)
                done.finish()
                if done.touched:
                    producer.send_offsets(self._share.offsets(done.touched), group)

        try:
            within(_COMMIT_TIMEOUT_S, attempt)
        except Exception as error:
            for number in done.touched:
                self._share.partitions[number].carrying.roll_back()
            done.aborted()
            self.counts.aborted += 1
            if self._can_go_on_at_once(error, done):
                return
            raise
        self._committed(done)

    def _committed(self, done: Transaction) -> None:
        self._limit = min(2 * self._limit, MAX_DECISIONS)
        self._context.refused.clear()
        self._refusals.clear()
        if self.counts.problem is not None:
            self.counts.problem = None
            self._say("decisions are carried out again")
        done.committed()
        partitions = self._share.partitions
        self._count(done)
        try:
            for number in done.touched:
                carrying = partitions[number].carrying
                carrying.commit(self._share.end_of(number) if carrying.reports else 0)
        except KafkaException:
            # The stored positions are right, so a new member begins with them.
            self._share.rejoin()
            return
        for number, (offset, clean_up) in done.clean_ups.items():
            self._clean_ups.start(partitions[number], offset, clean_up)
        for number, reason in done.lost.items():
            self._share.stop(partitions[number], reason)

    def _count(self, done: Transaction) -> None:
        """Counts the work of a committed transaction."""
        counts = self.counts
        counts.add(done.services, done.dead_letters)
        if FORWARDING_OFF in done.dropped and str(FORWARDING_OFF) not in counts.dropped:
            self._say(
                f"messages from other instances are dropped ({FORWARDING_OFF}), because message forwarding is off. "
                f"{hints.sending_on()}"
            )
        counts.dropped.update({"" if number is None else str(number): n for number, n in done.dropped.items()})
        counts.passed_over["INVALID"] = self._context.decoder.passed_over
        for number in done.touched:
            carrying = self._share.partitions[number].carrying
            counts.refused += sum(len(report.returned) for report in carrying.reports)
            for verdict, count in carrying.passed_over.items():
                if count:
                    counts.passed_over[verdict.value] += count

    def _can_go_on_at_once(self, error: Exception, done: Transaction) -> bool:
        """Looks for the delivery that made Kafka abort a transaction. Returns whether to go on without a pause.

        If the delivery is not known, the next transaction has one delivery, and each later transaction has twice as
        many as the transaction before. So a delivery that fails is soon alone.
        """
        if not isinstance(error, (TransactionAbortedError, ClientRefusedError)):
            return False
        cause = error.__cause__
        # The failure of a record can make the next call fail with a reason that does not name it.
        reason = self._refused or (errors.kafka_error(cause) if isinstance(cause, KafkaException) else None)
        if isinstance(error, TransactionAbortedError):
            if errors.is_rebalance(error):
                return True
            if reason is None or reason.code() in errors.NO_FAULT_OF_A_RECORD:
                self._limit = max(self._limit // 2, 1)
                return False
        self._close_producer()
        self._queues.forget()
        self._limit = 1
        if len(done.written) != 1 or reason is None:
            return bool(done.written)
        [written] = done.written
        self._refusals[written] += 1
        is_lasting = reason.code() in errors.FAULTS_OF_A_RECORD
        is_known = is_lasting or reason.code() in errors.FAULTS_OF_A_TOPIC
        if is_known or self._refusals[written] == _MAX_REFUSALS:
            self._context.refused[written] = Failure(is_lasting, f"Kafka refuses the record: {reason.str()}")
            return True
        return False

    def _close_producer(self) -> None:
        """Closes the producer. The next transaction opens another producer.

        A producer whose record Kafka has refused is of no more use: in its next transaction Kafka would find a gap in
        the sequence numbers (librdkafka 2.16).
        """
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _wait(self, problem: str) -> None:
        """Says once why no decision is carried out. The next attempt comes after a moment."""
        if self.counts.problem is None:
            self._say(f"decisions wait: {problem}")
        self.counts.problem = problem
        self._again_s = time.monotonic() + _AGAIN_AFTER_S

    def _note_share(self) -> None:
        counts, partitions = self.counts, self._share.partitions
        counts.stepped_s = time.monotonic()
        counts.is_member = self._share.is_member
        counts.sent = {each.address: each.messages for each in self._connections}
        counts.unsent = {each.address: each.dropped for each in self._connections}
        if self._connections.dropped:
            counts.unsent[""] = self._connections.dropped
        counts.is_connected = {each.address: each.is_connected for each in self._connections}
        counts.offsets = {number: each.carrying.position.offset for number, each in partitions.items()}
        counts.stopped = {number: each.stopped for number, each in partitions.items() if each.stopped is not None}

    def _tell_lost(self) -> None:
        """Says once a minute which partitions have stopped."""
        now_s, stopped = time.monotonic(), self.counts.stopped
        if not stopped or now_s < self._tell_lost_s:
            return
        self._has_lost = True
        self._tell_lost_s = now_s + _STOPPED_INTERVAL_S
        for number, reason in stopped.items():
            self._say(
                f"error: {self._topics.service_decisions}[{number}] has stopped, and its conversations wait: {reason}"
            )

    def _require_rights(self) -> None:
        """Raises AccessDeniedError if a right is missing that the transport needs."""
        try:
            self._admin.require_topics(needed_rights(self._topics))
        except AccessDeniedError:
            raise
        except UserError:
            return  # Kafka does not answer.

    def _open(self) -> TransactionalProducer:
        # Each producer has a transactional id of its own, so transports do not fence each other. The consumer group
        # assigns the partitions, and Kafka checks the membership with each commit.
        return TransactionalProducer(self._settings.cluster, fixed={**_PRODUCER, "on_delivery": self._take_report})

    def _take_report(self, error: KafkaError | None, _message: Message) -> None:
        """Notes why Kafka has refused a record of the open transaction."""
        if error is not None and error.code() not in _PURGED:
            self._refused = self._refused or error


def needed_rights(topics: Topics) -> Rights:
    """Returns the rights that a transport needs, except rights on the topics of queues."""
    read = [topics.service_decisions, topics.service_messages, topics.service_incoming, topics.service_marks]
    written = [topics.service_marks, topics.service_reports, topics.service_maintenance, topics.service_dead_letters]
    return rights(reads=read, writes=[*written, topics.arrivals])
