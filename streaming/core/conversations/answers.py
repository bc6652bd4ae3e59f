"""Answers messages of other instances that belong to no endpoint here."""

from streaming.core.conversations.context import Context, Envelope
from streaming.core.conversations.conversation import RESET
from streaming.core.conversations.decisions import Transmit
from streaming.core.conversations.kinds import Kind
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Outcome


def answer_stranger(context: Context, envelope: Envelope, database: str, code: int, text: str) -> None:
    """Answers with an Error that ends the sender's endpoint, or acknowledges that the sender's Error has ended nothing.

    The sender's acknowledgement of such an Error needs no answer. The answer is not kept: it is given again only if the
    message comes again. It may come again because the answer went to an address that has not the principal any more.
    """
    if (envelope.receive_sequence_number or 0) > RESET:
        return
    sender = routing.RoutedMessage(
        envelope.conversation_id,
        envelope.from_service,
        envelope.from_broker_instance,
        not envelope.is_initiator,
        database,
    )
    decision = context.decide(sender)
    if decision.outcome is not Outcome.REMOTE:
        return
    context.doubt_principal(decision)
    is_reset = envelope.type == "ERROR" and envelope.message_sequence_number is None
    context.decisions.append(
        Transmit(
            kind=Kind.ACK if is_reset else Kind.ERROR,
            address=decision.address or "",
            conversation_id=envelope.conversation_id,
            is_initiator=not envelope.is_initiator,
            from_service=envelope.to_service,
            from_database=database,
            from_broker_instance=context.definitions.databases[database].broker_instance,
            to_service=envelope.from_service,
            to_broker_instance=envelope.from_broker_instance,
            first_unacknowledged=0,
            receive_sequence=RESET + 1 if is_reset else 0,
            hops_remaining=context.settings.max_hops,
            error_code=None if is_reset else -code,
            error_text=None if is_reset else text,
        )
    )
