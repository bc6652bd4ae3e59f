"""An oracle for Service Broker's routing: every decision that the design's page on routing allows for one message.

The oracle is a second reading of that page, made without knowledge of the router. It filters lists, and has no index.
Quotations in comments are the page's sentences. Where the page leaves a choice or is open, the oracle allows each.
"""

import re
from datetime import datetime
from typing import Any

Record = dict[str, Any]

CONFIGURATION_SERVICE = "SQL/ServiceBroker/BrokerConfiguration"
_ADDRESS = re.compile(r"(?P<scheme>tcp)://(?P<host>[^/:\s]+):(?P<port>[0-9]+)(?:/(?P<prefix>.*))?", re.IGNORECASE)


def allowed(
    definitions: Record, case: Record, *, question: str = "NOT_ASKED", semantics: str = "observed"
) -> list[Record]:
    """Returns every result that the page allows.

    Args:
        definitions: The content of a file for `route explain --definitions`.
        case: One element of a file for `route explain --cases`.
        question: State of the question to the configuration service about this service: NOT_ASKED, PENDING or
            ANSWERED. It holds for the table of the sender's database and for msdb's.
        semantics: `observed`, or `literal` for rule 4 without R3.
    """
    message = _Message(definitions, case, question, semantics)
    results = _own(message) if message.own else _from_outside(message)
    return [result for index, result in enumerate(results) if result not in results[:index]]


def network_address(text: str) -> tuple[str, str, str, str] | None:
    """Returns what two spellings of one address have in common, or None if the text is not an address."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65535:
        return None
    return match["scheme"].lower(), match["host"].lower(), match["port"], match["prefix"] or ""


class _Message:
    """One message, with the definitions that it meets."""

    def __init__(self, definitions: Record, case: Record, question: str, semantics: str) -> None:
        conversation = case["conversation"]
        self.definitions = definitions
        self.now = datetime.fromisoformat(case["at"])
        self.question = question
        self.semantics = semantics
        self.own = not conversation.get("incoming")
        self.sender: str | None = conversation["from_database"] if self.own else None
        self.sent_by_target = not conversation["is_initiator"]
        self.service: str = conversation["to_service"]
        self.broker_instance: str | None = conversation["to_broker_instance"]

    def databases_here(self) -> list[Record]:
        """Returns the databases here: 'A database is here if it is enabled and PRINCIPAL'."""
        return [
            database
            for database in self.definitions["databases"]
            if database["is_broker_enabled"] and database["mirroring_role"] in {None, "PRINCIPAL"}
        ]

    def is_here(self, broker_instance: str) -> bool:
        return any(database["broker_instance"] == broker_instance for database in self.databases_here())

    def homes(self) -> list[Record]:
        """Returns the services of the wanted name in databases here, each with its database's broker instance."""
        return [
            service | {"broker_instance": database["broker_instance"]}
            for database in self.databases_here()
            for service in self.definitions["services"]
            if service["database"] == database["name"] and service["name"] == self.service
        ]

    def routes(self, database: str) -> list[Record]:
        """Returns a database's routing table: 'Expired routes do not exist', and 'at that instant it has expired'."""
        return [
            route
            for route in self.definitions["routes"]
            if route["database"] == database
            and (route["expires_at"] is None or datetime.fromisoformat(route["expires_at"]) > self.now)
        ]

    def is_this_instance(self, remote: Record) -> bool:
        """Returns true for an address of this instance; of a mirrored route, only the network address decides."""
        own = [network_address(address) for address in self.definitions["instance"]["addresses"]]
        return network_address(remote["address"]) in own


# Which routing table


def _own(message: _Message) -> list[Record]:
    """Returns the results for a message that a service of this instance sent (R1)."""
    results: list[Record] = []
    if not any(database["name"] == message.sender for database in message.databases_here()):
        # 'The sender's database not here: DELAYED (9791) before any matching.'
        results.append(_held(message, None, None, 9791))
        if message.sender != "msdb" or any(data["name"] == "msdb" for data in message.definitions["databases"]):
            return results
        # Open: 'msdb always exists', but definitions without msdb do not say that it is enabled.
    # 'It uses the routes of that service's database.'
    for result in _standard_matching(message, message.routes(str(message.sender))):
        if result["outcome"] == "REMOTE" and message.is_this_instance(result):
            # 'An own message whose chosen address resolves to this instance comes back: from there on it is matched
            # as one from outside.'
            results += _from_outside(message)
        else:
            results.append(result)
    return results


