"""The tables of `conversation list` and of `transmissions`."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from streaming.cli.tables import table_of
from streaming.core.conversations.conversation import SPOKEN_STEP_MS
from streaming.core.conversations.endpoint_states import ENDED, State
from streaming.core.numbers import plural
from streaming.core.routing.resolution import FORWARDING_OFF
from streaming.core.routing.target_service import NO_SERVICE
from streaming.core.times import iso_time
from streaming.system import hints
from streaming.system.ages import age, instant, instant_utc
from streaming.system.screens import Sentence
from streaming.wire.service_views import EndpointRow, TransmissionRow

# Names of the ages of endpoints, and the shortest age under each name, in milliseconds.
AGES = {"1h": 3_600_000, "1d": 86_400_000, "7d": 7 * 86_400_000, "30d": 30 * 86_400_000}
SIDES = {True: "initiator", False: "target"}
# Rows that a table for people has unless --limit says another number.
TABLE_ROWS = 100
# Letters of an identifier in a narrow table, if no other identifier begins with them.
_SHORT = 8
_ENDED = frozenset(state.name for state in ENDED)
# The router notes an instant of a conversation, and the next instant after SPOKEN_STEP_MS.
INEXACT = f"up to {age(0, SPOKEN_STEP_MS)}"
# The states of endpoints for people, in the order of their lives.
STATES = {
    "SO": "started outbound, the far side has got nothing yet",
    "CO": "conversing, both sides may send",
    "DI": "disconnected inbound, the far side has ended and this one has not",
    "DO": "disconnected outbound, this side has ended and the far side has not been told yet",
    "ER": "error, the conversation has failed and this side has not ended it",
    "CD": "closed, nothing is sent or received any more",
}


def last_statement(row: EndpointRow) -> str:
    """Returns the time of a program's last statement in a conversation, as exactly as the router notes the time."""
    return "unknown" if row.last_statement is None else f"{instant_utc(row.last_statement)}, or {INEXACT} later"


def next_try(row: TransmissionRow, *, is_routed: bool = True) -> str:
    """Returns the time of the next try to deliver messages. The router looks at all held messages every 10 s.

    Args:
        row: The row of the messages.
        is_routed: Whether a router works, or whether this is not known.
    """
    if not is_routed:
        return "once a router works"
    return instant(row.next_try) if row.next_try is not None or row.held_since is None else "within 10 s"


def why(number: int | None, reason: str) -> str:
    """Returns the reason for which messages are held, with its number."""
    return reason if number is None else f"{number}: {reason}"


def held_messages(count: int, state: str | None) -> str:
    """Returns the messages that an endpoint holds, in words. The last message of an endpoint that has ended is its END.

    Args:
        count: The number of messages.
        state: The endpoint's state; None if it is not known.
    """
    if not count or state not in _ENDED:
        return plural(count, "message")
    end = "the END of the conversation"
    return end if count == 1 else f"{plural(count - 1, 'message')} and {end}"


def _held_cell(count: int, state: str) -> str:
    if not count or state not in _ENDED:
        return f"{count:,}"
    return f"{count - 1:,} + END" if count > 1 else "END"


def short(identifiers: Iterable[str], is_narrow: bool) -> dict[str, str]:
    """Returns identifier -> its text in a table; in a narrow table, a beginning that no other identifier has."""
    found = sorted({*identifiers})
    shown = {}
    for before, one, after in zip(["", *found], found, [*found[1:], ""], strict=False):
        common = max(_common(one, before), _common(one, after))
        shown[one] = one[: max(_SHORT, common + 1)] if is_narrow else one
    return shown


def _common(one: str, other: str) -> int:
    """Returns the number of letters that two texts have in common at their beginnings."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def list_view(
    endpoints: Mapping[str, EndpointRow], held: Mapping[str, int], total: int, *, is_narrow: bool = False
) -> RenderableType:
    """Returns endpoints for people; `total` is the number of endpoints without a limit."""
    names = short((row.conversation_id for row in endpoints.values()), is_narrow)
    rows = [
        {
            "idle since (UTC)": instant(row.idle_since),
            "conversation": names[row.conversation_id],
            "side": SIDES[row.is_initiator],
            "state": row.state,
            "service": row.service,
            "far service": row.far_service,
            "held": _held_cell(held.get(key, 0), row.state),
        }
        for key, row in endpoints.items()
    ]
    states = {row.state for row in endpoints.values()}
    legend = [Sentence(f"{state}: {meaning}", "dim") for state, meaning in STATES.items() if state in states]
    legend.append(Sentence(f"idle since may be {INEXACT} too early", "dim"))
    table = table_of(rows, ["idle since (UTC)"])
    return Group(table, *_more(len(rows), total, "endpoints"), Text(), *legend)


def counts(rows: Iterable[EndpointRow], now_ms: int) -> list[dict[str, Any]]:
    """Returns for each state the number of endpoints, and how many of them have been idle for each of AGES."""
    since = {name: iso_time(max(0, now_ms - age_ms)) for name, age_ms in AGES.items()}
    endpoints: Counter[str] = Counter()
    idle: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        endpoints[row.state] += 1
        for name, time in since.items():
            if row.idle_since > time:
                break
            idle[name][row.state] += 1
    order = [*State.__members__, *sorted(endpoints.keys() - State.__members__.keys())]
    return [
        {"state": state, "endpoints": endpoints[state], **{f"idle_{name}": idle[name][state] for name in AGES}}
        for state in order
        if endpoints[state]
    ]


def counts_view(found: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Returns the counts for people, with their sums."""
    names = [name for name in found[0] if name != "state"]
    sums = {"state": "all", **{name: sum(row[name] for row in found) for name in names}}
    headings = {name: name.replace("idle_", "idle > ") for name in names}
    table = table_of(
        [
            {"state": row["state"], **{headings[name]: f"{row[name]:,}" for name in names}}
            for row in (*found, *([sums] if len(found) > 1 else []))
        ]
    )
    return Group(table, Text(), Sentence(f"idle times may be {INEXACT} too long", "dim"))


