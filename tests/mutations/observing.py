"""Bugs that contradict the sentences of docs/observing.md."""

from tests.mutations.bug import Bug, Bugs

_VERDICT = "core/observer/verdict.py"
_PHANTOMS = "core/observer/phantoms.py"
_STALLS = "core/observer/stalls.py"
_GROUP = "core/observer/watched_group.py"
_QUEUE = "core/activation/queue.py"
_OBSERVATION = "core/activation/observation.py"

_FIRST_YES = "event.members > 0 and (before is None or before.one_more is not True)"

BUGS: Bugs = {
    "A group without members: one more has work": [
        Bug(_VERDICT, 'return Verdict(True, f"nobody reads, and', 'return Verdict(None, f"nobody reads, and'),
    ],
    "Offsets without content are not messages": [
        # Phantoms are believed.
        Bug(_PHANTOMS, "return self.is_denied or offset <= self.found.get(place, -1) < end", "return True"),
        Bug(_PHANTOMS, "return self.is_denied or offset <= self.found.get(place, -1) < end", "return bool(self.found)"),
        Bug(_PHANTOMS, "return until if first <= offset <= until <= end else offset", "return offset"),
        # A test is believed by groups about which it says nothing.
        Bug(_PHANTOMS, " if begin <= self.empty_until else None", ""),
        Bug(_PHANTOMS, "        if begin < self.begin:", "        if False:"),
    ],
    "A group with members: messages wait": [
        # Late without L.
        Bug(_GROUP, "end := log.end_at(now_ms - late_ms)", "end := log.end"),
        Bug(_GROUP, "end := log.end_at(now_ms - late_ms)", "end := log.end_at(now_ms - late_ms // 2)"),
    ],
    "L is one and a half times": [
        Bug(_STALLS, "longest_ms * 3 // 2", "longest_ms"),
        Bug(_STALLS, "_REMEMBERED_MS = 600_000", "_REMEMBERED_MS = 900_000"),
        Bug(_STALLS, "least_ms = 2 * look_interval_ms if", "least_ms = look_interval_ms if"),
        Bug(_STALLS, ", least_ms), LONGEST_LATE_AFTER_MS)", ", least_ms), 2 * LONGEST_LATE_AFTER_MS)"),
    ],
    "Until it is known how often the group commits": [
        Bug(_STALLS, "        if not self.has_seen_one:\n            return None\n", ""),
        Bug(_STALLS, "had_backlog: bool = True", "had_backlog: bool = False"),
    ],
    "A new owner has L": [
        # An owner that has no L.
        Bug(_GROUP, "has_had_time = now_ms - owned_since_ms >= late_ms", "has_had_time = now_ms >= owned_since_ms"),
    ],
    "A partition without an owner is work": [
        Bug(_VERDICT, "each.owner is None and each.unowned_ms >= late_ms", "each.owner is None"),
        Bug(_GROUP, "unowned_ms = now_ms - since_ms if owner is None else 0", "unowned_ms = 0"),
    ],
    "One more has work if a member owns two": [
        # One late partition of an owner is enough.
        Bug(_VERDICT, "if len(crowded) < 2:", "if len(crowded) < 1:"),
        Bug(_VERDICT, "if len(crowded) < 2:", "if len(late) < 2:"),
        Bug(_VERDICT, "if len(crowded) < 2:", "if len(crowded) < 3:"),
    ],
    "A member without a partition": [
        Bug(_VERDICT, "for member in group.members if not member.places", "for member in group.members if False"),
    ],
    "One more has no work if its assignor": [
        Bug(_VERDICT, "return None if members < total else", "return None if members <= total else"),
        Bug(_VERDICT, "if members < partitions.get(topic, 0):", "if members <= partitions.get(topic, 0):"),
        Bug(_VERDICT, '_PER_TOPIC = frozenset({"range"})', "_PER_TOPIC = frozenset[str]()"),
    ],
    "Nor if `range` would still give": [
        Bug(_VERDICT, "_owners_with_one_more(group, partitions, owned) <= len(by_owner)", "False"),
        Bug(_VERDICT, "divmod(partitions[topic], len(readers) + 1)", "divmod(partitions[topic], len(readers) + 2)"),
    ],
    "Of a group that rebalances": [
        Bug(_VERDICT, "if group.state is not GroupState.STABLE:", "if group.state is GroupState.UNKNOWN:"),
        Bug(_VERDICT, 'return Verdict(None, f"no answer came about', 'return Verdict(False, f"no answer came about'),
    ],
    "What is unknown of one partition": [
        Bug(_VERDICT, "if surely.one_more == perhaps.one_more:", "if surely == perhaps:"),
        Bug(_VERDICT, "if surely.one_more == perhaps.one_more:", "if surely.one_more is not None:"),
    ],
    "A topic that no member subscribes": [
        Bug(
            _GROUP,
            "return self._subscribed or self.settings.topics or frozenset(",
            "return self._subscribed | self.settings.topics | frozenset(",
        ),
    ],
    "A yes counts for W": [
        # A yes of a silent observer counts.
        Bug(_OBSERVATION, "self.one_more, self.is_silent = None, True", "self.is_silent = True"),
        Bug(_OBSERVATION, "> settings.quiet_window_ms:", "> 2 * settings.quiet_window_ms:"),
    ],
    "No and unknown are not a yes": [
        Bug(_QUEUE, "self.observation.one_more is True", "self.observation.one_more is not False"),
        Bug(_QUEUE, "if is_first_yes or event.one_more is not True:", "if before is None:"),
    ],
    "A message for a group without members": [
        Bug(_QUEUE, "is_on_empty and not event.members", "is_on_empty and event.members"),
    ],
    "A group that has members is watched": [
        Bug(_QUEUE, _FIRST_YES, "event.members > 0 and before is not None and before.one_more is not True"),
    ],
    "A member more ends the suppression": [
        Bug(_QUEUE, "event.members > members_before:", "event.members > members_before + 1:"),
        Bug(_QUEUE, "event.members > members_before:", "(event.members > members_before or event.received):"),
    ],
    "Members that leave without having committed": [
        Bug(_QUEUE, "            monitor.readers_have_left(now_ms)\n", "            pass\n"),
        Bug(
            _QUEUE,
            "if event.received:\n            monitor.work_was_found()",
            "if event.unread < 0:\n            monitor.work_was_found()",
        ),
    ],
}
