"""The decisions of one partition, each carried out once and in order, also after failures.

The caller takes the partition's records in the order of their offsets, carries out the decisions that `take` yields,
and reports failed deliveries with `fail`. Deliveries, marks and reports are one transaction. After its commit the
caller calls `commit`. After an abort it calls `roll_back`, and takes the same records again. After a crash it begins
with the marks that were stored last.

A failed delivery begins a refusal: the rest of its round is returned to the router, in reports. The router raises the
round when it has read a report, and a decision of a higher round ends the refusal. So does a decision of a later
conversation with the same identifier: after the router has forgotten a conversation, a program may begin a new
conversation.

A delivery without a number (a timer, an Error about an unknown conversation) has no place in the order of its
direction. So its failure refuses no other delivery, and no other failure refuses it. Otherwise the router could not
know which later messages of the direction are still to be returned.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from streaming.core.conversations.decisions import CleanUp, Decision, Deliver
from streaming.core.conversations.kinds import Source
from streaming.core.conversations.marks import Marks, Verdict

# `keep_from` of a position if only messages of service-incoming were returned. CLEAN_UP then deletes nothing there, and
# in service-messages as usual, because no offset is as high as this number. service-marks has the number, so it stays.
ANY_INCOMING = 2**63 - 1

# The most deliveries in a report. A report that is too large for Kafka, because names are long, is split later.
MAX_RETURNED = 200

# A conversation and the side that sends.
Sender = tuple[str, bool]


@dataclass(frozen=True, slots=True)
class DecisionBatch:
    """A record of decisions.

    Attributes:
        offset: The record's offset in service-decisions.
        generation: The generation of the router's checkpoint.
        number: The number of the record.
        first: The number of the first record of its batch.
        ends: The offsets up to which the router had read.
        decisions: The decisions, in order.
    """

    offset: int
    generation: int
    number: int
    first: int
    ends: tuple[int, int]
    decisions: list[Decision]


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason of a failed delivery.

    Attributes:
        is_lasting: Whether the message can never be delivered. Otherwise its delivery is tried again later.
        reason: The reason, in words.
        number: The number of Service Broker's message, if there is one.
    """

    is_lasting: bool
    reason: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal in force.

    Attributes:
        begun: The `begun` of the delivery that failed.
        round: The highest round that is refused.
        failure: The failure that began the refusal.
    """

    begun: int | None
    round: int
    failure: Failure


@dataclass(slots=True)
class Report:
    """Deliveries that are returned to the router.

    Attributes:
        sender: The conversation and the side that sends.
        begun: The `begun` of the deliveries.
        round: The round of the deliveries.
        failure: The failure that began the refusal.
        returned: The deliveries, in the order of the decisions.
    """

    sender: Sender
    begun: int | None
    round: int
    failure: Failure
    returned: list[Deliver] = field(default_factory=list)


@dataclass(slots=True)
class Position:
    """The point up to which a partition's decisions have been carried out.

    Attributes:
        marks: The marks.
        offset: The offset of the next record to take.
        done: The number of decisions of the next record that have been carried out already.
        keep_from: The lowest offset in service-messages of returned messages about which the router may not know. No
            CLEAN_UP may delete these messages yet. ANY_INCOMING: all such messages are in service-incoming; None: there
            are no such messages.
    """

    marks: Marks = field(default_factory=Marks)
    offset: int = 0
    done: int = 0
    keep_from: int | None = None

    def copy(self) -> "Position":
        """Returns a copy."""
        return Position(replace(self.marks), self.offset, self.done, self.keep_from)


@dataclass(frozen=True, slots=True)
class _Hold:
    """Returned messages about which the router may not know yet, so that its CLEAN_UP may concern them.

    The first records after the report may belong to a batch that was planned before the report. The next batch was
    planned after the report, and in each batch the router reads all reports that exist.

    Attributes:
        lowest_offset: The lowest offset of the messages.
        end: The end of service-decisions when the report was committed.
        batch: The first batch with a record after the report; None: no such record has come yet.
    """

    lowest_offset: int
    end: int
    batch: tuple[int, int] | None = None


class Carrying:
    """The decisions of one partition.

    Attributes:
        position: The point up to which the decisions have been carried out, including the open transaction.
        refusals: The refusals in force.
        reports: The reports of the open transaction.
        passed_over: Verdict -> number of records that the open transaction passes over.
    """

    def __init__(self, position: Position, refusals: Mapping[Sender, Refusal], end: int) -> None:
        """Begins at the position that was stored last.

        Args:
            position: The stored position.
            refusals: The stored refusals.
            end: The present end of service-decisions.
        """
        self.position = position
        self.refusals = {**refusals}
        self.reports: list[Report] = []
        self.passed_over: dict[Verdict, int] = dict.fromkeys(Verdict, 0)
        self._stored = position.copy()
        # The refusals, before the open transaction, of the directions that it has changed.
        self._before: dict[Sender, Refusal | None] = {}
        self._open: dict[Sender, Report] = {}
        self._holds = [] if position.keep_from is None else [_Hold(position.keep_from, end)]
        self._stored_holds = self._holds
        # The lowest offset of the messages that the open transaction returns.
        self._returned_from: int | None = None

    def take(self, record: DecisionBatch) -> Iterator[Decision]:
        """Yields the decisions of a record that are to be carried out, in order.

        Yielded decisions count as carried out. A caller may stop before the last decision, commit, and take the same
        record again, which yields the other decisions.

        Raises:
            LostDecisionsError: Decisions are missing, so nothing further may be carried out.
        """
        position = self.position
        marks = position.marks
        verdict = marks.verdict(record.generation, record.number, record.first, record.ends)
        if record.generation > marks.generation:
            self._begin_generation(record.generation)
        if verdict is not Verdict.CARRY_OUT:
            self.passed_over[verdict] += 1
            position.offset = record.offset + 1
            return
        if self._holds:
            self._release(record)
        decisions = record.decisions
        for index in range(position.done, len(decisions)):
            position.done = index + 1
            decision = decisions[index]
            if position.keep_from is not None and isinstance(decision, CleanUp):
                # A later record of the same transaction may end the hold on messages that this CLEAN_UP would delete.
                decision = replace(decision, messages=min(decision.messages, position.keep_from), incoming=0)
            if not (self.refusals and isinstance(decision, Deliver) and self._is_refused(decision)):
                yield decision
        marks.carried_out(record.generation, record.number, record.first, record.ends)
        position.done = 0
        position.offset = record.offset + 1

    def skip(self, offset: int) -> None:
        """Passes over a record that cannot be decoded."""
        self.position.offset = offset + 1

    def fail(self, delivery: Deliver, failure: Failure) -> None:
        """Notes that a delivery has failed, and refuses the rest of its round. `take` has yielded the delivery."""
        sender = delivery.conversation_id, delivery.is_initiator
        if delivery.sequence is None:
            self.reports.append(Report(sender, delivery.begun, delivery.round, failure, [delivery]))
            return
        self._change(sender, Refusal(delivery.begun, delivery.round, failure))
        # The message of a lasting failure is in service-dead-letters, so it is not returned.
        self._report(sender, delivery, is_returned=not failure.is_lasting)

    def changed_refusals(self) -> dict[Sender, Refusal | None]:
        """Returns the refusals that the open transaction has changed; None: the refusal has ended."""
        return {sender: self.refusals.get(sender) for sender in self._before}

    def commit(self, end: int) -> None:
        """Notes that the open transaction is committed.

        Args:
            end: The present end of service-decisions. It matters only if there were reports.
        """
        if self._returned_from is not None:
            self._holds = [*self._holds, _Hold(self._returned_from, end)]
        self._stored, self._stored_holds = self.position.copy(), self._holds
        self._close()

    def roll_back(self) -> None:
        """Goes back to the last commit."""
        for sender, refusal in self._before.items():
            if refusal is None:
                self.refusals.pop(sender, None)
            else:
                self.refusals[sender] = refusal
        self.position, self._holds = self._stored.copy(), self._stored_holds
        self._close()

    def _begin_generation(self, generation: int) -> None:
        for sender in [*self.refusals]:
            self._change(sender, None)
        self.position.marks.carried_out(generation, 0, 0, (0, 0))
        self.position.done = 0

    def _is_refused(self, delivery: Deliver) -> bool:
        sender = delivery.conversation_id, delivery.is_initiator
        refusal = self.refusals.get(sender)
        if refusal is None or delivery.sequence is None:
            return False
        if _order(delivery) > _order(refusal):
            self._change(sender, None)
            return False
        self._report(sender, delivery, is_returned=True)
        return True

    def _report(self, sender: Sender, delivery: Deliver, *, is_returned: bool) -> None:
        refusal = self.refusals[sender]
        begun, round_ = delivery.begun, delivery.round
        report = self._open.get(sender)
        if report is None or (report.begun, report.round) != (begun, round_) or len(report.returned) == MAX_RETURNED:
            report = self._open[sender] = Report(sender, begun, round_, refusal.failure)
            self.reports.append(report)
        if is_returned:
            report.returned.append(delivery)
            if delivery.offset is not None:
                lowest = delivery.offset if delivery.source == Source.MESSAGES else ANY_INCOMING
                before = self._returned_from
                self._returned_from = lowest if before is None else min(before, lowest)
                self._note_what_to_keep()

    def _change(self, sender: Sender, refusal: Refusal | None) -> None:
        self._before.setdefault(sender, self.refusals.get(sender))
        if refusal is None:
            del self.refusals[sender]
        else:
            self.refusals[sender] = refusal

    def _note_what_to_keep(self) -> None:
        held = [hold.lowest_offset for hold in self._holds]
        if self._returned_from is not None:
            held.append(self._returned_from)
        self.position.keep_from = min(held, default=None)

    def _release(self, record: DecisionBatch) -> None:
        batch = record.generation, record.first
        holds = []
        for hold in self._holds:
            if hold.batch is None and record.offset >= hold.end:
                holds.append(replace(hold, batch=batch))
            elif hold.batch in (None, batch):
                holds.append(hold)
        self._holds = holds
        self._note_what_to_keep()

    def _close(self) -> None:
        self._before = {}
        self._open = {}
        self._returned_from = None
        self.reports = []
        self.passed_over = dict.fromkeys(Verdict, 0)


def _order(of: Deliver | Refusal) -> tuple[int, int]:
    """Returns the key by which the rounds of all conversations with the same identifier are ordered."""
    return (-1 if of.begun is None else of.begun), of.round
