"""Carrying out the decisions of a partition: what is carried out, returned, held, and stored."""

from typing import Any

import pytest

from streaming.core.conversations.decision_batches import (
    MAX_RETURNED,
    Carrying,
    DecisionBatch,
    Failure,
    Position,
    Refusal,
    Report,
)
from streaming.core.conversations.decisions import CleanUp, DeadLetter, Decision, Deliver
from streaming.core.conversations.kinds import Kind, Source
from streaming.core.conversations.marks import LostDecisionsError, Marks, Verdict

MISSING = Failure(is_lasting=False, reason="no topic")
TOO_LARGE = Failure(is_lasting=True, reason="too large")
ONE = ("c-1", True)


def held_from(carrying: Carrying) -> int | None:
    """Returns the lowest offset that no CLEAN_UP may delete."""
    return carrying.position.keep_from


def deliver(sequence: int | None, conversation_id: str = "c-1", **fields: Any) -> Deliver:
    values: dict[str, Any] = {
        "kind": Kind.MESSAGE,
        "conversation_id": conversation_id,
        "is_initiator": True,
        "sequence": sequence,
        "round": 1,
        "offset": None if sequence is None else 100 + sequence,
        "queue": "q",
        "service": "s",
        "from_service": "f",
        "group_id": "g",
        "begun": 100,
    }
    return Deliver(**values | fields)


def record(number: int, *decisions: Decision, first: int = 0, generation: int = 1, offset: int = 0) -> DecisionBatch:
    """Returns a record; by default it is a batch of its own, at an offset ten times its number."""
    first = first or number
    return DecisionBatch(offset or 10 * number, generation, number, first, (first, 0), [*decisions])


@pytest.fixture
def carrying() -> Carrying:
    return Carrying(Position(), {}, 0)


def fail_first(carrying: Carrying, failure: Failure, *records: DecisionBatch) -> list[Decision]:
    """Takes records, and lets the first delivery fail; returns what was carried out."""
    done: list[Decision] = []
    has_failed = False
    for each in records:
        for decision in carrying.take(each):
            if not has_failed and isinstance(decision, Deliver):
                has_failed = True
                carrying.fail(decision, failure)
            else:
                done.append(decision)
    return done


def test_decisions_are_carried_out_once_and_in_order(carrying: Carrying) -> None:
    decisions: list[Decision] = [
        deliver(0),
        DeadLetter(Source.MESSAGES, 5, "unknown", 8426),
        CleanUp(1, 2, 0),
        deliver(1),
    ]
    assert [*carrying.take(record(1, *decisions))] == decisions
    assert [*carrying.take(record(1, *decisions, offset=11))] == []
    assert [*carrying.take(record(3, deliver(2), first=2))] == []
    assert carrying.position == Position(Marks(1, 1, 1, (1, 0)), 31)
    assert carrying.passed_over == {
        Verdict.CARRY_OUT: 0,
        Verdict.REPEAT: 1,
        Verdict.COMES_AGAIN: 1,
        Verdict.OLDER_GENERATION: 0,
    }


def test_lost_decisions_change_nothing(carrying: Carrying) -> None:
    with pytest.raises(LostDecisionsError):
        next(carrying.take(record(2, deliver(0))))
    assert carrying.position == Position()


def test_a_record_that_cannot_be_decoded_is_passed_over(carrying: Carrying) -> None:
    carrying.skip(7)
    assert carrying.position == Position(offset=8)


def test_a_record_can_be_carried_out_in_parts(carrying: Carrying) -> None:
    decisions = [deliver(0), deliver(1), deliver(2)]
    assert next(carrying.take(record(1, *decisions))) == decisions[0]
    carrying.commit(0)
    assert carrying.position == Position(Marks(1, 0, 0, (0, 0)), 0, done=1)
    again = Carrying(carrying.position.copy(), {}, 0)
    assert [*again.take(record(1, *decisions))] == decisions[1:]
    assert again.position == Position(Marks(1, 1, 1, (1, 0)), 11)


def test_a_part_of_an_older_generations_record_does_not_count_for_a_newer_one(carrying: Carrying) -> None:
    assert next(carrying.take(record(1, deliver(0), deliver(1)))) == deliver(0)
    assert [*carrying.take(record(1, deliver(5), generation=2))] == [deliver(5)]
    assert [*carrying.take(record(1, deliver(0), deliver(1)))] == []
    assert carrying.passed_over[Verdict.OLDER_GENERATION] == 1


