"""The state of an endpoint: one side's end of a conversation.

The states are those of sys.conversation_endpoints. SI (started inbound) cannot occur, because a target begins with its
first message whole.

    SO   started outbound      the initiator has begun the conversation, and sent nothing
    CO   conversing
    DI   disconnected inbound  the far side has ended the conversation
    DO   disconnected outbound this side has ended it; the far side has not been told yet
    ER   error                 an error has ended the conversation
    CD   closed                nothing can be sent or received any more

TRANSITIONS lists the triggers that change the state. A statement of the program without a row in the table is refused
(8429). A trigger from the far side without a row cannot happen. For example, an EndDialog for an endpoint in DO is
dropped, because both sides have ended.
"""

from enum import IntEnum


class State(IntEnum):
    """The states of sys.conversation_endpoints, and ABSENT for no endpoint."""

    ABSENT = 0
    SO = 1
    CO = 2
    DI = 3
    DO = 4
    ER = 5
    CD = 6


class Trigger(IntEnum):
    """The inputs of an endpoint's state machine."""

    # Statements of the program.
    BEGIN = 0
    SEND = 1
    END = 2
    END_WITH_ERROR = 3
    END_WITH_CLEANUP = 4
    SET_TIMER = 5
    # Deliveries.
    FIRST_RECEIVED = 6  # the first message creates the target
    FAR_ENDED = 7  # EndDialog has arrived
    FAR_FAILED = 8  # Error has arrived, from the far side or from the broker
    END_DELIVERED = 9  # the far side has been told that this side has ended, or is gone


TRANSITIONS: dict[tuple[State, Trigger], State] = {
    (State.ABSENT, Trigger.BEGIN): State.SO,
    (State.ABSENT, Trigger.FIRST_RECEIVED): State.CO,
    (State.SO, Trigger.SEND): State.CO,
    (State.SO, Trigger.END): State.CD,  # there is no far side to tell
    (State.SO, Trigger.END_WITH_ERROR): State.CD,
    (State.SO, Trigger.END_WITH_CLEANUP): State.CD,
    (State.SO, Trigger.SET_TIMER): State.SO,
    (State.SO, Trigger.FAR_FAILED): State.ER,
    (State.CO, Trigger.SEND): State.CO,
    (State.CO, Trigger.END): State.DO,
    (State.CO, Trigger.END_WITH_ERROR): State.DO,
    (State.CO, Trigger.END_WITH_CLEANUP): State.CD,
    (State.CO, Trigger.SET_TIMER): State.CO,
    (State.CO, Trigger.FAR_ENDED): State.DI,
    (State.CO, Trigger.FAR_FAILED): State.ER,
    (State.DI, Trigger.END): State.CD,
    (State.DI, Trigger.END_WITH_ERROR): State.CD,
    (State.DI, Trigger.END_WITH_CLEANUP): State.CD,
    (State.DI, Trigger.SET_TIMER): State.DI,
    (State.DI, Trigger.FAR_ENDED): State.DI,  # told again, after a delivery that failed
    (State.DI, Trigger.FAR_FAILED): State.ER,
    (State.DO, Trigger.END_WITH_CLEANUP): State.CD,
    (State.DO, Trigger.FAR_FAILED): State.CD,
    (State.DO, Trigger.END_DELIVERED): State.CD,
    (State.ER, Trigger.END): State.CD,
    (State.ER, Trigger.END_WITH_ERROR): State.CD,
    (State.ER, Trigger.END_WITH_CLEANUP): State.CD,
    (State.ER, Trigger.FAR_FAILED): State.ER,
    (State.CD, Trigger.END_WITH_CLEANUP): State.CD,  # drops the messages that it has yet to send
    (State.CD, Trigger.FAR_FAILED): State.CD,
    (State.CD, Trigger.END_DELIVERED): State.CD,
}

# By number, for speed: each message looks up a transition.
_BY_STATE = [[TRANSITIONS.get((state, trigger)) for trigger in Trigger] for state in State]

# Endpoints in these states take no more messages.
ENDED = frozenset((State.DO, State.CD))
# Endpoints in these states take no more messages from the far program.
CLOSED = ENDED | {State.ER}


def after(state: State, trigger: Trigger) -> State | None:
    """Returns the state after a trigger; None if the table has no such row."""
    return _BY_STATE[state][trigger]
