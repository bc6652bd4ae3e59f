"""Explanations of routing decisions: each step, and why each route was passed over."""

from dataclasses import dataclass, field

from streaming.core.routing.conversation import Question
from streaming.core.routing.databases import Service
from streaming.core.routing.matching_routes import ASK_RULE, ASSUMING_RULE, NO_RULE, Case
from streaming.core.routing.route_order import KINDS, in_order, kind
from streaming.core.routing.routing_table import BROKER_CONFIGURATION, Route, RouteGroup
from streaming.core.routing.target_service import NO_BROKER_INSTANCE
from streaming.core.times import iso_time, readable_time

# A table may have thousands of routes.
MAX_PASSED_OVER = 20

NUMBERS = {
    9744: "the name of the service is not an address",
    9750: "no route matches",
    9770: "the configuration service has been asked for a route",
    9791: "the sender's database is missing, disabled or a mirror",
    9792: "message forwarding is off",
    9795: "the broker instance is not here",
    9796: "the service is not here",
    11285: "the message would go round in a circle",
}


@dataclass
class Step:
    """One step of a decision.

    Attributes:
        title: The rule or the part of the decision.
        text: The result of the step.
        passed_over: Name of a route -> why it was passed over, for the first MAX_PASSED_OVER routes.
        others: The number of further routes that were passed over.
    """

    title: str
    text: str
    passed_over: dict[str, str] = field(default_factory=dict)
    others: int = 0


class Explanation:
    """Collects the steps of one decision.

    Attributes:
        steps: The steps, in their order.
        used: The routes that the message took. A message that came back has taken two.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.used: list[Route] = []

    def sender_is_not_here(self, database: str) -> None:
        """Adds the step that the sender's database is not here."""
        self._add("sender", f"database {database} is missing, disabled or a mirror: no table is matched")

    def reply(self, database: str, service: Service | None) -> None:
        """Adds the step that a target's message goes straight to the database with the message's broker instance."""
        there = f"queue {service.queue}" if service is not None else "it has no such service"
        self._add("reply", f"a target's message goes to the broker instance it names, database {database}: {there}")

    def matched(self, case: Case, database: str, rule: int, found: RouteGroup, is_outside: bool) -> None:
        """Adds the rules of step 1 up to the rule that decided, with the routes that each rule has passed over."""
        reason = "for messages from outside" if is_outside else "the sender's database"
        routes = "1 route" if len(case.table.routes) == 1 else f"{len(case.table.routes):,} routes"
        self._add("table", f"{database}, {reason}: {routes}")
        for number in range(1, rule):
            self._add_rule(case, number)
        if rule == ASK_RULE:
            self._add("rule 4", _asked(case))
        elif rule == NO_RULE:
            self._add("rule 7", "no rule has found a route")
        else:
            names = ", ".join(route.name or "an assumed route with the address LOCAL" for route in found.routes)
            step = self._add(f"rule {rule}", f"{_sought(case, rule)}: {names}")
            self._pass_over(step, case, rule, {route.name for route in found.routes})
            self._add_order(case, found)

    def located(self, route: Route, service: Service | int) -> None:
        """Adds the step that a route with the address LOCAL leads to a service, or to no service."""
        if isinstance(service, int):
            reason = "the broker instance is not here" if service == NO_BROKER_INSTANCE else "no such service is here"
            self.passed_over(route, reason, service)
        else:
            self.used.append(route)
            self._add("find", f"{_name(route)}: LOCAL, database {service.database}, queue {service.queue}")

    def passed_over(self, route: Route, reason: str, number: int) -> None:
        """Adds the step that a matching route cannot be used."""
        self._add("choose", f"{_name(route)} is passed over: {reason} ({number})")

    def towards(self, route: Route, address: str, is_this: bool, is_outside: bool) -> None:
        """Adds the step that the chosen route has a network address."""
        self.used.append(route)
        text = f"{_name(route)}: {address}"
        if route.mirror_address is not None:
            text += f", mirror {route.mirror_address}"
        if is_this:
            text += ", which is this instance"
            text += " again" if is_outside else ": the message comes back, and is matched as one from outside"
        self._add("choose", text)

    def leads_back(self, route: Route, used: int) -> None:
        """Adds the step that the chosen route leads to this instance, which cannot deliver the message.

        Args:
            route: The route.
            used: The length of the list `used` before this route was added. The list is cut to this length.
        """
        del self.used[used:]
        self._add("choose", f"{_name(route)} is passed over: it leads to this instance, where the message cannot go on")

    def undelivered(self, number: int, is_own: bool) -> None:
        """Adds the step that the message is held or dropped."""
        fate = "DELAYED: it is matched again later" if is_own else "DROPPED: its sender keeps it and sends it again"
        self._add("result", f"{number}, {NUMBERS[number]}. {fate}")

    def _add(self, title: str, text: str) -> Step:
        step = Step(title, text)
        self.steps.append(step)
        return step

    def _add_rule(self, case: Case, number: int) -> None:
        """Adds a rule that has found nothing."""
        instance = case.conversation.to_broker_instance
        if number == ASK_RULE:
            self._add("rule 4", _not_asked(case))
        elif number in (1, ASSUMING_RULE) and instance is None:
            self._add(f"rule {number}", "does not apply: the conversation names no broker instance")
        elif number == 3 and instance is not None:
            self._add("rule 3", f"does not apply: the conversation names the broker instance {instance}")
        else:
            step = self._add(f"rule {number}", f"{_sought(case, number)}: none")
            if number != ASSUMING_RULE:
                self._pass_over(step, case, number, set())

    def _pass_over(self, step: Step, case: Case, rule: int, found: set[str]) -> None:
        names = [name for name in sorted(case.table.routes) if name not in found]
        for name in names[:MAX_PASSED_OVER]:
            step.passed_over[name] = _reason(case, case.table.routes[name], rule)
        step.others = max(0, len(names) - MAX_PASSED_OVER)

    def _add_order(self, case: Case, found: RouteGroup) -> None:
        if len(found.routes) > 1:
            ordered = [*in_order(found, case.conversation)]
            order = ", ".join(f"{_name(route)} ({KINDS[kind(route)]})" for route in ordered)
            same = len(found.routes) - len(ordered)
            self._add("order", order + (f"; {same} with the same destination" if same else ""))


