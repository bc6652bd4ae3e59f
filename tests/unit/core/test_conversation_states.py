"""The states of an endpoint: every trigger in every state, and every statement of a program in every state."""

from typing import Any

import pytest

from streaming.core.conversations.decisions import WRONG_STATE
from streaming.core.conversations.endpoint_states import TRANSITIONS, State, Trigger, after
from tests.support.conversation_scene import INITIATOR, OFF, TARGET, Scene, envelope, in_state, open_scene

# The next state; `-`: the pair is refused, or cannot happen.
TRIGGERS = """
                  ABSENT  SO  CO  DI  DO  ER  CD
BEGIN             SO      -   -   -   -   -   -
SEND              -       CO  CO  -   -   -   -
END               -       CD  DO  CD  -   CD  -
END_WITH_ERROR    -       CD  DO  CD  -   CD  -
END_WITH_CLEANUP  -       CD  CD  CD  CD  CD  CD
SET_TIMER         -       SO  CO  DI  -   -   -
FIRST_RECEIVED    CO      -   -   -   -   -   -
FAR_ENDED         -       -   DI  DI  -   -   -
FAR_FAILED        -       ER  ER  ER  CD  ER  CD
END_DELIVERED     -       -   -   -   CD  -   CD
"""

# What the initiator's statement does in each state: the states of both sides after it.
STATEMENTS = """
         SO     CO     DI     DO     ER     CD
MESSAGE  CO_CO  CO_CO  -      -      -      -
END      CD_-   CD_DI  CD_CD  -      CD_CD  -
ERROR    CD_-   CD_ER  CD_CD  -      CD_CD  -
CLEANUP  CD_-   CD_CO  CD_CD  CD_CO  CD_CD  CD_CO
TIMER    SO_-   CO_CO  DI_CD  -      -      -
"""


def cases(table: str) -> list[Any]:
    header, *rows = [line.split() for line in table.strip().splitlines()]
    return [
        pytest.param(State[state], name, cell, id=f"{state}-{name}")
        for name, *cells in rows
        for state, cell in zip(header, cells, strict=True)
    ]


@pytest.mark.parametrize(("state", "trigger", "cell"), cases(TRIGGERS))
def test_every_state_and_trigger(state: State, trigger: str, cell: str) -> None:
    assert after(state, Trigger[trigger]) is (None if cell == "-" else State[cell])
    assert TRANSITIONS.get((state, Trigger[trigger])) is after(state, Trigger[trigger])


@pytest.mark.parametrize(("state", "statement", "cell"), cases(STATEMENTS))
def test_every_state_and_statement(state: State, statement: str, cell: str) -> None:
    scene = in_state(state)
    before, held = scene.conversation, scene.shard.held
    offset = scene.offset
    decisions = scene.say(statement, timer_ms=60_000)
    if cell == "-":
        assert decisions == [f"dead @{offset} {WRONG_STATE}"]
        assert scene.reason_of() == f"the endpoint is in state {state.name}, which does not allow {statement}"
        assert (scene.conversation, scene.shard.held) == (before, held)
    else:
        assert scene.states == cell.replace("_", " ")


def test_a_target_begins_with_its_first_message() -> None:
    scene = Scene()
    assert scene.send(begin=True) == ["target 0 @0"]
    assert scene.states == "CO CO"
    assert scene.send(TARGET) == ["initiator 0 @1"]
    assert scene.send() == ["target 1 @2"]


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("second", ["END", "ERROR", "CLEANUP"])
@pytest.mark.parametrize("first", ["END", "ERROR", "CLEANUP"])
def test_both_sides_end_in_one_batch(first: str, second: str, is_held: bool) -> None:
    scene = open_scene()
    scene.define(*[OFF] * is_held)
    scene.batch(envelope(INITIATOR, first), envelope(TARGET, second))
    assert scene.states == "CD CD"
    assert scene.shard.held == 0
