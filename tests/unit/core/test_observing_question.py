"""The question about a group that nobody has watched: the first look, and the looks after it."""

from streaming.core.observing.logs import Logs
from streaming.core.observing.pictures import GroupPicture, GroupState, Member, Place
from streaming.core.observing.question import Answer, Question

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
        assert (last.verdict.one_more, last.is_final) == (False, True)
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


class TestWithoutMembers:
    def test_its_backlog_is_to_be_tested_first(self) -> None:
        question = Question()
        answer = asked(question, ends=(5, 9), committed=(5, 4), members=0, state=GroupState.EMPTY)
        assert (answer.verdict.one_more, answer.is_final, answer.to_test) == (None, False, [(OTHER, 4)])
        question.phantoms.probed(OTHER, 6, 6)
        answer = asked(question, ends=(5, 9), committed=(5, 4), members=0, state=GroupState.EMPTY)
        assert (answer.verdict.one_more, answer.is_final, answer.to_test) == (True, True, [])
        assert [each.backlog for each in answer.waiting] == [3]

    def test_a_backlog_without_content_is_none(self) -> None:
        question = Question()
        question.phantoms.probed(OTHER, 9, None)
        answer = asked(question, ends=(5, 9), committed=(5, 4), members=0, state=GroupState.EMPTY)
        assert (answer.verdict.one_more, answer.waiting) == (False, [])

    def test_what_retention_has_deleted_is_not_unread(self) -> None:
        question = Question()
        question.phantoms.is_denied = True
        answer = asked(question, ends=(5, 9), committed=(0, 0), members=0, state=GroupState.EMPTY, begin=5)
        assert [each.backlog for each in answer.waiting] == [4]

    def test_a_partition_that_was_never_committed_does_not_count(self) -> None:
        answer = asked(Question(), ends=(5, 9), committed=(5, None), members=0, state=GroupState.EMPTY)
        assert answer.verdict.one_more is False
