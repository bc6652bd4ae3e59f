"""Bugs that contradict the statements of docs/conversations.md."""

from tests.mutations.bug import Bug, Bugs

_STATES = "core/conversations/endpoint_states.py"
_STATEMENTS = "core/conversations/statements.py"
_DELIVERING = "core/conversations/delivery.py"
_HOLDING = "core/conversations/held_messages.py"
_STEP = "core/conversations/step.py"
_LOOKING = "core/conversations/due_work.py"
_CONVERSATION = "core/conversations/conversation.py"
_CARRYING = "core/conversations/decision_batches.py"
_MARKS = "core/conversations/marks.py"
_MIRRORS = "core/conversations/mirrors.py"
_QUESTIONS = "core/conversations/questions.py"
_SETTINGS = "core/conversations/settings.py"
_DEFINITIONS = "core/routing/definitions.py"
_RESOLVING = "core/routing/resolution.py"
_STORE = "spark/routing/conversation_store.py"

_APPEND = "direction.waiting.append(item"
_FIRST = '(self._numbers("lowest_offset")[due], resting_ms[due])'
_FAIL_BOTH = "            self.fail_both(TARGET, LIFETIME_OVER,"
_DROP_UNSENT = "self.drop_unsent(self.far_side)\n"

BUGS: Bugs = {
    "A statement that the endpoint's state does not allow": [
        Bug(_STATEMENTS, "self.offset, WRONG_STATE, reason)", "self.offset, None, reason)"),
        Bug(
            _STATES,
            "(State.CO, Trigger.END): State.DO",
            "(State.DO, Trigger.SEND): State.DO,\n    (State.CO, Trigger.END): State.DO",
        ),
        Bug(_STATES, "    (State.DI, Trigger.SET_TIMER): State.DI,\n", ""),
    ],
    "A target begins with its first message": [
        Bug(_HOLDING, "endpoint = Endpoint(State.CO,", "endpoint = Endpoint(State.DI,"),
    ],
    "An endpoint in DO is closed when": [
        Bug(_STATES, "(State.DO, Trigger.END_DELIVERED): State.CD", "(State.DO, Trigger.END_DELIVERED): State.DO"),
        Bug(_STATES, "(State.DO, Trigger.FAR_FAILED): State.CD", "(State.DO, Trigger.FAR_FAILED): State.ER"),
        Bug(
            _DELIVERING,
            "if item.kind != Kind.MESSAGE:\n            if conversation.has_ended(TARGET - to)",
            "if item.kind != Kind.MESSAGE:\n            if False",
        ),
    ],
    "The messages of a direction are numbered from 0": [
        Bug(
            _DELIVERING,
            "item.sequence = direction.next_sequence\n",
            "item.sequence = sum(each.next_sequence for each in self.conversation.directions)\n",
        ),
        Bug(_DELIVERING, "sequence=item.sequence if", "sequence=item.sequence + 1 if"),
    ],
    "While one is held, all later ones": [
        Bug(_DELIVERING, _APPEND, "direction.waiting.appendleft(item"),
        Bug(
            _STATEMENTS,
            "        if trigger is Trigger.END:\n",
            "        if trigger is Trigger.END:\n            conversation.apply(self.side, Trigger.END_DELIVERED)\n",
        ),
    ],
    "The directions do not wait": [
        Bug(
            _DELIVERING,
            "if direction.held is None:\n",
            "if all(each.held is None for each in self.conversation.directions):\n",
        ),
    ],
    "The numbers of a direction have gaps": [
        Bug(
            _DELIVERING,
            "direction.due_sequence = direction.dropped_below = direction.next_sequence",
            "direction.next_sequence = direction.due_sequence = direction.next_sequence - 1",
        ),
    ],
    "An Error of the router takes a number": [
        Bug(_STEP, "Item(-1, Kind.TIMER", "Item(self.conversation.directions[side].next_sequence, Kind.TIMER"),
        Bug(
            _STEP,
            "until_ms >= endpoint.timer_ms:",
            "until_ms >= endpoint.timer_ms and not conversation.directions[side].waiting:",
        ),
        Bug(
            _DELIVERING,
            "sequence=item.sequence if item.sequence >= 0",
            "sequence=item.sequence if item.offset >= 0 or item.body is not None",
        ),
    ],
    "The key of a message in the queue": [
        Bug(_DELIVERING, "group_id=receiver.group_id", "group_id=conversation.conversation_id"),
        Bug(
            _DELIVERING,
            "new_endpoint(definitions, service, conversation.conversation_id)",
            "new_endpoint(definitions, service, conversation.services[TARGET])",
        ),
        Bug(
            _STATEMENTS,
            "group_id is not None and group_id != endpoint.group_id",
            "group_id is not None and endpoint.group_id == conversation.conversation_id",
        ),
    ],
    "One endpoint gets each message once": [
        Bug(_MARKS, "if number <= last:", "if number < last:"),
        Bug(
            _CARRYING, "if verdict is not Verdict.CARRY_OUT:", "if verdict not in (Verdict.CARRY_OUT, Verdict.REPEAT):"
        ),
        Bug(
            _CARRYING,
            "self.position, self._holds = self._stored.copy(), self._stored_holds",
            "self._holds = self._stored_holds",
        ),
    ],
    "A message that cannot go is held": [
        Bug(
            _HOLDING,
            "self.context.now_ms if held is None else held.since_ms",
            "self.context.now_ms",
        ),
        Bug(_HOLDING, "direction.held = Held(why,", "direction.held = held or Held(why,"),
        Bug(_HOLDING, "            direction.held = None\n", ""),
    ],
    "The router looks again as soon as": [
        Bug(_DEFINITIONS, "self.changes.routed.add(route.service_name)", "pass"),
        Bug(_DEFINITIONS, "self.changes.routed.add(name)", "pass"),
        Bug(_DEFINITIONS, "self._changed(growth)\n        self.changes.is_all = True", "self._changed(growth)"),
        Bug(_DEFINITIONS, "self.version += 1\n                self._route_changed(route)", "self.version += 1"),
        Bug(_DEFINITIONS, "        self._route_changed(before)\n", ""),
        Bug(_STORE, "is_due = (held[0] != 0) | (held[1] != 0)", "is_due = held[1] != 0"),
        Bug(_STORE, "np.isin(held[0], routed) | np.isin(held[1], routed)", "np.isin(held[1], routed)"),
    ],
    "`conversation retry` lets the router": [
        Bug(
            _LOOKING,
            "                direction.held.retry_ms = None\n",
            "                pass\n",
        ),
    ],
    "If no address of a mirrored route": [
        Bug(_MIRRORS, "ASK_AGAIN_MS = 10_000", "ASK_AGAIN_MS = 20_000"),
        Bug(_MIRRORS, "        if now_ms < known.asked_ms + ASK_AGAIN_MS:\n            return None\n", ""),
        Bug(_MIRRORS, "return None if index is None else pair[1 + index]", "return pair[1 + (index or 0)]"),
    ],
    "If a route leads to another instance but": [
        Bug(_DELIVERING, "    elif receiver is None:\n", "    elif True:\n"),
    ],
    "Deliveries whose topic is missing": [
        Bug(_SETTINGS, "delivery_retry_ms: int = 25_000", "delivery_retry_ms: int = 20_000"),
        Bug(
            _LOOKING,
            "retry_ms = next_turn_ms(self.context.now_ms, self.context.settings.delivery_retry_ms)",
            "retry_ms = self.context.now_ms + self.context.settings.delivery_retry_ms",
        ),
    ],
    "Messages wait while earlier ones": [
        Bug(_DELIVERING, "if item.sequence != direction.due_sequence:", "if item.sequence < direction.due_sequence:"),
    ],
    "A partition lets a limited number": [
        Bug(_HOLDING, "if self.context.let_go <= 0:", "if self.context.let_go < 0:"),
        Bug(_HOLDING, "        self.context.let_go -= 1\n", ""),
    ],
    "Pinning: the first delivery fixes": [
        Bug(_DELIVERING, "conversation.to_broker_instance = definitions", "definitions"),
    ],
    "Pinning: an older conversation waits": [
        Bug("core/routing/target_service.py", "return NO_BROKER_INSTANCE", "return NO_SERVICE"),
    ],
    "After a failed delivery, all later ones": [
        Bug(_LOOKING, "deque([items[sequence] for sequence in sorted(items)])", "deque(items.values())"),
        Bug(
            _LOOKING,
            "direction.due_sequence = min(direction.due_sequence, sequence)",
            "direction.due_sequence = sequence",
        ),
        Bug(
            _CARRYING,
            "        self._report(sender, delivery, is_returned=True)\n        return True",
            "        return False",
        ),
        Bug(_CARRYING, "_order(delivery) > _order(refusal)", "_order(delivery) >= _order(refusal)"),
    ],
    "A message that can never be delivered": [
        Bug(_DELIVERING, "for side in (TARGET - to, to):", "for side in (TARGET - to,):"),
        Bug(_DELIVERING, "for side in (TARGET - to, to):", "for side in (to,):"),
        Bug(_CARRYING, "is_returned=not failure.is_lasting", "is_returned=True"),
    ],
    "END: what is held still goes": [
        Bug(
            _STATEMENTS, "if trigger is Trigger.END_WITH_ERROR:", "if trigger in (Trigger.END, Trigger.END_WITH_ERROR):"
        ),
    ],
    "END WITH ERROR: what is held is dropped": [
        Bug(_STATEMENTS, "            self.drop_unsent(far_side)\n", "            pass\n"),
        Bug(
            _STATEMENTS,
            "self.send(far_side, Item(-1, Kind.ERROR, self.offset))",
            "self.send(far_side, Item(-1, Kind.END, self.offset))",
        ),
    ],
    "END WITH CLEANUP: what is held is dropped": [
        Bug(_STATEMENTS, _DROP_UNSENT, "pass\n"),
        Bug(_STATEMENTS, "if self.conversation.services[self.far_side] == ROUTERS_SERVICE:\n", "if True:\n"),
        Bug(
            _DELIVERING,
            "                self._do_next(partial(self._fail, TARGET - to, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE))\n",
            "                pass\n",
        ),
    ],
    "The lifetime is over": [
        Bug(_STEP, "if until_ms >= conversation.ends_ms:", "if until_ms > conversation.ends_ms:"),
        Bug(_STEP, "and self.conversation.is_only_telling():", "and self.conversation.directions[far.side].waiting:"),
        Bug(_STEP, _FAIL_BOTH, "            self.fail(TARGET, LIFETIME_OVER,"),
        Bug(_STEP, _FAIL_BOTH, "            self.fail_both(TARGET, 0,"),
        Bug(_STATEMENTS, "end_of_lifetime(envelope, timestamp_ms)", "end_of_lifetime(envelope, context.now_ms)"),
    ],
    "ALTER DATABASE with another broker instance": [
        Bug(
            _LOOKING,
            "self.fail_both(side, REMOTE_ENDPOINT_GONE, reason)",
            "self.fail(side, REMOTE_ENDPOINT_GONE, reason)",
        ),
        Bug(
            _LOOKING,
            "self.fail_both(side, REMOTE_ENDPOINT_GONE, reason)",
            "self.fail(TARGET - side, REMOTE_ENDPOINT_GONE, reason)",
        ),
        Bug(
            _LOOKING,
            "self.fail_both(side, REMOTE_ENDPOINT_GONE, reason)",
            "self.fail_both(side, REMOTE_SERVICE_DROPPED, reason)",
        ),
        Bug(
            _LOOKING,
            "if not conversation.is_closed(side):\n                self._end",
            "if True:\n                self._end",
        ),
    ],
    "DROP SERVICE and DROP DATABASE": [
        Bug(_LOOKING, "        self.fail(TARGET - side, REMOTE_SERVICE_DROPPED, reason)\n", ""),
        Bug(
            _LOOKING,
            "        self.drop(side, reason)\n",
            "        self.drop(side, None)\n",
        ),
        Bug(
            _DEFINITIONS,
            "            self.drop_service(name, service)\n",
            "            del self._services[service][name]\n            self._look_where_service_is(service)\n",
        ),
    ],
    "A limit of held messages": [
        Bug(
            _DELIVERING,
            "len(direction.waiting) > settings.max_held_per_direction",
            "len(direction.waiting) >= settings.max_held_per_direction",
        ),
        Bug(_DELIVERING, "context.waiting_count > settings.max_held:", "context.waiting_count >= settings.max_held:"),
        Bug(_DELIVERING, "partial(self._fail, TARGET - to, 0, problem), ", ""),
        Bug(
            _DELIVERING,
            "self._send(to, Item(-1, Kind.ERROR, -1, 0, problem))",
            "self._fail(to, 0, problem)",
        ),
    ],
    "The codes of the router's errors": [
        Bug(
            _DELIVERING,
            "Kind.ERROR, -1, -code, text)",
            "Kind.ERROR, -1, code, text)",
        ),
        Bug(_STATEMENTS, "-(number or 0),", "number or 0,"),
    ],
    "An endpoint gets one Error of the router": [
        Bug(
            _DELIVERING,
            "is not None and not conversation.is_closed(side)",
            "is not None and not conversation.has_ended(side)",
        ),
        Bug(_DELIVERING, "    if errors and is_lost:\n", "    if False:\n"),
    ],
    "A service that is created again": [
        Bug(
            _DELIVERING,
            "return decision.service if receiver is None else self.own_service(to)",
            "return decision.service",
        ),
        Bug(
            _LOOKING, "service is not None and endpoint.service_created in (0, service.created)", "service is not None"
        ),
        Bug(_HOLDING, "service is None or endpoint.service_created not in (0, service.created)", "service is None"),
    ],
    "A closed conversation is remembered for": [
        Bug(_SETTINGS, "tombstone_ms: int = 1_800_000", "tombstone_ms: int = 1_200_000"),
        Bug(_LOOKING, "if context.now_ms < until_ms or", "if context.now_ms <= until_ms or"),
        Bug(_LOOKING, "if context.broker_ms - context.read_ms <= _LATE_MS:", "if True:"),
        Bug(_LOOKING, "_LATE_MS = 60_000", "_LATE_MS = 10_000"),
    ],
    "A conversation that only one side has ended": [
        Bug(
            _CONVERSATION,
            "self.state(side) in {State.ABSENT, State.CD}\n",
            "self.state(side) in {State.ABSENT, State.CD, State.DI}\n",
        ),
    ],
    "A timer replaces an earlier one": [
        Bug(
            _STATEMENTS,
            "endpoint.timer_ms = timestamp_ms + (envelope.timer_ms or 0)",
            "endpoint.timer_ms = min(endpoint.timer_ms, timestamp_ms + (envelope.timer_ms or 0))",
        ),
        Bug(_STEP, "until_ms >= endpoint.timer_ms", "until_ms > endpoint.timer_ms"),
    ],
    "After an Error there is no DialogTimer": [
        Bug(
            _STATES,
            "    (State.ER, Trigger.END): State.CD",
            "    (State.ER, Trigger.SET_TIMER): State.ER,\n    (State.ER, Trigger.END): State.CD",
        ),
        Bug(_CONVERSATION, "if state in ENDED or (state is State.ER and not is_question):", "if state in ENDED:"),
    ],
    "If the timer's service is not here": [
        Bug(_SETTINGS, "timer_retry_ms: int = 10_000", "timer_retry_ms: int = 15_000"),
        Bug(
            _STEP,
            "endpoint.timer_ms = self.context.broker_ms + self.context.settings.timer_retry_ms",
            "endpoint.timer_ms = FOREVER_MS",
        ),
    ],
    "8426: a statement for a conversation": [
        Bug(_STATEMENTS, 'not in ("MESSAGE", "TIMER")', 'not in ("MESSAGE", "TIMER", "END")'),
        Bug(_STATEMENTS, 'not in ("MESSAGE", "TIMER")', 'not in ("MESSAGE",)'),
        Bug(_STATEMENTS, "elif not envelope.begin or not envelope.is_initiator:", "if not envelope.begin:"),
    ],
    "11212: a message for an endpoint": [
        Bug(
            _DELIVERING,
            "self._not_taken(to, item, ENDPOINT_CLOSED, RECEIVER_CLOSED)",
            "self._not_taken(to, item, None, RECEIVER_CLOSED)",
        ),
        Bug(_CONVERSATION, "self.state(side) in CLOSED", "self.state(side) in ENDED"),
    ],
    "Without a number: a second BEGIN": [
        Bug(
            _STATEMENTS,
            "is not None and envelope.begin:",
            "is not None and envelope.begin and not envelope.is_initiator:",
        ),
        Bug(_STATEMENTS, "envelope.from_service != service or envelope.from_database", "envelope.from_database"),
        Bug(
            _STATEMENTS,
            "envelope.from_service != service or envelope.from_database != endpoint.database",
            "envelope.from_service != service",
        ),
        Bug(_STATEMENTS, "if envelope.to_service != far_service:", "if not envelope.to_service:"),
        Bug(
            _STATEMENTS,
            "if service is None and envelope.from_database in",
            "if service is None and envelope.from_database not in",
        ),
    ],
    "A BEGIN from a database that does not exist": [
        Bug(
            _STATEMENTS,
            "if service is None and envelope.from_database in context.definitions.databases:",
            "if service is None:",
        ),
        Bug(_RESOLVING, "return self._undelivered(SENDER_NOT_HERE)", "return self._undelivered(NO_ROUTE)"),
    ],
    "Each service is asked for once": [
        Bug(_QUESTIONS, "if name == service and (was_held", "if (was_held"),
    ],
    "A question stays open until": [
        Bug(
            "core/conversations/route_questions.py",
            "    context.questions.begin((database, service), conversation_id)\n",
            "",
        ),
        Bug(_QUESTIONS, "NEEDED_FOR_MS = 2 * _NEEDED_AGAIN_MS", "NEEDED_FOR_MS = _NEEDED_AGAIN_MS"),
        Bug(
            _STEP,
            "        if self.conversation.endpoints[TARGET] is not None or (far is not None and far.broker_instance is not None):\n"
            "            return\n",
            "",
        ),
        Bug(_STEP, "        self.context.questions.close((endpoint.database, endpoint.group_id))\n", ""),
        Bug(_STEP, "            self._take_question_back(endpoint)\n", ""),
    ],
    "After a question that failed": [
        Bug(_QUESTIONS, "now_ms + _ASK_AGAIN_MS)", "now_ms + _NEEDED_AGAIN_MS)"),
        Bug(_QUESTIONS, "Progress.FAILED if is_error else Progress.ANSWERED", "Progress.ANSWERED"),
    ],
    "A message from outside is dropped (9770)": [
        Bug(
            _RESOLVING,
            "return Decision(self._held(), rule",
            "return Decision(Outcome.DELAYED if number == ROUTE_ASKED_FOR else self._held(), rule",
        ),
    ],
    "A partition has a limit of conversations": [
        Bug(
            _STATEMENTS,
            "context.conversations >= context.settings.max_conversations",
            "context.conversations > context.settings.max_conversations",
        ),
    ],
    "A partition looks at a limited number": [
        Bug(_STORE, f"np.lexsort({_FIRST})", f"np.lexsort({_FIRST}[::-1])"),
        Bug(_STORE, f"due[np.lexsort({_FIRST})][:limit]", "due[:limit]"),
        Bug(_STORE, "np.flatnonzero(resting_ms <= 0)", "np.flatnonzero(resting_ms < 0)"),
    ],
    "Services for which a route is asked": [
        Bug(_QUESTIONS, "MAX_QUESTIONS = 1_000", "MAX_QUESTIONS = 1_001"),
        Bug(_QUESTIONS, "len(self._known) >= MAX_QUESTIONS", "len(self._known) > MAX_QUESTIONS"),
    ],
    "A transport has a limit of connections": [
        Bug("daemons/transport/connections.py", "now_ms, each.state.used_ms))", "now_ms, -each.state.used_ms))"),
        Bug("daemons/transport/connections.py", "MAX_CONNECTIONS = 100", "MAX_CONNECTIONS = 101"),
    ],
}
