"""Step 1 of a routing decision: the routes of a table that match. Of seven rules, the first to find a route decides.

1   The conversation names a broker instance: routes with exactly its service and broker instance.
2   Routes with exactly its service, and no broker instance.
3   The conversation names no broker instance: routes with exactly its service and one broker instance, picked by R5.
4   A route for the configuration service exists: that service is asked, and the conversation waits (9770).
5   Routes with neither service nor broker instance.
6   The conversation names a broker instance, and a database here has its service: as if there were a route with
    that service and the address LOCAL.
7   No route matches: the conversation waits (9750).
"""

from collections.abc import Callable

from streaming.core.routing.addresses import LOCAL
from streaming.core.routing.conversation import Question, RoutedMessage
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.routing_table import BROKER_CONFIGURATION, NO_ROUTES, Route, RouteGroup, RoutingTable

ASK_RULE = 4
ASSUMING_RULE = 6
NO_RULE = 7


class Case:
    """A conversation and the routing table in which routes for it are sought.

    Attributes:
        definitions: All definitions.
        table: The routing table.
        conversation: The conversation.
        question: The state of the database's question to the configuration service about the conversation's service.
        is_literal: Whether a pending question lets other conversations pass on to rule 5 (R3).
    """

    def __init__(
        self,
        definitions: Definitions,
        table: RoutingTable,
        conversation: RoutedMessage,
        question: Question,
        is_literal: bool,
    ) -> None:
        self.definitions, self.table, self.conversation = definitions, table, conversation
        self.question, self.is_literal = question, is_literal


def rule_1(case: Case) -> RouteGroup:
    """Returns the routes for the conversation's service and broker instance."""
    instance = case.conversation.to_broker_instance
    return case.table.for_instance(case.conversation.to_service, instance) if instance is not None else NO_ROUTES


def rule_2(case: Case) -> RouteGroup:
    """Returns the routes for the conversation's service that name no broker instance."""
    return case.table.for_service(case.conversation.to_service)


def rule_3(case: Case) -> RouteGroup:
    """Returns the routes for the conversation's service and the broker instance that the conversation picks (R5)."""
    conversation = case.conversation
    if conversation.to_broker_instance is not None:
        return NO_ROUTES
    return case.table.for_some_instance(conversation.to_service, conversation.conversation_id)


def waits_for_answer(case: Case) -> bool:
    """Returns whether rule 4 holds the conversation, because the configuration service is asked for a route."""
    if not case.table.has_service(BROKER_CONFIGURATION):
        return False
    if case.question is Question.ANSWERED or case.conversation.to_service == BROKER_CONFIGURATION:
        return False
    return not (case.question is Question.PENDING and case.is_literal)


def rule_5(case: Case) -> RouteGroup:
    """Returns the routes without service and broker instance."""
    return case.table.for_any()


def rule_6(case: Case) -> RouteGroup:
    """Returns an assumed route with the address LOCAL, if a database here has the service."""
    conversation = case.conversation
    if conversation.to_broker_instance is None or not case.definitions.services_here(conversation.to_service):
        return NO_ROUTES
    return RouteGroup([Route("", "", conversation.to_service, None, None, LOCAL, None)])


# Rule 4 finds no routes.
RULES: dict[int, Callable[[Case], RouteGroup]] = {1: rule_1, 2: rule_2, 3: rule_3, 5: rule_5, ASSUMING_RULE: rule_6}


def match(case: Case) -> tuple[int, RouteGroup]:
    """Returns the rule that decides, and the routes that it finds. Rules 4 and 7 find no routes."""
    for number, rule in RULES.items():
        if number == ASK_RULE + 1 and waits_for_answer(case):
            return ASK_RULE, NO_ROUTES
        found = rule(case)
        if found.routes:
            return number, found
    return NO_RULE, NO_ROUTES
