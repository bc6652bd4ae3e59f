"""Answers messages of other instances that belong to no endpoint here."""

from typing import Protocol

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import RESET
from streaming.core.conversations.deciding import decide, doubt_principal
from streaming.core.conversations.decisions import Transmit
from streaming.core.conversations.kinds import Kind
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Outcome


class IncomingEnvelope(Protocol):
    """The envelope of a message between instances, with the fields of wire/envelope.py."""

    @property
    def type(self) -> str:
        """Returns MESSAGE, END, ERROR or ACK."""
        ...

    conversation_id: str
    is_initiator: bool
    from_service: str
    to_service: str
    to_broker_instance: str | None
    lifetime_s: int | None
    from_broker_instance: str | None
    message_sequence_number: int | None
    first_unacknowledged: int | None
    receive_sequence_number: int | None
    hops_remaining: int | None


def answer_stranger(context: Context, envelope: IncomingEnvelope, database: str, code: int, text: str) -> None:
    """Answers with an Error that ends the sender's endpoint, or acknowledges that the sender's Error has ended nothing.

    The sender's acknowledgement of such an Error needs no answer.
    """
    if (envelope.receive_sequence_number or 0) > RESET:
        return
    if envelope.type == "ERROR" and envelope.message_sequence_number is None:
        _answer(context, envelope, database, Kind.ACK, receive_sequence=RESET + 1)
    else:
        _answer(context, envelope, database, Kind.ERROR, error_code=-code, error_text=text)


def _answer(  # noqa: PLR0913  (the fields of the answer)
    context: Context,
    envelope: IncomingEnvelope,
    database: str,
    kind: Kind,
    *,
    receive_sequence: int = 0,
    error_code: int | None = None,
    error_text: str | None = None,
) -> None:
    """Answers a message. The answer is not kept: it is given again only if the message comes again.

    It may come again because the answer went to an address that has not the principal any more.
    """
    sender = routing.Conversation(
        envelope.conversation_id,
        envelope.from_service,
        envelope.from_broker_instance,
        not envelope.is_initiator,
        database,
    )
    decision = decide(context, sender)
    if decision.outcome is Outcome.REMOTE:
        doubt_principal(context, decision)
        context.decisions.append(
            Transmit(
                kind=kind,
                address=decision.address or "",
                conversation_id=envelope.conversation_id,
                is_initiator=not envelope.is_initiator,
                from_service=envelope.to_service,
                from_database=database,
                from_broker_instance=context.definitions.databases[database].broker_instance,
                to_service=envelope.from_service,
                to_broker_instance=envelope.from_broker_instance,
                first_unacknowledged=0,
                receive_sequence=receive_sequence,
                hops_remaining=context.settings.max_hops,
                error_code=error_code,
                error_text=error_text,
            )
        )