def _from_outside(message: _Message) -> list[Record]:
    """Returns the results for a message from outside or come back."""
    # 'A message from outside, or come back, that a target sent: if this instance has the broker instance that it
    # names, it is delivered there (step 3), else standard matching.'
    broker_instance = message.broker_instance
    if message.sent_by_target and broker_instance is not None and message.is_here(broker_instance):
        homes = [home for home in message.homes() if home["broker_instance"] == broker_instance]
        # 'Null where it went straight to the broker instance that it names; without the service there 9796.'
        return [_local(message, None, None, home) for home in homes] or [_held(message, None, None, 9796)]

    # 'A message from outside uses msdb's.'
    tables = [message.routes("msdb")]
    if not any(database["name"] == "msdb" for database in message.databases_here()):
        # Open: a database that is not here 'is treated as absent'.
        tables.append([])
    results: list[Record] = []
    for table in tables:
        for result in _standard_matching(message, table):
            if result["outcome"] != "REMOTE":
                results.append(result)
            elif message.definitions["instance"]["message_forwarding"] != "ON":
                # 'Message forwarding off, and the chosen address of a message from outside or come back is not LOCAL:
                # dropped, or DELAYED for an own message, with 9792.'
                results.append(_held(message, result["rule"], result["route"], 9792))
            elif message.is_this_instance(result):
                # R7: '... whose chosen address is this instance again: the same with 11285 (9792 with forwarding off).'
                results.append(_held(message, result["rule"], result["route"], 11285))
            else:
                results.append(result)
    return results


def _standard_matching(message: _Message, table: list[Record]) -> list[Record]:
    """Returns the results of steps 1 to 3 with one routing table."""
    results: list[Record] = []
    for rule, routes in _matches(message, table):
        if rule in {4, 7}:
            results.append(_held(message, rule, None, 9770 if rule == 4 else 9750))
        else:
            results += _choose(message, rule, routes)
    return results


# Step 1: matching routes. 'The first rule that finds any ends the search.'


def _matches(message: _Message, table: list[Record]) -> list[tuple[int, list[Record]]]:
    """Returns the first rule that finds routes, and the routes, once for each reading or pick that the page allows."""
    named = [route for route in table if route["service_name"] == message.service]
    # 1. 'The conversation names a broker instance: routes with exactly this service name and broker instance.'
    if message.broker_instance is not None:
        found = [route for route in named if route["broker_instance"] == message.broker_instance]
        if found:
            return [(1, found)]
    # 2. 'Exactly this service name, among routes without a broker instance.'
    found = [route for route in named if route["broker_instance"] is None]
    if found:
        return [(2, found)]
    # 3. 'The conversation names no broker instance: exactly this service name among routes with one. With several
    # broker instances one is picked (R5), and only its routes match.'
    if message.broker_instance is None and named:
        picks = sorted({str(route["broker_instance"]) for route in named})
        return [(3, [route for route in named if route["broker_instance"] == pick]) for pick in picks]
    return _matches_by_question(message, table)


def _matches_by_question(message: _Message, table: list[Record]) -> list[tuple[int, list[Record]]]:
    """Returns rule 4 or the rules after it, or both where the page is open."""
    asking = any(route["service_name"] == CONFIGURATION_SERVICE for route in table)
    delayed: list[tuple[int, list[Record]]] = [(4, [])]
    # 'Messages to the configuration service itself skip this rule.' 'After an answer (END) the service is matched once
    # without rule 4.'
    if message.service == CONFIGURATION_SERVICE or message.question == "ANSWERED":
        return _matches_unnamed(message, table)
    # 4. 'A route for the service SQL/ServiceBroker/BrokerConfiguration exists and no request for this service is
    # pending: the conversation is DELAYED (9770).'
    if message.question == "NOT_ASKED":
        return delayed if asking else _matches_unnamed(message, table)
    # 'Read literally they would fall to rule 5.'
    if message.semantics == "literal":
        return _matches_unnamed(message, table)
    # R3: 'While a request is pending, other conversations to the same service are DELAYED too.' Open: does rule 4's
    # first condition, that a route for the configuration service exists, still apply then?
    return delayed if asking else delayed + _matches_unnamed(message, table)


