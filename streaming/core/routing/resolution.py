"""A routing decision: where a message goes, and why.

An *own* message is a message of a service of this instance. It uses the routes of its sender's database; a message from
outside uses the routes of msdb (R1). An own message whose route leads to this instance *comes back*: from there on the
rules treat it as a message from outside. Step 1 matches routes, step 2 chooses one of them, step 3 finds the service.

An own message without a destination is DELAYED, also after it came back. A message from outside without a destination
is DROPPED, because its sender keeps it and sends it again (R2).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from streaming.core.routing.addresses import LOCAL, TRANSPORT, normal_form, transport_address
from streaming.core.routing.conversation import Decision, Instance, Outcome, Pair, Question, RoutedMessage
from streaming.core.routing.definitions import MSDB, Definitions
from streaming.core.routing.explanation import Explanation
from streaming.core.routing.matching_routes import ASK_RULE, Case, match
from streaming.core.routing.route_order import in_order, kind
from streaming.core.routing.routing_table import Route, RouteGroup
from streaming.core.routing.target_service import NO_SERVICE, locate

NO_ROUTE = 9750
ROUTE_ASKED_FOR = 9770
NOT_AN_ADDRESS = 9744
SENDER_NOT_HERE = 9791
FORWARDING_OFF = 9792
LOOP = 11285

_NO_QUESTIONS: Mapping[str, Question] = {}


def resolve(  # noqa: PLR0913  (three of them are rare)
    definitions: Definitions,
    instance: Instance,
    conversation: RoutedMessage,
    *,
    questions: Mapping[str, Question] = _NO_QUESTIONS,
    is_literal: bool = False,
    principal_of: Callable[[Pair], str | None] | None = None,
    returned: Collection[str] = (),
    explanation: Explanation | None = None,
) -> Decision:
    """Decides where a message goes.

    Args:
        definitions: Databases, services and routes, at the instant of their `now_ms`.
        instance: The instance that decides.
        conversation: The conversation of the message.
        questions: Name of a database -> the state of its question to the configuration service about the
            conversation's service. A database without an entry has not asked.
        is_literal: Whether a pending question holds only the conversation that asked it (R3).
        principal_of: Returns the address of the principal of a route with a mirror; None if no principal is known.
            Without this function, the principal counts as being at the route's own address.
        returned: The addresses from which messages of the conversation have come back to this instance.
        explanation: Collects the steps for people, which costs time.
    """
    return _Resolution(
        definitions, instance, conversation, questions, is_literal, principal_of, returned, explanation
    ).decide()


class _Resolution:
    """A decision about one message. The attributes are the arguments of `resolve`."""

    def __init__(  # noqa: PLR0913, PLR0917  (the arguments of `resolve`)
        self,
        definitions: Definitions,
        instance: Instance,
        conversation: RoutedMessage,
        questions: Mapping[str, Question],
        is_literal: bool,
        principal_of: Callable[[Pair], str | None] | None,
        returned: Collection[str],
        explanation: Explanation | None,
    ) -> None:
        self.definitions, self.instance, self.conversation = definitions, instance, conversation
        self.questions, self.is_literal, self.principal_of = questions, is_literal, principal_of
        self.returned, self.explanation = returned, explanation

    def decide(self) -> Decision:
        database = self.conversation.from_database
        if database is None:
            return self._from_outside()
        if not self.definitions.is_here(database):
            if self.explanation is not None:
                self.explanation.sender_is_not_here(database)
            return self._undelivered(SENDER_NOT_HERE)
        return self._by_table(database, is_outside=False)

    def _from_outside(self) -> Decision:
        """Decides about a message from outside, or a message that came back."""
        conversation = self.conversation
        wanted = conversation.to_broker_instance
        # A reply goes straight to the broker instance that it names.
        database = self.definitions.database_here(wanted) if wanted and not conversation.is_initiator else None
        if database is None:
            return self._by_table(MSDB, is_outside=True)
        service = self.definitions.service(database, conversation.to_service)
        if self.explanation is not None:
            self.explanation.reply(database, service)
        if service is None:
            return self._undelivered(NO_SERVICE)
        return Decision(Outcome.LOCAL, service=service)

    def _by_table(self, database: str, *, is_outside: bool) -> Decision:
        """Decides by the routes of a database."""
        question = self.questions.get(database, Question.NOT_ASKED)
        table = self.definitions.tables[database]
        case = Case(self.definitions, table, self.conversation, question, self.is_literal)
        rule, found = match(case)
        if self.explanation is not None:
            self.explanation.matched(case, database, rule, found, is_outside)
        if not found.routes:
            if rule != ASK_RULE:
                return self._undelivered(NO_ROUTE, rule, database)
            return self._undelivered(ROUTE_ASKED_FOR, rule, database, asks=question is Question.NOT_ASKED)
        return self._choose(rule, database, found, is_outside=is_outside)

    def _choose(self, rule: int, table: str, found: RouteGroup, *, is_outside: bool) -> Decision:
        """Decides by the first route that can be used.

        If that route leads to this instance, which cannot deliver the message, a route of the same kind is tried next.
        """
        explanation, number, used = self.explanation, 0, 0
        tried: Route | None = None
        back: Decision | None = None
        for route in in_order(found, self.conversation):
            if tried is not None:
                if kind(tried) != kind(route):
                    break
                if explanation is not None:
                    explanation.leads_back(tried, used)
            if route.address == LOCAL:
                service = locate(self.definitions, self.conversation, route)
                if explanation is not None:
                    explanation.located(route, service)
                if not isinstance(service, int):
                    return Decision(Outcome.LOCAL, rule, table, route.name or None, service)
                number = number or service
                continue
            address = self._address_of(route)
            if address is None:
                number = number or NOT_AN_ADDRESS
                continue
            used = len(explanation.used) if explanation is not None else 0
            decision, is_back = self._towards(rule, table, route, address, is_outside=is_outside)
            if not is_back:
                return decision
            tried, back = route, back or decision
        return back or self._undelivered(number, rule, table)

    def _address_of(self, route: Route) -> str | None:
        """Returns the network address of a route; None for TRANSPORT if the service's name has no address."""
        if route.address != TRANSPORT:
            return route.address
        named = transport_address(self.conversation.to_service)
        if named is None and self.explanation is not None:
            self.explanation.passed_over(route, "the service's name is not an address", NOT_AN_ADDRESS)
        return named

    def _towards(self, rule: int, table: str, route: Route, address: str, *, is_outside: bool) -> tuple[Decision, bool]:
        """Decides about a message whose chosen route has a network address.

        Returns the decision, and whether it fails because the route leads back to this instance.
        """
        is_this = normal_form(address) in self.instance.addresses
        if self.explanation is not None:
            self.explanation.towards(route, address, is_this, is_outside)
        if is_outside and not self.instance.is_forwarding:
            return self._undelivered(FORWARDING_OFF, rule, table, route.name), False
        mirror, instance = route.mirror_address, route.broker_instance
        destination = address
        own_address: str | None = None
        if mirror is not None and not is_this:
            own_address = address
            if self.principal_of is not None:
                principal = self.principal_of((instance or "", address, mirror))
                if principal is None:
                    outcome = self._held()
                    return Decision(outcome, rule, table, route.name, None, None, mirror, instance, own_address), False
                destination = principal
                is_this = normal_form(principal) in self.instance.addresses
        if not is_this and destination not in self.returned:
            sent = Decision(Outcome.REMOTE, rule, table, route.name, None, destination, mirror, instance, own_address)
            return sent, False
        if is_this and not is_outside:
            decision = self._from_outside()
            if decision.outcome is not Outcome.DELAYED:
                return decision, False
        else:
            decision = self._undelivered(LOOP, rule, table, route.name)
        if own_address is not None:
            # The principal may be elsewhere now.
            decision = replace(decision, mirror_address=mirror, broker_instance=instance, route_address=own_address)
        return decision, True

    def _undelivered(
        self,
        number: int,
        rule: int | None = None,
        table: str | None = None,
        route: str | None = None,
        *,
        asks: bool = False,
    ) -> Decision:
        if self.explanation is not None:
            self.explanation.undelivered(number, self.conversation.from_database is not None)
        return Decision(self._held(), rule, table, route, number=number, asks=asks)

    def _held(self) -> Outcome:
        """Returns the fate of a message without a destination (R2)."""
        return Outcome.DROPPED if self.conversation.from_database is None else Outcome.DELAYED
