"""Each line of the table of marks.py."""

import pytest

from streaming.core.conversations.marks import LostDecisionsError, Marks, Verdict

ENDS = (100, 7)


@pytest.fixture
def marks() -> Marks:
    """Returns marks after number 12 of generation 2, in a batch that began with 10."""
    return Marks(2, 12, 10, ENDS)


@pytest.mark.parametrize(
    ("number", "first", "ends", "verdict"),
    [
        (13, 10, ENDS, Verdict.CARRY_OUT),  # the next one of the same batch
        (13, 13, (200, 7), Verdict.CARRY_OUT),  # the first one of the next batch
        (12, 10, ENDS, Verdict.REPEAT),
        (10, 10, ENDS, Verdict.REPEAT),
        (3, 1, (50, 0), Verdict.REPEAT),  # of an older batch
        (14, 10, ENDS, Verdict.COMES_AGAIN),
        (14, 13, (200, 7), Verdict.COMES_AGAIN),
    ],
)
def test_each_line(marks: Marks, number: int, first: int, ends: tuple[int, int], verdict: Verdict) -> None:
    assert marks.verdict(2, number, first, ends) is verdict
    assert marks == Marks(2, 12, 10, ENDS)


@pytest.mark.parametrize(
    ("number", "first", "ends", "reason"),
    [
        (14, 14, (200, 7), "decisions 13 to 13 of generation 2 are missing"),
        (20, 17, (200, 7), "decisions 13 to 16 of generation 2 are missing"),
        (11, 10, (101, 7), r"begin with decision 10 .* \(100, 7\) and \(101, 7\)"),
        (13, 10, (100, 8), "begin with decision 10"),
        (13, 11, ENDS, "decision 13 is in a batch that begins with 11, but decision 12 .* begins with 10"),
        (14, 9, ENDS, "decision 14 is in a batch that begins with 9"),
    ],
)
def test_what_stops_the_partition(marks: Marks, number: int, first: int, ends: tuple[int, int], reason: str) -> None:
    with pytest.raises(LostDecisionsError, match=reason):
        marks.verdict(2, number, first, ends)
    assert marks == Marks(2, 12, 10, ENDS)


def test_a_lower_generation_is_refused_whatever_its_number(marks: Marks) -> None:
    assert marks.verdict(1, 13, 13, ENDS) is Verdict.OLDER_GENERATION


def test_a_new_generation_begins_with_1(marks: Marks) -> None:
    assert marks.verdict(3, 1, 1, (5, 5)) is Verdict.CARRY_OUT
    assert marks.verdict(3, 2, 1, (5, 5)) is Verdict.COMES_AGAIN
    with pytest.raises(LostDecisionsError, match="decisions 1 to 12 of generation 3 are missing"):
        marks.verdict(3, 13, 13, ENDS)


def test_the_first_record_ever() -> None:
    assert Marks().verdict(1, 1, 1, ENDS) is Verdict.CARRY_OUT
    assert Marks().verdict(1, 3, 1, ENDS) is Verdict.COMES_AGAIN
    with pytest.raises(LostDecisionsError, match="a batch that begins with 0"):
        Marks().verdict(1, 1, 0, ENDS)


def test_a_record_that_was_carried_out_is_the_last_one() -> None:
    marks = Marks()
    marks.carried_out(1, 1, 1, ENDS)
    assert marks == Marks(1, 1, 1, ENDS)
    assert marks.verdict(1, 1, 1, ENDS) is Verdict.REPEAT
    assert marks.verdict(1, 2, 1, ENDS) is Verdict.CARRY_OUT
