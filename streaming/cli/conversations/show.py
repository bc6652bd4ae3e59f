"""The output of `conversation show`, for people and as JSON: both endpoints, and the messages that they hold."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from streaming.cli.conversations.lists import SIDES, held_messages, last_statement, next_try, why
from streaming.cli.conversations.views import Selection, Viewed, identified, read_endpoints
from streaming.cli.routing.explained_routes import Origin, Result, one_case, results
from streaming.core.routing.definitions import Definitions
from streaming.kafka.clients import Cluster
from streaming.system.ages import instant_utc
from streaming.system.logs import printable
from streaming.system.screens import Fields, Sentence
from streaming.wire.service_views import EndpointRow, TransmissionRow
from streaming.wire.topics import Topics


@dataclass(frozen=True)
class ConversationFacts:
    """The facts about a conversation.

    Attributes:
        conversation_id: The identifier of the conversation.
        endpoints: Whether the endpoint is the initiator -> its row, and all fields of the row.
        held: The rows of held messages, oldest first, each with all its fields.
        explained: For each row of `held`, the decision that routing would make now; None: routing does not decide.
        broker_instances: Database -> broker instance.
    """

    conversation_id: str
    endpoints: Mapping[bool, tuple[EndpointRow, dict[str, Any]]]
    held: list[tuple[TransmissionRow, dict[str, Any]]]
    explained: list[Result | None]
    broker_instances: Mapping[str, str | None]

    def as_json(self) -> dict[str, Any]:
        """Returns the facts as plain values."""
        fields = {SIDES[side]: self.endpoints[side][1] if side in self.endpoints else None for side in (True, False)}
        return {
            "conversation_id": self.conversation_id,
            **fields,
            "held": [fields for _, fields in self.held],
            "explained": [None if each is None else json.loads(each.as_json()) for each in self.explained],
        }

    @property
    def is_known(self) -> bool:
        """Returns whether there is anything to show."""
        return bool(self.endpoints or self.held)

    def view(self, *, is_routed: bool = True) -> RenderableType:
        """Returns the facts for people. `is_routed` is as for `lists.next_try`."""
        fields = Fields([(title, _text(lines)) for title, lines in self.fields(is_routed=is_routed)])
        return Group(Sentence(self.conversation_id, "bold"), fields)

    def fields(self, *, is_routed: bool = True) -> list[tuple[str, list[str]]]:
        """Returns the title and the lines of each fact. `is_routed` is as for `lists.next_try`."""
        fields: list[tuple[str, list[str]]] = []
        for side in (True, False):
            lines = self._endpoint(self.endpoints[side][0]) if side in self.endpoints else [self._absent(side)]
            fields.append((SIDES[side], lines))
        for (row, _), explained in zip(self.held, self.explained, strict=True):
            sender = self.endpoints.get(row.is_initiator)
            lines = _held(row, None if sender is None else sender[0].state, is_routed=is_routed)
            lines += [] if explained is None else [explained.heading()]
            fields.append(("held", lines))
            if explained is not None:
                fields += [(f"  {title}", each) for title, each in explained.fields()]
        if not self.held:
            fields.append(("held", ["nothing"]))
        return fields

    def _absent(self, side: bool) -> str:
        """Returns the place of an endpoint that has no row here."""
        other = self.endpoints.get(not side)
        if not side or other is None:
            return "there is none yet"
        return f"in another instance, broker instance {other[0].far_broker_instance or '-'}"

    def _endpoint(self, row: EndpointRow) -> list[str]:
        lines = [
            f"{row.state}, service {row.service} of database {row.database}, "
            f"broker instance {self.broker_instances.get(row.database) or '-'}",
            f"conversation group {row.conversation_group_id}",
            f"next number to send {row.send_sequence}, to receive {row.receive_sequence}, as of "
            f"{instant_utc(row.update_time)}",
            f"last statement {last_statement(row)}",
        ]
        if row.lifetime_end is not None:
            lines.append(f"lifetime until {instant_utc(row.lifetime_end)}")
        if row.dialog_timer is not None:
            lines.append(f"timer at {instant_utc(row.dialog_timer)}")
        return lines


def _text(lines: Iterable[str]) -> Text:
    """Returns lines, with escapes for the characters that a terminal would obey."""
    return Text("\n".join(map(printable, lines)))


def _held(row: TransmissionRow, state: str | None, *, is_routed: bool) -> list[str]:
    """Returns the lines about the messages that an endpoint in this state holds."""
    utc = " UTC" if is_routed and row.next_try is not None else ""
    since = "" if row.held_since is None else f" since {instant_utc(row.held_since)}"
    return [
        f"{held_messages(row.messages, state)} from the {SIDES[row.is_initiator]} to {row.to_service}{since}",
        why(row.number, row.reason),
        f"next try {next_try(row, is_routed=is_routed)}{utc}",
    ]


def find(kafka: Cluster, topics: Topics, given: str, origin: Callable[[], Origin]) -> ConversationFacts:
    """Reads the facts about a conversation. An unknown conversation has neither endpoints nor held messages.

    Args:
        kafka: The cluster.
        topics: The topics.
        given: The conversation's identifier, or a beginning that no other identifier has.
        origin: Returns the definitions; called only if the conversation is known.

    Raises:
        UserError: Several identifiers begin with `given`; Kafka cannot be reached or denies access, or a topic is
            missing.
    """
    conversation = identified(kafka, topics, given)
    viewed = read_endpoints(kafka, topics, Selection(conversation))
    held = [(row, fields) for _, row, fields in viewed.transmissions if row.conversation_id == conversation]
    if not viewed.endpoints and not held:
        return ConversationFacts(conversation, {}, [], [], {})
    return facts(conversation, viewed, held, origin())


def facts(
    conversation_id: str,
    viewed: Viewed,
    held: list[tuple[TransmissionRow, dict[str, Any]]],
    source: Origin,
) -> ConversationFacts:
    """Returns the facts about a conversation.

    Args:
        conversation_id: The conversation.
        viewed: The endpoints of the conversation.
        held: The rows of the conversation's held messages, each with all its fields.
        source: The definitions.

    Raises:
        UserError: The definitions are invalid.
    """
    endpoints = {row.is_initiator: (row, viewed.fields(key)) for key, row in viewed.endpoints.items()}
    definitions = source.load()
    explained = [_explained(source, definitions, row, endpoints) for row, _ in held]
    instances = {name: each.broker_instance for name, each in definitions.databases.items()}
    return ConversationFacts(conversation_id, endpoints, held, explained, instances)


def _explained(
    source: Origin,
    definitions: Definitions,
    row: TransmissionRow,
    endpoints: Mapping[bool, tuple[EndpointRow, dict[str, Any]]],
) -> Result | None:
    """Returns the decision that routing would make about held messages now; None if their sender is not known."""
    if row.from_database is None:
        return None
    instance = row.to_broker_instance
    if not row.is_initiator and True in endpoints:
        # A target's messages name the initiator's broker instance.
        database = definitions.databases.get(endpoints[True][0].database)
        instance = None if database is None else database.broker_instance
    case = one_case(row.conversation_id, row.to_service, instance, row.is_initiator, row.from_database, None)
    return next(results(source, [case]))