def test_a_failed_delivery_returns_the_rest_of_its_round(carrying: Carrying) -> None:
    others = [deliver(0, "c-2"), deliver(0, is_initiator=False)]
    done = fail_first(carrying, MISSING, record(1, deliver(0), *others, deliver(1)), record(2, deliver(2)))
    assert done == others
    assert carrying.reports == [Report(ONE, 100, 1, MISSING, [deliver(0), deliver(1), deliver(2)])]
    assert carrying.changed_refusals() == {ONE: Refusal(100, 1, MISSING)}


def test_a_message_that_can_never_be_delivered_is_not_returned(carrying: Carrying) -> None:
    fail_first(carrying, TOO_LARGE, record(1, deliver(0), deliver(1, offset=None)))
    assert carrying.reports == [Report(ONE, 100, 1, TOO_LARGE, [deliver(1, offset=None)])]
    assert carrying.changed_refusals() == {ONE: Refusal(100, 1, TOO_LARGE)}


def test_a_lasting_failure_is_reported_even_if_nothing_is_returned(carrying: Carrying) -> None:
    fail_first(carrying, TOO_LARGE, record(1, deliver(0)))
    assert carrying.reports == [Report(ONE, 100, 1, TOO_LARGE, [])]


def test_a_higher_round_ends_the_refusal(carrying: Carrying) -> None:
    fail_first(carrying, MISSING, record(1, deliver(0)))
    carrying.commit(0)
    assert carrying.changed_refusals() == {}
    again = [deliver(0, round=2), deliver(1, round=2)]
    assert [*carrying.take(record(2, *again))] == again
    assert carrying.changed_refusals() == {ONE: None}
    assert carrying.refusals == {}


def test_a_round_that_fails_again_has_a_report_of_its_own(carrying: Carrying) -> None:
    fail_first(carrying, MISSING, record(1, deliver(0), deliver(1)))
    fail_first(carrying, TOO_LARGE, record(2, deliver(0, round=2), deliver(1, round=2)))
    assert carrying.reports == [
        Report(ONE, 100, 1, MISSING, [deliver(0), deliver(1)]),
        Report(ONE, 100, 2, TOO_LARGE, [deliver(1, round=2)]),
    ]
    carrying.roll_back()
    assert carrying.refusals == {}


def test_a_later_conversation_with_the_identifier_is_not_refused(carrying: Carrying) -> None:
    earlier, later = [deliver(0, round=5), deliver(1, round=5)], deliver(0, begun=107)
    assert fail_first(carrying, TOO_LARGE, record(1, *earlier, later)) == [later]
    assert carrying.refusals == {}


def test_a_later_conversation_with_the_identifier_has_a_report_of_its_own(carrying: Carrying) -> None:
    earlier, later = deliver(0), [deliver(0, begun=107), deliver(1, begun=107)]
    for each in carrying.take(record(1, earlier, *later)):
        assert isinstance(each, Deliver)
        carrying.fail(each, MISSING)
    assert carrying.reports == [Report(ONE, 100, 1, MISSING, [earlier]), Report(ONE, 107, 1, MISSING, later)]
    assert carrying.refusals == {ONE: Refusal(107, 1, MISSING)}


def test_a_long_report_becomes_several(carrying: Carrying) -> None:
    fail_first(carrying, MISSING, record(1, *(deliver(each) for each in range(MAX_RETURNED + 1))))
    assert [len(each.returned) for each in carrying.reports] == [MAX_RETURNED, 1]


def test_a_new_generation_ends_all_refusals(carrying: Carrying) -> None:
    fail_first(carrying, MISSING, record(1, deliver(0)))
    carrying.commit(0)
    assert [*carrying.take(record(1, deliver(0), generation=2))] == [deliver(0)]
    assert carrying.changed_refusals() == {ONE: None}


def test_after_an_abort_the_same_records_are_taken_again(carrying: Carrying) -> None:
    fail_first(carrying, MISSING, record(1, deliver(0)))
    carrying.commit(0)
    before = carrying.position.copy(), {**carrying.refusals}
    taken = [record(2, deliver(0, round=2), deliver(0, "c-2")), record(3, deliver(1, "c-2"))]
    for _ in range(2):
        assert [*carrying.take(taken[0])] == taken[0].decisions
        fail_first(carrying, MISSING, taken[1])
        assert carrying.refusals.keys() == {("c-2", True)}
        carrying.roll_back()
        assert (carrying.position, carrying.refusals, carrying.reports) == (*before, [])