def transmissions_view(
    rows: Sequence[TransmissionRow], limit: int, *, is_narrow: bool = False, is_routed: bool = True
) -> RenderableType:
    """Returns held messages for people, oldest first, and a summary by reason. `is_routed` is as for `next_try`."""
    names = short((row.conversation_id for row in rows), is_narrow)
    table = table_of(
        [
            {
                "held since (UTC)": instant(row.held_since),
                "messages": f"{row.messages:,}",
                "to service": row.to_service,
                "why": why(row.number, row.reason),
                "conversation": names[row.conversation_id],
                "from side": SIDES[row.is_initiator],
                # The reasons need the room.
                **({} if is_narrow else {"next try (UTC)": next_try(row, is_routed=is_routed)}),
            }
            for row in rows[:limit]
        ],
        ["held since (UTC)", "why", "next try (UTC)"],
    )
    lines = [
        Sentence(f"{each.to}: {each.what}. {each.why}. Next try {each.when}")
        for each in reasons(rows, is_routed=is_routed)
    ]
    legend = Sentence("The END of a conversation counts as a message", "dim")
    return Group(table, *_more(min(limit, len(rows)), len(rows), "rows"), legend, Text(), *lines)


@dataclass(frozen=True)
class Waiting:
    """The messages that are held for one reason.

    Attributes:
        why: The reason, with its number.
        messages: The number of messages.
        services: The services that the messages are for.
        since: The time since which the oldest message has been held.
        next_try: The time of the earliest next try.
    """

    why: str
    messages: int
    services: list[str]
    since: str
    next_try: str

    @property
    def what(self) -> str:
        """Returns the number of messages, and since when the oldest message is held, if there is such a time."""
        return plural(self.messages, "message") + (f" since {instant_utc(self.since)}" if self.since else "")

    @property
    def when(self) -> str:
        """Returns the time of the earliest next try, with its time zone."""
        return f"{self.next_try} UTC" if self.next_try[0].isdigit() else self.next_try

    @property
    def to(self) -> str:
        """Returns the service, or the number of services."""
        return self.services[0] if len(self.services) == 1 else f"{len(self.services):,} services"


def reasons(rows: Iterable[TransmissionRow], *, is_routed: bool = True) -> list[Waiting]:
    """Returns the held messages by reason, that of the oldest message first. `is_routed` is as for `next_try`."""
    found: dict[str, list[TransmissionRow]] = defaultdict(list)
    for row in rows:
        found[why(row.number, row.reason)].append(row)
    waiting = [
        Waiting(
            reason + _advice(held),
            sum(row.messages for row in held),
            sorted({row.to_service for row in held}),
            min(row.held_since or "" for row in held),
            # Messages without an instant are looked at within 10 s, and so before all messages with an instant.
            next_try(min(held, key=lambda row: row.next_try or ""), is_routed=is_routed),
        )
        for reason, held in found.items()
    ]
    return sorted(waiting, key=lambda each: (each.since, each.why))


def _advice(rows: Sequence[TransmissionRow]) -> str:
    """Returns advice about messages held for one reason, after a full stop; empty if the user need not do anything."""
    if rows[0].is_unacknowledged:
        return f". `{hints.command('connections')}` says whether the address can be reached"
    if rows[0].number == FORWARDING_OFF:
        return f". {hints.sending_on()}"
    if rows[0].number != NO_SERVICE:
        return ""
    create = hints.command("service", "create", "SERVICE", "--database", "DATABASE", "--queue", "QUEUE")
    end = hints.command("conversation", "end", "CONVERSATION", "--cleanup")
    return f". `{create}` creates it; if the name is wrong, `{end}` drops what waits"


def nothing(what: str, *, is_sent: bool) -> str:
    """Returns the sentence that there is nothing to show. If no message was ever sent, the sentence says so."""
    return what if is_sent else f"{what}: nothing has been sent to a service yet"


def for_router() -> str:
    """Returns the sentence about messages that the router has not read yet."""
    return "Messages wait for the router: they were sent after its last batch, so it has decided nothing about them yet"


def where_delivered() -> str:
    """Returns the sentence about delivered messages, which no view of the router contains."""
    queues = hints.command("queues")
    return f"Messages that were delivered are in the queues of services: `{queues}` says whether programs read them"


def _more(shown: int, total: int, what: str) -> list[Text]:
    return [Text(f"{shown:,} of {total:,} {what}; --limit shows more", "dim")] if shown < total else []
