"""The question about a group that nobody has watched: the first look, and the looks after it."""

import pytest

from streaming.core.observer.logs import Logs
from streaming.core.observer.phantoms import Probed
from streaming.core.observer.pictures import GroupPicture, GroupState, Member, Place
from streaming.core.observer.question import Answer, Question
from streaming.core.observer.verdict import Verdict

FIRST: Place = ("t", 0)
OTHER: Place = ("t", 1)


def asked(
    question: Question,
    *,
    ends: tuple[int, int],
    committed: tuple[int | None, int | None],
    members: int = 1,
    state: GroupState = GroupState.STABLE,
    begin: int = 0,
) -> Answer:
    logs = Logs()
    for place, end in zip((FIRST, OTHER), ends, strict=True):
        logs.seen(place, begin, end, 0)
    owner = Member("m", "m", "", frozenset({"t"}), frozenset({FIRST, OTHER}))
    offsets = {place: at for place, at in zip((FIRST, OTHER), committed, strict=True) if at is not None}
    return question.look(GroupPicture(state, "range", (owner,) * members, offsets), logs)


class TestWithMembers:
    def test_members_that_get_past_the_first_look_keep_up_however_much_arrives(self) -> None:
        question = Question()
        first = asked(question, ends=(5, 5), committed=(0, 0))
        assert (first.verdict.one_more, first.is_final) == (True, False)
        last = asked(question, ends=(99, 99), committed=(5, 5))
        assert (last.verdict, last.is_final) == (Verdict(False, "its members keep up"), True)
        assert sum(each.backlog for each in last.waiting) == 2 * 94
        assert question.has_advanced

    def test_members_that_do_not_leave_the_question_open(self) -> None:
        question = Question()
        for _ in range(2):
            answer = asked(question, ends=(5, 5), committed=(0, 0))
        assert (answer.verdict.one_more, answer.is_final) == (True, False)
        assert not question.has_advanced

    def test_a_group_that_rebalances_is_not_asked_again(self) -> None:
        answer = asked(Question(), ends=(5, 5), committed=(0, 0), state=GroupState.REBALANCING, members=0)
        assert (answer.verdict.one_more, answer.is_final) == (None, True)

    def test_a_topic_that_they_subscribe_and_that_does_not_exist_is_named(self) -> None:
        logs = Logs()
        logs.seen(FIRST, 0, 5, 0)
        owner = Member("m", "m", "", frozenset({"t", "leters"}), frozenset({FIRST}))
        answer = Question().look(GroupPicture(GroupState.STABLE, "range", (owner,), {FIRST: 5}), logs)
        absent = "nothing is unread, and topic leters does not exist"
        assert answer.verdict == Verdict(False, absent, absent=("leters",))


class TestWithoutMembers:
    def test_its_backlog_is_to_be_tested_first(self) -> None:
        question = Question()
        answer = asked(question, ends=(5, 9), committed=(5, 4), members=0, state=GroupState.EMPTY)
        assert (answer.verdict.one_more, answer.is_final, answer.to_test) == (None, False, [(OTHER, 4)])
        question.phantoms.probed(OTHER, Probed(4, 6, 6))
        answer = asked(question, ends=(5, 9), committed=(5, 4), members=0, state=GroupState.EMPTY)
        assert (answer.verdict.one_more, answer.is_final, answer.to_test) == (True, True, [])
        assert [each.backlog for each in answer.waiting] == [3]

    def test_a_backlog_without_content_is_none(self) -> None:
        question = Question()
        question.phantoms.probed(OTHER, Probed(4, 9, None))
        answer = asked(question, ends=(5, 9), committed=(5, 4), members=0, state=GroupState.EMPTY)
        assert (answer.verdict.one_more, answer.waiting) == (False, [])

    def test_what_retention_has_deleted_is_not_unread(self) -> None:
        question = Question()
        question.phantoms.is_denied = True
        answer = asked(question, ends=(5, 9), committed=(0, 0), members=0, state=GroupState.EMPTY, begin=5)
        assert [each.backlog for each in answer.waiting] == [4]

    @pytest.mark.parametrize(("begin", "offsets"), [(4, "5 offsets"), (8, "1 offset")])
    def test_of_a_partition_that_was_never_committed_nobody_knows_where_its_consumers_begin(
        self, begin: int, offsets: str
    ) -> None:
        answer = asked(Question(), ends=(5, 9), committed=(5, None), members=0, state=GroupState.EMPTY, begin=begin)
        assert (answer.verdict.one_more, answer.is_final, answer.waiting) == (None, True, [])
        assert answer.verdict.reason == (
            f"nothing is unread, but t-1, which the group has never committed, holds {offsets}: only the group's "
            "consumers know whether they begin at the beginning or at the end (auto.offset.reset)"
        )

    def test_a_partition_that_was_never_committed_and_is_empty_changes_nothing(self) -> None:
        answer = asked(Question(), ends=(5, 4), committed=(5, None), members=0, state=GroupState.EMPTY, begin=4)
        assert answer.verdict == Verdict(False, "nothing is unread")

    def test_nor_does_one_beside_a_partition_that_holds_messages(self) -> None:
        question = Question()
        question.phantoms.is_denied = True
        answer = asked(question, ends=(5, 9), committed=(4, None), members=0, state=GroupState.EMPTY)
        assert (answer.verdict.one_more, [each.place for each in answer.waiting]) == (True, [FIRST])


class TestWithoutAnAnswer:
    def test_a_partition_that_nobody_answers_about_makes_no_unknown(self) -> None:
        logs = Logs()
        logs.has("t", 2)
        logs.seen(FIRST, 0, 5, 0)
        owner = Member("m", "m", "", frozenset({"t"}), frozenset({FIRST, OTHER}))
        picture = GroupPicture(GroupState.STABLE, "range", (owner,), {FIRST: 5})
        verdict = Question().look(picture, logs).verdict
        assert (verdict.one_more, verdict.reason) == (None, "no answer came about t-1")

    def test_so_does_a_topic_that_may_not_be_seen(self) -> None:
        logs = Logs()
        logs.is_not_answered("t")
        picture = GroupPicture(GroupState.EMPTY, committed={FIRST: 5})
        assert Question().look(picture, logs).verdict.reason == "no answer came about t"
        logs.forget("t")
        assert Question().look(picture, logs).verdict.one_more is False, "a topic that is gone has no backlog"

    def test_a_yes_stays_a_yes(self) -> None:
        logs = Logs()
        logs.has("t", 2)
        logs.seen(FIRST, 0, 5, 0)
        question = Question()
        question.phantoms.is_denied = True
        assert question.look(GroupPicture(GroupState.EMPTY, committed={FIRST: 1}), logs).verdict.one_more is True

    def test_a_group_that_is_not_described_is_unknown_and_what_comes_later_is_progress(self) -> None:
        question, logs = Question(), Logs()
        assert question.look(GroupPicture(GroupState.UNKNOWN), logs).verdict.one_more is None
        asked(question, ends=(5, 5), committed=(0, None))
        assert not question.has_advanced
        asked(question, ends=(5, 5), committed=(0, 1))
        assert question.has_advanced, "the first commit of a partition is one"

    def test_what_was_answered_once_stands(self) -> None:
        logs = Logs()
        logs.seen(FIRST, 0, 5, 0)
        logs.is_not_answered("t")
        assert logs.missing({"t"}) is None