def _name(route: Route) -> str:
    return route.name or "assumed route"


def _reason(case: Case, route: Route, rule: int) -> str:
    """Returns why a rule has passed a route over."""
    service, instance = route.service_name, route.broker_instance
    if route.name not in case.table.live:
        return f"expired at {readable_time(iso_time(route.expires_at_ms or 0))}"
    if service is None:
        return "for any service"
    if service != case.conversation.to_service or rule == 5:
        return f"for service {service}"
    if instance is None:
        return "without a broker instance"
    return f"for broker instance {instance}" + (", but another one was picked" if rule == 3 else "")


def _asked(case: Case) -> str:
    if case.question is Question.PENDING:
        return f"the question to {BROKER_CONFIGURATION} about this service is pending"
    return f"a route for {BROKER_CONFIGURATION} exists: that service is asked"


def _not_asked(case: Case) -> str:
    if case.conversation.to_service == BROKER_CONFIGURATION:
        return "does not apply: the message is for the configuration service itself"
    if not case.table.has_service(BROKER_CONFIGURATION):
        return f"no route for {BROKER_CONFIGURATION}"
    if case.question is Question.ANSWERED:
        return "the configuration service has answered"
    return "a question is pending, and holds only the conversation that asked it (literal)"


def _sought(case: Case, rule: int) -> str:
    service, instance = case.conversation.to_service, case.conversation.to_broker_instance
    return {
        1: f"routes for service {service} and broker instance {instance}",
        2: f"routes for service {service} without a broker instance",
        3: f"routes for service {service} with any broker instance",
        5: "routes for any service",
        6: f"databases here with service {service}",
    }[rule]
