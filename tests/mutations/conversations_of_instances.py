"""Bugs that contradict the statements of docs/conversations.md about other instances."""

from tests.mutations.bug import Bug, Bugs

_STEP = "core/conversations/step.py"
_CONVERSATION = "core/conversations/conversation.py"
_LOOKING = "core/conversations/due_work.py"
_RECEIVING = "core/conversations/dispatcher.py"
_TRANSMITTING = "core/conversations/transmission.py"
_CONTEXT = "core/conversations/context.py"
_SETTINGS = "core/conversations/settings.py"
_REPEAT_AFTER = "far.resend_after_ms = min(2 * far.resend_after_ms,"
_TAKE_INCOMING = "        for record, found in incoming:\n            self._take_said(Source.INCOMING, record, found)\n"
_SEND_AGAIN = "        self._send_again(news)\n"
_KEEP = "conversation.over_ms = max(conversation.over_ms, context.now_ms)\n"
_LOOK_AT_DUE = "        self._look_at_due()\n"

BUGS: Bugs = {
    "From another instance, in sequence": [
        Bug(
            _TRANSMITTING,
            "if far is None or not far.owes_acknowledgement:",
            "if far is None or not far.owes_acknowledgement or far.side != TARGET:",
        ),
        Bug(
            _TRANSMITTING,
            "receive_sequence=far.received_below,",
            "receive_sequence=max(0, far.received_below - 1),",
        ),
    ],
    "A repeat (11218) is dropped": [
        Bug(_RECEIVING, "        far.owes_acknowledgement = True\n        number =", "        number ="),
        Bug(
            _RECEIVING,
            "if number < far.received_below:",
            "if number < far.received_below - 1:",
        ),
    ],
    "What is ahead of sequence waits": [
        Bug(_SETTINGS, "stale_ms: int = 10_000", "stale_ms: int = 15_000"),
        Bug(_RECEIVING, "message.received_ms <= before_ms", "message.received_ms < before_ms"),
        Bug(_RECEIVING, "conversation.conversation_id, OUT_OF_ORDER)", "conversation.conversation_id, REPEATED)"),
    ],
    "What comes for a closed endpoint": [
        Bug(_RECEIVING, "self.context.refuse(offset, ENDPOINT_CLOSED, RECEIVER_CLOSED, Source.INCOMING)", "pass"),
        Bug(_RECEIVING, "        far.received_below = sequence + 1\n        if kind", "        if kind"),
        Bug(
            _RECEIVING,
            "kind == Kind.MESSAGE and self.conversation.state(own) is State.CD and not",
            "kind == Kind.END and self.conversation.state(own) is State.CD and not",
        ),
    ],
    "What belongs to a conversation that is not known": [
        Bug(
            _RECEIVING,
            "        _answer_stranger(context, envelope, service.database, REMOTE",
            "        (lambda *_: None)(context, envelope, service.database, REMOTE",
        ),
        Bug(
            _RECEIVING,
            "if envelope.is_initiator and not envelope.first_unacknowledged and",
            "if envelope.is_initiator and",
        ),
    ],
    "If another instance has acknowledged": [
        Bug(
            _RECEIVING,
            "(envelope.first_unacknowledged or 0) > far.received",
            "(envelope.first_unacknowledged or 0) > 1 + far.received",
        ),
        Bug(
            _RECEIVING,
            "        self.fail(TARGET - far.side, REMOTE_ENDPOINT_GONE, RECEIVED_ELSEWHERE)\n",
            "",
        ),
        Bug(_RECEIVING, "        self.reset(far, -REMOTE_ENDPOINT_GONE, RECEIVED_ELSEWHERE)\n", ""),
    ],
    "A second target gets": [
        Bug(_RECEIVING, 'return far.broker_instance == (sender or "")', "return True"),
        Bug(
            _RECEIVING,
            "        _answer_stranger(context, envelope, endpoint.database, SECOND",
            "        (lambda *_: None)(context, envelope, endpoint.database, SECOND",
        ),
    ],
    "What comes for a database that is not here": [
        Bug(
            _RECEIVING,
            "if endpoint.database in definitions.databases and not definitions.is_here(endpoint.database):",
            "if False:",
        ),
    ],
    "If no route leads on": [
        Bug(_RECEIVING, "LOOP if is_loop else decision.number", "LOOP if is_loop else None"),
    ],
    "A message is sent on ten times": [
        Bug(_SETTINGS, "max_hops: int = 10", "max_hops: int = 9"),
        Bug(_RECEIVING, "and hops >= 0:", "and hops > 0:"),
    ],
    "Conversations of other instances, and what": [
        Bug(_RECEIVING, "settings.max_conversations // 2", "settings.max_conversations"),
        Bug(_RECEIVING, "context.waiting_count < settings.max_held // 2", "context.waiting_count < settings.max_held"),
        Bug(
            _RECEIVING,
            "context.incoming_conversations >= context.settings",
            "context.incoming_conversations > context.settings",
        ),
    ],
    "A message that can never be sent": [
        Bug(_LOOKING, "    looking.fail(TARGET - far.side, 0, reason)\n", ""),
        Bug(_LOOKING, "any(item.sequence == sequence for item in", "any(True for item in"),
    ],
    "What is not acknowledged is sent again after": [
        Bug(_SETTINGS, "\n    resend_ms: int = 4_000", "\n    resend_ms: int = 5_000"),
        Bug(_SETTINGS, "max_resend_ms: int = 64_000", "max_resend_ms: int = 128_000"),
        Bug(_TRANSMITTING, _REPEAT_AFTER, "far.resend_after_ms = min(far.resend_after_ms,"),
        Bug(_TRANSMITTING, "elif now_ms >= sending.resend_ms:", "elif now_ms > sending.resend_ms:"),
    ],
    "It is sent again at once when": [
        Bug(
            _TRANSMITTING,
            "after_ms\n            far.sending = Sending(first)\n",
            "after_ms\n            far.sending = Sending(getattr(far.sending, 'next_to_send', first))\n",
        ),
        Bug(
            _CONVERSATION,
            "            self.sending.resend_ms = now_ms\n",
            "            pass\n",
        ),
    ],
    "Acknowledgements are cumulative": [
        Bug(
            _TRANSMITTING,
            "    while direction.waiting and direction.waiting[0].sequence < received:",
            "    for _ in range(direction.waiting[0].sequence < received if direction.waiting else 0):",
        ),
        Bug(
            _RECEIVING,
            "received = envelope.receive_sequence_number or 0",
            "received = (envelope.receive_sequence_number or 0) if envelope.type == 'ACK' else 0",
        ),
    ],
    "At most 500 messages": [
        Bug(_TRANSMITTING, "end = min(len(waiting), window)", "end = min(len(waiting), window + 1)"),
        Bug(_TRANSMITTING, "end = min(len(waiting), window)", "end = len(waiting)"),
    ],
    "If acknowledgements take more than 2 s": [
        Bug(_CONTEXT, "min(2 * taken_ms,", "min(taken_ms,"),
        Bug(_CONTEXT, "share = 2 if self.slowest_ms > self.round_trip_ms else 8", "share = 8"),
    ],
    "Only the first message is repeated": [
        Bug(_TRANSMITTING, "            far.window = 1\n", "            far.window = None\n"),
        Bug(_TRANSMITTING, "far.window += 1\n", "far.window += 2\n"),
        Bug(_TRANSMITTING, "far.window += 1\n", "pass\n"),
    ],
    "A closed conversation is remembered until its far side": [
        Bug(_RECEIVING, "        far.repeats_below = max(far.repeats_below, number + 1)\n", ""),
        Bug(
            _LOOKING,
            "may_repeat = conversation.far is not None and conversation.far.repeats_below > 0",
            "may_repeat = conversation.far is not None",
        ),
        Bug(
            _RECEIVING,
            "if 0 < far.repeats_below <= (envelope.first_unacknowledged or 0):",
            "if 0 < far.repeats_below <= 1 + (envelope.first_unacknowledged or 0):",
        ),
        Bug(_LOOKING, "_GONE_AFTER_MS = 7 *", "_GONE_AFTER_MS = 8 *"),
        Bug(_RECEIVING, f"be recognised.\n        {_KEEP}", "be recognised.\n"),
        Bug(_RECEIVING, "            conversation.over_ms = max(conversation.over_ms, now_ms)\n", ""),
        Bug(_LOOKING, "far.repeats_below > 0 and conversation.over_ms <", "conversation.over_ms <"),
        Bug(_LOOKING, "away_ms = context.away.get(far.address, 0)", "away_ms = 0"),
        Bug(
            _LOOKING, "if not is_connected and (address in away or", "if not is_connected and address not in away and ("
        ),
        Bug(_LOOKING, "away[address] = min(away[address], now_ms)", "del away[address]"),
    ],
    "A router that was down reads": [
        Bug("spark/routing/step_shard.py", f"{_TAKE_INCOMING}{_SEND_AGAIN}", f"{_SEND_AGAIN}{_TAKE_INCOMING}"),
        Bug(
            "spark/routing/step_shard.py",
            f"{_TAKE_INCOMING}{_SEND_AGAIN}{_LOOK_AT_DUE}",
            f"{_LOOK_AT_DUE}{_TAKE_INCOMING}{_SEND_AGAIN}",
        ),
    ],
    "What a closed endpoint tells a far side": [
        Bug(_LOOKING, "self.context.now_ms >= gone_ms", "self.context.now_ms > gone_ms"),
        Bug(
            _LOOKING, "            self.tell_nothing_more(self.conversation.far, _NOT_HEARD_OF)\n", "            pass\n"
        ),
        Bug(_STEP, "            self.tell_nothing_more(far, LIFETIME_EXCEEDED)\n", "            pass\n"),
    ],
    "An open conversation waits for its far side": [
        Bug(
            _CONVERSATION,
            "self.state(TARGET - self.far.side) in {State.CD, State.ER}",
            "self.state(TARGET - self.far.side) is not State.ABSENT",
        ),
        Bug(
            "core/conversations/statements.py",
            "            self.drop_to_far(self.conversation.far, None, is_sent_kept=False)\n",
            "            self.drop_to_far(self.conversation.far, None, is_sent_kept=True)\n",
        ),
    ],
    "The first acknowledgement fixes": [
        Bug(_RECEIVING, "conversation.to_broker_instance = envelope.from_broker_instance", "pass"),
        Bug(_RECEIVING, 'return far.broker_instance == (sender or "")', "return True"),
    ],
    "From then on, the routes for its broker instance": [
        Bug("core/routing/matching_routes.py", "{1: rule_1, 2: rule_2, 3: rule_3", "{2: rule_2, 1: rule_1, 3: rule_3"),
        Bug(
            "core/routing/matching_routes.py",
            "if instance is not None else NO_ROUTES",
            "if instance is None else NO_ROUTES",
        ),
    ],
    "An Error that ends the far endpoint at once": [
        Bug(_TRANSMITTING, "item.sequence if item.sequence != RESET else None", "item.sequence"),
        Bug(_TRANSMITTING, "        self.drop_to_far(far, text, is_sent_kept=False)\n", ""),
    ],
}