def test_what_was_stored_is_enough_to_go_on(carrying: Carrying) -> None:
    fail_first(carrying, MISSING, record(1, deliver(0)))
    carrying.commit(0)
    again = Carrying(carrying.position.copy(), carrying.refusals, 20)
    assert [*again.take(record(2, deliver(1), deliver(0, "c-2")))] == [deliver(0, "c-2")]
    assert again.reports == [Report(ONE, 100, 1, MISSING, [deliver(1)])]


def test_what_was_returned_is_held_until_the_router_must_know_of_it(carrying: Carrying) -> None:
    assert held_from(carrying) is None
    fail_first(carrying, MISSING, record(1, deliver(3), deliver(5)))
    carrying.commit(100)
    assert held_from(carrying) == 103
    # Written before the report was committed.
    assert [*carrying.take(record(2, offset=99))] == []
    assert held_from(carrying) == 103
    # Written after the report, but by a batch that may have been planned before it.
    assert [*carrying.take(record(3, offset=100))] == []
    assert [*carrying.take(record(4, first=3, offset=101))] == []
    assert held_from(carrying) == 103
    # By the next batch.
    assert [*carrying.take(record(5, offset=102))] == []
    assert held_from(carrying) is None


def test_what_is_held_is_stored_although_its_refusal_has_ended() -> None:
    before = returned_before(20)
    assert held_from(before) == 100
    assert [*before.take(record(2, deliver(1, round=2)))] == [deliver(1, round=2)]
    assert before.refusals == {}
    before.commit(30)
    again = Carrying(before.position.copy(), {}, 40)
    assert held_from(again) == 100
    assert [*again.take(record(3, CleanUp(500, 0, 0)))] == [CleanUp(100, 0, 0)]
    for number in (4, 5):
        assert [*again.take(record(number))] == []
    assert held_from(again) is None


def test_a_clean_up_spares_what_its_own_transaction_returns(carrying: Carrying) -> None:
    assert fail_first(carrying, MISSING, record(1, deliver(0), CleanUp(500, 0, 0))) == [CleanUp(100, 0, 0)]
    assert held_from(carrying) == 100
    carrying.roll_back()
    assert held_from(carrying) is None


@pytest.mark.parametrize("failure", [MISSING, TOO_LARGE])
@pytest.mark.parametrize("kind", [Kind.TIMER, Kind.ERROR])
def test_what_has_no_number_fails_alone(carrying: Carrying, kind: Kind, failure: Failure) -> None:
    alone = deliver(None, kind=kind)
    assert fail_first(carrying, failure, record(1, alone, deliver(0))) == [deliver(0)]
    assert carrying.reports == [Report(ONE, 100, 1, failure, [alone])]
    assert carrying.refusals == {}
    assert carrying.changed_refusals() == {}


def test_what_has_no_number_is_not_refused_because_of_others(carrying: Carrying) -> None:
    timer = deliver(None, kind=Kind.TIMER)
    assert fail_first(carrying, MISSING, record(1, deliver(0), timer, deliver(1))) == [timer]
    assert [each.returned for each in carrying.reports] == [[deliver(0), deliver(1)]]


def returned_before(end: int) -> Carrying:
    """Returns a partition that has returned the message of record 100, when service-decisions had this end."""
    carrying = Carrying(Position(), {}, 0)
    fail_first(carrying, MISSING, record(1, deliver(0)))
    carrying.commit(end)
    return carrying


def test_a_transaction_that_is_rolled_back_releases_nothing() -> None:
    carrying = returned_before(20)
    for _ in range(2):
        assert [*carrying.take(record(2))] == []
        carrying.roll_back()
    assert held_from(carrying) == 100
    for number in (2, 3):
        assert [*carrying.take(record(number))] == []
    assert held_from(carrying) is None
    carrying.roll_back()
    assert held_from(carrying) == 100


def test_a_clean_up_that_does_not_know_of_a_return_spares_it_although_a_later_record_releases_it() -> None:
    carrying = returned_before(30)
    done = [decision for number in (2, 3, 4) for decision in carrying.take(record(number, CleanUp(500 + number, 7, 0)))]
    # As long as anything is held, nothing is deleted from service-incoming.
    assert done == [CleanUp(100, 0, 0), CleanUp(100, 0, 0), CleanUp(504, 7, 0)]
    assert held_from(carrying) is None
