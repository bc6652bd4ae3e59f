"""A small instance for tests of routing: databases A and B and msdb, and the routes and services that a test names."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streaming.core.routing.addresses import LOCAL
from streaming.core.routing.conversation import Decision, Instance, Question, RoutedMessage
from streaming.core.routing.databases import Database, Service
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import MSDB, Definitions
from streaming.core.routing.explanation import Explanation, Step
from streaming.core.routing.resolution import resolve
from streaming.core.routing.routing_table import Route
from streaming.wire.service_definitions import rows_of

A, B = "A", "B"
IN_A = "aaaaaaaa-0000-4000-8000-000000000000"
IN_B = "bbbbbbbb-0000-4000-8000-000000000000"
IN_MSDB = "dddddddd-0000-4000-8000-000000000000"
# The broker instance of a database in another instance.
ELSEWHERE = "eeeeeeee-0000-4000-8000-000000000000"

STOCK = "Stock"
HERE = "tcp://here:4022"
HOST_1, HOST_2, HOST_3 = "tcp://host1:4022", "tcp://host2:4022", "tcp://host3:4022"

INSTANCE = Instance(frozenset({HERE}))
FORWARDING = Instance(frozenset({HERE}), is_forwarding=True)


def route(
    name: str,
    service: str | None,
    address: str = LOCAL,
    *,
    instance: str | None = None,
    mirror: str | None = None,
    database: str = A,
    expires_ms: int | None = None,
) -> Route:
    """Returns a route of database A."""
    return Route(name, database, service, instance, expires_ms, address, mirror)


def service(database: str, name: str = STOCK) -> Service:
    """Returns a service, whose queue is named after its database."""
    return Service(name, database, f"queue-of-{database}")


def scene(*members: Route | Service) -> Definitions:
    """Returns databases A and B and msdb with these routes and services, without AutoCreatedLocal."""
    definitions = Definitions()
    for name, instance in ((A, IN_A), (B, IN_B), (MSDB, IN_MSDB)):
        definitions.create_database(Database(name, instance), with_default_route=False)
    for member in members:
        if isinstance(member, Route):
            definitions.create_route(member)
        else:
            definitions.create_service(member)
    return definitions


def own(
    to_service: str = STOCK,
    instance: str | None = None,
    *,
    database: str = A,
    conversation_id: str = "c",
    by_target: bool = False,
) -> RoutedMessage:
    """Returns the conversation of a message that a service of database A sends."""
    return RoutedMessage(conversation_id, to_service, instance, not by_target, database)


def incoming(
    to_service: str = STOCK, instance: str | None = None, *, conversation_id: str = "c", by_target: bool = False
) -> RoutedMessage:
    """Returns the conversation of a message from another instance."""
    return RoutedMessage(conversation_id, to_service, instance, not by_target, None)


def decide(
    definitions: Definitions,
    conversation: RoutedMessage,
    at: Instance = INSTANCE,
    *,
    question: Question = Question.NOT_ASKED,
    is_literal: bool = False,
) -> Decision:
    """Returns the decision, which must be the same with an explanation as without."""
    questions = dict.fromkeys(definitions.databases, question)
    decision = resolve(definitions, at, conversation, questions=questions, is_literal=is_literal)
    explained, _ = explain(definitions, conversation, at, question=question, is_literal=is_literal)
    assert explained == decision
    return decision


def explain(
    definitions: Definitions,
    conversation: RoutedMessage,
    at: Instance = INSTANCE,
    *,
    question: Question = Question.NOT_ASKED,
    is_literal: bool = False,
) -> tuple[Decision, list[Step]]:
    """Returns the decision and its steps."""
    explanation = Explanation()
    questions = dict.fromkeys(definitions.databases, question)
    decision = resolve(
        definitions, at, conversation, questions=questions, is_literal=is_literal, explanation=explanation
    )
    return decision, explanation.steps


@contextmanager
def refused(definitions: Definitions, number: int | None, reason: str) -> Iterator[None]:
    """Expects that a statement is refused with a number and a reason, and that it changes nothing."""
    before = rows_of(definitions), definitions.version
    with pytest.raises(RefusedDefinitionError, match=reason) as caught:
        yield
    assert caught.value.number == number
    assert (rows_of(definitions), definitions.version) == before