def _matches_unnamed(message: _Message, table: list[Record]) -> list[tuple[int, list[Record]]]:
    """Returns rule 5, 6 or 7."""
    # 5. 'Routes with neither service name nor broker instance.'
    found = [route for route in table if route["service_name"] is None and route["broker_instance"] is None]
    if found:
        return [(5, found)]
    # 6. 'The conversation names a broker instance, and some database here has a service of that name: as if there were
    # a route with the service's name and LOCAL.' The assumed route has no name.
    if message.broker_instance is not None and message.homes():
        return [(6, [{"name": None, "broker_instance": None, "address": "LOCAL", "mirror_address": None}])]
    # 7. 'DELAYED (9750).'
    return [(7, [])]


# Step 2: choose. R5's hash decides among equals, so any of them may be chosen first.


def _choose(message: _Message, rule: int, routes: list[Record]) -> list[Record]:
    """Returns the results of the first kind of route in which a route can be used, or else the results of R2."""
    unmirrored = [route for route in routes if route["mirror_address"] is None]
    # 'In this order: with a mirror address; LOCAL, if a database here has a service of that name; a network address;
    # TRANSPORT.'
    kinds = [
        [route for route in routes if route["mirror_address"] is not None],
        [route for route in unmirrored if route["address"] == "LOCAL" and message.homes()],
        [route for route in unmirrored if route["address"] not in {"LOCAL", "TRANSPORT"}],
        [route for route in unmirrored if route["address"] == "TRANSPORT"],
    ]
    for kind in kinds:
        results = [result for route in kind for result in _use(message, rule, route)]
        if results:
            return results
    # R2: 'Nothing could be chosen or found.' 'With several candidates any of their numbers is right.'
    return [_held(message, rule, None, number) for route in routes for number in _failures(message, route)]


def _use(message: _Message, rule: int, route: Record) -> list[Record]:
    """Returns where a chosen route may lead, or nothing if the message goes 'back to step 2 with the next route'."""
    if route["address"] == "LOCAL":
        return [_local(message, rule, route["name"], home) for home in _find(message, route)]
    if route["address"] != "TRANSPORT":
        return [_remote(rule, route["name"], route["address"], route["mirror_address"])]
    # 'The service's name, up to the first slash behind tcp://HOST:PORT, is its address; a name that is none: 9744,
    # next route.'
    if network_address(message.service) is None:
        return []
    return [_remote(rule, route["name"], "/".join(message.service.split("/")[:3]), None)]


def _failures(message: _Message, route: Record) -> list[int]:
    """Returns the numbers that a failed candidate may have (R2)."""
    broker_instance = route["broker_instance"] if message.broker_instance is None else message.broker_instance
    absent = broker_instance is not None and not message.is_here(broker_instance)
    if route["address"] == "TRANSPORT":
        # Open: '9795 if the broker instance is not here; else 9796, or 9744' against 'a name that is none: 9744'.
        return [9744, 9795] if absent else [9744]
    return [9795] if absent else [9796]


# Step 3: find the service, for LOCAL


def _find(message: _Message, route: Record) -> list[Record]:
    """Returns the services that a LOCAL route may find."""
    # 'A broker instance in the conversation or, failing that, in the route: the database with it, if it is here and
    # has the service.'
    broker_instance = route["broker_instance"] if message.broker_instance is None else message.broker_instance
    if broker_instance is not None:
        return [home for home in message.homes() if home["broker_instance"] == broker_instance]
    # 'Otherwise the sender's database first (own messages, also come back), then the other databases here.'
    return [home for home in message.homes() if home["database"] == message.sender] or message.homes()


# Results, in the form of `route explain --json`


def _local(message: _Message, rule: int | None, route: str | None, home: Record) -> Record:
    found = {"database": home["database"], "service": message.service, "queue": home["queue"]}
    return _result("LOCAL", rule, route) | found


def _remote(rule: int, route: str | None, address: str, mirror_address: str | None) -> Record:
    return _result("REMOTE", rule, route) | {"address": address, "mirror_address": mirror_address}


def _held(message: _Message, rule: int | None, route: str | None, number: int) -> Record:
    """Returns R2's result: 'an own message is DELAYED, also after it came back; one from outside is dropped'."""
    return _result("DELAYED" if message.own else "DROPPED", rule, route) | {"number": number}


def _result(outcome: str, rule: int | None, route: str | None) -> Record:
    nothing = dict.fromkeys(("database", "service", "queue", "address", "mirror_address", "number"))
    return {"outcome": outcome, "rule": rule, "route": route} | nothing
