"""Bugs that contradict the sentences of docs/routing.md."""

from tests.mutations.bug import Bug, Bugs

_TABLE = "core/routing/routing_table.py"
_MATCHING = "core/routing/matching_routes.py"
_RESOLVING = "core/routing/resolution.py"
_CHOOSING = "core/routing/route_order.py"
_LOCATING = "core/routing/target_service.py"
_DEFINITIONS = "core/routing/definitions.py"
_RECEIVING = "core/conversations/dispatcher.py"
_MIRRORS = "core/conversations/mirrors.py"
_TRANSMITTING = "core/conversations/transmission.py"
_QUESTIONS = "core/conversations/questions.py"

_ORDER = "MIRRORED, IS_LOCAL, NETWORK, IS_TRANSPORT = range(4)"
_OWN_TABLE = "self._by_table(database, is_outside=False)"
_MSDB_TABLE = "self._by_table(MSDB, is_outside=True)"
_IN_SERVICES_TABLE = (
    "self._by_table(next((each.database for each in self.definitions.services_here(conversation.to_service)), MSDB), "
    "is_outside=True)"
)
_IS_FORWARDED = "if is_outside and not self.instance.is_forwarding:"
_SOME = "return definitions.some_service_here(name, conversation.conversation_id)"

BUGS: Bugs = {
    "A conversation that begins in the instance": [
        Bug(_RESOLVING, _OWN_TABLE, "self._by_table(MSDB, is_outside=False)"),
        # R1: replies too.
        Bug(
            _RESOLVING,
            "if database is None:\n            return self._from",
            "if database is None or not self.conversation.is_initiator:\n            return self._from",
        ),
    ],
    "A conversation from outside": [
        Bug(_RESOLVING, _MSDB_TABLE, "self._by_table(min(self.definitions.tables), is_outside=True)"),
    ],
    "Matching is identical for both": [
        Bug(
            _MATCHING,
            "return case.table.for_service(case.conversation.to_service)",
            "return case.table.for_service(case.conversation.to_service if case.conversation.from_database else '')",
        ),
        Bug(
            _MATCHING,
            "return case.table.for_any()",
            "return case.table.for_any() if case.conversation.from_database else NO_ROUTES",
        ),
    ],
    "Expired routes are ignored": [
        Bug(_DEFINITIONS, "self._expiries[0][0] <= self.now_ms", "self._expiries[0][0] < self.now_ms"),
        Bug(_DEFINITIONS, "and expires_ms <= self.now_ms", "and expires_ms < self.now_ms"),
        Bug(_DEFINITIONS, "self.tables[route.database].expire(route.name)\n", "pass\n"),
    ],
    "If a `LOCAL` route finds no service": [
        Bug(_RESOLVING, "number = number or service", "return self._undelivered(service, rule, table)"),
    ],
    "After an acknowledgement, the conversation names": [
        Bug(_RECEIVING, "conversation.to_broker_instance = envelope.from_broker_instance", "pass"),
        Bug(_RECEIVING, 'return far.broker_instance == (sender or "")', "return True"),
    ],
    "A target's message from outside whose broker instance": [
        Bug(_RESOLVING, "if wanted and not conversation.is_initiator", "if wanted and conversation.is_initiator"),
        Bug(_RESOLVING, "if wanted and not conversation.is_initiator", "if wanted"),
    ],
    "Otherwise it is matched in the standard way": [
        Bug(
            _RESOLVING,
            "if database is None:\n            return self._by_table",
            "if database is None and not conversation.is_initiator:\n            return self._undelivered(9795)\n"
            "        if database is None:\n            return self._by_table",
        ),
    ],
    "The first step that matches ends the matching": [
        Bug(
            _MATCHING,
            "return number, found",
            "return number, RouteGroup([*found.routes, *case.table.for_any().routes])",
        ),
        Bug(_MATCHING, "{1: rule_1, 2: rule_2, 3: rule_3", "{2: rule_2, 1: rule_1, 3: rule_3"),
        Bug(_MATCHING, "2: rule_2, 3: rule_3, 5", "3: rule_3, 2: rule_2, 5"),
        Bug(_MATCHING, "5: rule_5, ASSUMING_RULE: rule_6}", "ASSUMING_RULE: rule_6, 5: rule_5}"),
    ],
    "1. Exact match for service and broker instance": [
        Bug(
            _TABLE,
            ".get(broker_instance, NO_ROUTES)",
            ".get(broker_instance) or self.for_some_instance(service, broker_instance)",
        ),
    ],
    "2. Exact match for the service among routes without": [
        Bug(
            _MATCHING,
            "return case.table.for_service(case.conversation.to_service)",
            "return case.table.for_service('' if case.conversation.to_broker_instance else case.conversation.to_service)",
        ),
        Bug(
            _MATCHING,
            "return case.table.for_service(case.conversation.to_service)",
            "found = [each for each in case.table.routes.values() if each.service_name == case.conversation.to_service]\n"
            "    return RouteGroup(found)",
        ),
    ],
    "3. Without a broker instance: exact match": [
        Bug(_MATCHING, "if conversation.to_broker_instance is not None:", "if conversation.to_broker_instance == '':"),
        Bug(_MATCHING, "3: rule_3, 5: rule_5", "5: rule_5, 3: rule_3"),
    ],
    "With several broker instances, one is picked": [
        Bug(
            _TABLE,
            "return spread.first(conversation_id)",
            "return RouteGroup([each for group in by_instance.values() for each in group.routes])",
        ),
        Bug(_TABLE, "return spread.first(conversation_id)", "return next(iter(by_instance.values()))"),
        Bug(_TABLE, "return spread.first(conversation_id)", "return spread.first('')"),
    ],
    "4. A dynamic routing service": [
        Bug(_MATCHING, "if number == ASK_RULE + 1 and", "if number == ASSUMING_RULE and"),
        Bug(_MATCHING, "if number == ASK_RULE + 1 and", "if number == 1 and"),
        Bug(_MATCHING, "case.question is Question.PENDING and case.is_literal", "case.question is Question.PENDING"),
        Bug(_MATCHING, "case.question is Question.PENDING and case.is_literal", "False"),
        Bug(_RESOLVING, "asks=question is Question.NOT_ASKED)", "asks=True)"),
    ],
    "5. Routes with neither": [
        Bug(
            "core/routing/routing_table.py",
            "return self._plain.get(None, NO_ROUTES)\n\n",
            "return RouteGroup([each for each in self.routes.values() if each.service_name is None])\n\n",
        ),
    ],
    "6. The conversation names a broker instance, and a service": [
        Bug(_MATCHING, "if conversation.to_broker_instance is None or not", "if not"),
        Bug(_MATCHING, "is None or not case.definitions.services_here(conversation.to_service)", "is None"),
    ],
    "7. The conversation is delayed": [
        Bug(_RESOLVING, "return Decision(self._held(), rule", "return Decision(Outcome.DROPPED, rule"),
    ],
    "A delayed conversation is matched again": [
        Bug(_DEFINITIONS, "self.version += 1\n                self._route_changed(route)", "self.version += 1"),
    ],
    "Routes with the same broker instance, service and address": [
        Bug(_CHOOSING, "key = (route.broker_instance,", "key = (route.name, route.broker_instance,"),
        Bug(_CHOOSING, "key = (route.broker_instance,", "key = (None,"),
        Bug(_CHOOSING, "_comparable(route.address), _comparable(route.mirror_address))", "_comparable(route.address))"),
    ],
    "Choosing 1. ": [
        Bug(_CHOOSING, _ORDER, "IS_LOCAL, MIRRORED, NETWORK, IS_TRANSPORT = range(4)"),
        Bug(_CHOOSING, _ORDER, "IS_LOCAL, NETWORK, MIRRORED, IS_TRANSPORT = range(4)"),
        Bug(_CHOOSING, _ORDER, "MIRRORED, IS_LOCAL, NETWORK, IS_TRANSPORT = 0, 0, 2, 3"),
        Bug(_CHOOSING, _ORDER, "MIRRORED, IS_LOCAL, NETWORK, IS_TRANSPORT = 2, 1, 2, 3"),
    ],
    "Choosing 2. ": [
        Bug(_CHOOSING, _ORDER, "MIRRORED, NETWORK, IS_LOCAL, IS_TRANSPORT = range(4)"),
        Bug(_CHOOSING, _ORDER, "MIRRORED, IS_LOCAL, NETWORK, IS_TRANSPORT = 0, 1, 1, 3"),
        Bug(
            _RESOLVING, "if not isinstance(service, int):", "if not isinstance(service, int) or len(found.routes) > 1:"
        ),
    ],
    "Choosing 3. ": [
        Bug(_CHOOSING, _ORDER, "MIRRORED, NETWORK, IS_LOCAL, IS_TRANSPORT = range(4)"),
        Bug(_CHOOSING, _ORDER, "MIRRORED, IS_LOCAL, IS_TRANSPORT, NETWORK = range(4)"),
        Bug(_CHOOSING, _ORDER, "MIRRORED, IS_LOCAL, NETWORK, IS_TRANSPORT = 0, 1, 1, 3"),
        Bug(_CHOOSING, _ORDER, "MIRRORED, IS_LOCAL, NETWORK, IS_TRANSPORT = 0, 1, 2, 2"),
    ],
    "Choosing 4. ": [
        Bug(_CHOOSING, _ORDER, "MIRRORED, IS_LOCAL, IS_TRANSPORT, NETWORK = range(4)"),
        Bug(_CHOOSING, _ORDER, "MIRRORED, IS_TRANSPORT, IS_LOCAL, NETWORK = range(4)"),
        Bug(_CHOOSING, _ORDER, "MIRRORED, IS_LOCAL, NETWORK, IS_TRANSPORT = 0, 1, 2, 2"),
        Bug("core/routing/addresses.py", "rest.partition('/')[0]", "rest.rpartition('/')[0]"),
    ],
    "Forwarding off: a message from outside": [
        Bug(_RESOLVING, _IS_FORWARDED, "if False:"),
        Bug(_RESOLVING, _IS_FORWARDED, "if is_outside and not self.instance.addresses:"),
        Bug(_RESOLVING, _IS_FORWARDED, "if not is_this and not self.instance.is_forwarding:"),
    ],
    "For a message from outside, the `LOCAL` route": [Bug(_RESOLVING, _MSDB_TABLE, _IN_SERVICES_TABLE)],
    "For an own message, the `LOCAL` route": [
        Bug(
            _RESOLVING,
            _OWN_TABLE,
            "self._by_table(database if self.definitions.tables[database].live else MSDB, is_outside=False)",
        ),
    ],
    "A broker instance in the conversation or the route": [
        Bug(_LOCATING, "conversation.to_broker_instance or route.broker_instance", "conversation.to_broker_instance"),
        Bug(_LOCATING, "conversation.to_broker_instance or route.broker_instance", "route.broker_instance"),
    ],
    "Otherwise the conversation's database is searched first": [
        Bug(_LOCATING, "definitions.service(conversation.from_database, name)", "definitions.service('msdb', name)"),
    ],
    "Then the other databases": [
        Bug(_LOCATING, _SOME, f"return NO_SERVICE if conversation.from_database else {_SOME.removeprefix('return ')}"),
        Bug(_LOCATING, _SOME, "return here[0]"),
    ],
    "Forwarding counts how often": [
        Bug(_RECEIVING, "context.settings.max_hops) - 1", "context.settings.max_hops)"),
        Bug(_RECEIVING, "and hops >= 0:", "and hops > 0:"),
    ],
    "An address that resolves to this instance": [
        Bug(_RESOLVING, "if is_this and not is_outside:", "if False:"),
        Bug(_RESOLVING, "is_this = normal_form(address) in self", "is_this = address in self"),
    ],
    "Forwarding must be on to send such a message": [
        Bug(_RESOLVING, _IS_FORWARDED, _IS_FORWARDED.replace("is_outside", "self.conversation.from_database is None")),
    ],
    "Routes with mirror addresses have the highest precedence": [
        Bug(_CHOOSING, _ORDER, "IS_LOCAL, MIRRORED, NETWORK, IS_TRANSPORT = range(4)"),
        Bug(_MATCHING, "2: rule_2, 3: rule_3, 5", "3: rule_3, 2: rule_2, 5"),
    ],
    "Both addresses are asked which is the principal": [
        Bug(_MIRRORS, "return None if index is None else pair[1 + index]", "return pair[1 + (index or 0)]"),
        Bug(_MIRRORS, "return None if index is None else pair[1 + index]", "return None if index is None else pair[1]"),
    ],
    "If it is unreachable or no longer the principal": [
        Bug(
            _MIRRORS, "return self._change(found, address, _NO_ANSWER)", "return self._change([], address, _NO_ANSWER)"
        ),
        Bug(_TRANSMITTING, "            self.context.doubt_principal(decision)\n", ""),
    ],
    "Otherwise nothing is sent": [
        Bug(
            _MIRRORS,
            "return None if index is None else pair[1 + index]",
            "return pair[2 if index is None else 1 + index]",
        ),
    ],
    "Service Broker begins a conversation with the configuration service": [
        Bug(_QUESTIONS, "{name}{instance}</MissingRoute>", "{name}</MissingRoute>"),
        Bug(_QUESTIONS, "<SERVICE_NAME>{escape(service)}", "<SERVICE_NAME>{service}"),
    ],
    "One question at a time for a service": [
        Bug(_QUESTIONS, "if name == service and (was_held", "if (was_held"),
    ],
    "When the conversation ends, the message is matched again": [
        Bug("spark/routing/take_news.py", "            routed.add(report.service)\n", ""),
    ],
    "If there is no route then": [
        Bug(_QUESTIONS, "now_ms + _ASK_AGAIN_MS)", "now_ms + _NEEDED_AGAIN_MS)"),
        Bug(_QUESTIONS, "if known.until_ms <= now_ms]", "if known.until_ms < now_ms]"),
        Bug(
            _QUESTIONS,
            "if name == service and (was_held or known.progress is not Progress.ANSWERED)",
            "if name == service and known.progress is not Progress.ANSWERED",
        ),
    ],
}
