"""The commands `queue-activation conversation ...` and `queue-activation transmissions`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.lines import say
from streaming.cli.options import InstanceOptions, Json, Place, choice, confirm, part_of_definition
from streaming.cli.unused_services import shows_services
from streaming.core.numbers import plural
from streaming.errors import UserError
from streaming.system import durations, hints, wall_clock
from streaming.system.durations import Duration

if TYPE_CHECKING:
    from streaming.cli.conversations.endings import Ending
    from streaming.cli.conversations.views import Selection
    from streaming.wire.service_views import EndpointRow

conversations = typer.Typer(help="List, show, end or retry conversations between services.", no_args_is_help=True)


class Side(StrEnum):
    """A side of a conversation."""

    INITIATOR = "initiator"
    TARGET = "target"


class EndpointState(StrEnum):
    """The state of an endpoint, as in sys.conversation_endpoints."""

    SO = "SO"
    CO = "CO"
    DI = "DI"
    DO = "DO"
    ER = "ER"
    CD = "CD"


ConversationId = Annotated[
    str,
    typer.Argument(metavar="CONVERSATION", help="The conversation's identifier, or a unique beginning of it."),
]
Limit = Annotated[
    int | None,
    part_of_definition("--limit", "The most rows to show; by default 100 in a table, and all with --json.", min=1),
]
Timeout = Annotated[
    Duration,
    part_of_definition(
        "--timeout", "How long to wait for the router to show a result.", parser=durations.parse, metavar="<duration>"
    ),
]


@dataclass(frozen=True)
class Filters:
    """The options that pick endpoints."""

    service: Annotated[str | None, part_of_definition("--service", "Only the endpoints of this service.")] = None
    far_service: Annotated[
        str | None, part_of_definition("--far-service", "Only the endpoints whose far side is this service.")
    ] = None
    state: Annotated[
        list[EndpointState] | None,
        part_of_definition(
            "--state",
            "Only the endpoints in this state: started outbound (SO), conversing (CO), disconnected inbound (DI), "
            "disconnected outbound (DO), error (ER) or closed (CD). Repeatable.",
            **choice(EndpointState),
        ),
    ] = None
    idle: Annotated[
        Duration | None,
        part_of_definition(
            "--idle",
            "Only the endpoints in whose conversation no program has said anything for this time (12h, 7d); exact to "
            "ten minutes.",
            parser=durations.parse,
            metavar="<duration>",
        ),
    ] = None
    side: Annotated[Side | None, part_of_definition("--side", "Only the endpoints of this side.", **choice(Side))] = (
        None
    )

    def selection(self, conversation: str | None = None) -> "Selection":
        """Returns the conditions that pick endpoints, of one conversation or of all."""
        from streaming.cli.conversations import views

        return views.Selection(
            conversation,
            None if self.side is None else self.side is Side.INITIATOR,
            self.service,
            self.far_service,
            frozenset(state.value for state in self.state or ()),
            None if self.idle is None else views.idle_before(wall_clock.now_ms(), self.idle.ms),
        )


@conversations.command("list")
@shows_services("no endpoints")
def list_conversations(
    limit: Limit = None,
    counts: Annotated[
        bool, part_of_definition("--counts", "Count the endpoints by state and by idle time instead.")
    ] = False,
    as_json: Json = False,
    *,
    filters: Filters,
    place: Place,
) -> None:
    """List endpoints. The endpoints that have been idle for longest come first.

    A conversation has two endpoints, the initiator and the target. Each endpoint stays until its program ends it.
    """
    from streaming.cli import tables
    from streaming.cli.conversations import lists, unknown, views
    from streaming.cli.presence import introduce

    if counts and limit is not None:
        raise UserError("--counts has one row for each state. Do not give --limit with it.")
    kafka, topics = place.cluster(), place.topics()
    viewed = views.read_endpoints(kafka, topics, filters.selection())
    endpoints, now_ms = viewed.endpoints, wall_clock.now_ms()
    times = [row.update_time for row in endpoints.values()]
    introduce(kafka, topics, "router", as_json=as_json, times=times)
    if as_json:
        rows = lists.counts(endpoints.values(), now_ms) if counts else map(viewed.fields, [*endpoints][:limit])
        for row in rows:
            typer.echo(json.dumps(row))
        return
    sent = views.sent(kafka, topics)
    if not endpoints:
        say(lists.nothing("no endpoints", is_sent=sent.is_any))
    elif counts:
        tables.print_view(lists.counts_view(lists.counts(endpoints.values(), now_ms)))
    else:
        shown = dict(islice(endpoints.items(), limit or lists.TABLE_ROWS))
        tables.print_view(lists.list_view(shown, viewed.held, len(endpoints), is_narrow=tables.is_narrow()))
    if sent.is_unread:
        say(lists.for_router())
    if endpoints:
        say(lists.where_delivered())
    else:
        unknown.warn(kafka, topics, filters.service, viewed.services)
        unknown.warn(kafka, topics, filters.far_service, viewed.services)


@conversations.command("show")
@shows_services()
def show_conversation(
    conversation: ConversationId, as_json: Json = False, *, instance: InstanceOptions, place: Place
) -> None:
    """Show both endpoints, and the held messages: since when and why they are held.

    The decision about held messages is explained as `route explain` does, with the definitions as they are now.
    """
    from streaming.cli import tables
    from streaming.cli.conversations import show, unknown
    from streaming.cli.presence import introduce
    from streaming.cli.routing import explained_routes

    kafka, topics = place.cluster(), place.topics()
    addresses = instance.addresses(place)
    found = show.find(
        kafka,
        topics,
        conversation,
        lambda: explained_routes.source(None, lambda: kafka, topics, addresses, instance.is_forwarding),
    )
    if not found.is_known:
        raise unknown.no_conversation(kafka, topics, found.conversation_id)
    times = [row.update_time for row, _ in found.endpoints.values()]
    present = introduce(kafka, topics, "router", as_json=as_json, times=times)
    if as_json:
        typer.echo(json.dumps(found.as_json()))
    else:
        tables.print_view(found.view(is_routed=present.monitor))


@conversations.command("end")
@shows_services()
def end(
    conversation: Annotated[
        str | None,
        typer.Argument(
            metavar="CONVERSATION",
            help="The conversation's identifier, or a unique beginning of it. Without it, a filter is needed.",
        ),
    ] = None,
    error: Annotated[
        int | None, part_of_definition("--error", "End WITH ERROR: the far side gets an Error with this code.")
    ] = None,
    text: Annotated[str | None, part_of_definition("--text", "The text of the Error.")] = None,
    cleanup: Annotated[
        bool, part_of_definition("--cleanup", "End WITH CLEANUP: drop held messages, and do not tell the far side.")
    ] = False,
    yes: Annotated[bool, part_of_definition("--yes", "Do not ask before many endpoints are ended.")] = False,
    timeout: Timeout = durations.parse("30s"),
    *,
    filters: Filters,
    place: Place,
) -> None:
    """End a conversation, or the endpoints that `list` shows for the same filters.

    Waits until the router shows that they have ended. Without --side, both endpoints of a conversation are ended.
    Without --error and --cleanup, the far side gets an EndDialog behind the messages that are held.
    """
    from streaming.cli.conversations import endings, unknown, views
    from streaming.cli.routing.router_waits import router_absence

    is_filtered = bool(filters.service or filters.far_service or filters.state or filters.idle)
    if conversation is None and not is_filtered:
        raise UserError("Name a conversation, or give a filter: --idle, --service, --far-service or --state.")
    statement = _ending(error, text, cleanup=cleanup)
    kafka, topics = place.cluster(), place.topics()
    if conversation is not None:
        conversation = views.identified(kafka, topics, conversation)
    viewed = views.read_endpoints(kafka, topics, filters.selection(conversation))
    if conversation is not None and not viewed.endpoints:
        raise unknown.no_conversation(kafka, topics, conversation, is_filtered=is_filtered or filters.side is not None)
    held = {key: viewed.held.get(key, 0) for key in viewed.endpoints}
    endpoints = {key: row for key, row in viewed.endpoints.items() if statement.is_allowed(row, held[key])}
    rows = [(row, held[key]) for key, row in viewed.endpoints.items()]
    if conversation is not None:
        _warn(f"conversation {conversation}: {line}" for line in endings.not_allowed(statement, rows))
    if not endpoints:
        say("no endpoint to end")
        _warn(endings.by_state(rows if conversation is None else []))
        if not viewed.endpoints:
            unknown.warn(kafka, topics, filters.service, viewed.services)
            unknown.warn(kafka, topics, filters.far_service, viewed.services)
        raise typer.Exit(0 if conversation is None else 1)
    if conversation is None and not yes:
        _ask(endpoints, statement)
    _warn(endings.behind_held(statement, [(row, held[key]) for key, row in endpoints.items()]))
    absent = router_absence(kafka, topics)
    outcome = endings.end(kafka, topics, endpoints, statement, 0.0 if absent else timeout.ms / 1000)
    raise typer.Exit(endings.report(outcome, timeout, absent))


@conversations.command("retry")
@shows_services()
def retry(conversation: ConversationId, timeout: Timeout = durations.parse("30s"), *, place: Place) -> None:
    """Try again to deliver held messages now.

    Deliveries that failed do not wait for their next try, and the router decides again about all others.
    """
    from streaming.cli.conversations import lists, retry_request, unknown, views
    from streaming.cli.routing.router_waits import router_absence

    kafka, topics = place.cluster(), place.topics()
    conversation = views.identified(kafka, topics, conversation)
    viewed = views.read_endpoints(kafka, topics, views.Selection(conversation))
    held = {key: row for key, row, _ in viewed.transmissions if row.conversation_id == conversation}
    if not viewed.endpoints and not held:
        raise unknown.no_conversation(kafka, topics, conversation)
    if not held:
        say(f"conversation {conversation}: nothing is held")
        return
    if (absent := router_absence(kafka, topics)) is not None:
        say(f"Nobody would try again: {absent}", err=True)
        raise typer.Exit(1)
    found = retry_request.retry(kafka, topics, conversation, held, timeout.ms / 1000)
    if found is None:
        says = f"`{hints.command('diagnose')}` says whether it gets on."
        say(f"The router has shown no result within {timeout}. {says}", err=True)
        raise typer.Exit(1)
    for key, row in held.items():
        after = found[key]
        sender = viewed.endpoints.get(key)
        what = f"{lists.held_messages(row.messages, None if sender is None else sender.state)} to {row.to_service}"
        if after is None:
            shows = f"`{hints.command('transmissions')}` shows it"
            say(f"{what}: on the way. If the delivery fails again, {shows}")
        else:
            say(f"{what}: still held. {lists.why(after.number, after.reason)}")


@shows_services("nothing waits")
def transmissions(
    service: Annotated[str | None, part_of_definition("--service", "Only the messages to this service.")] = None,
    limit: Limit = None,
    as_json: Json = False,
    *,
    place: Place,
) -> None:
    """Show the messages that wait, oldest first: since when, how many, to which service and why.

    A row is one side of a conversation. A summary by reason follows the table.
    """
    from streaming.cli import tables
    from streaming.cli.conversations import lists, unknown, views
    from streaming.cli.presence import introduce

    kafka, topics = place.cluster(), place.topics()
    found = views.read_transmissions(kafka, topics)
    times = [row.update_time for _, row, _ in found]
    present = introduce(kafka, topics, "router", as_json=as_json, times=times)
    rows = [(row, fields) for _, row, fields in found if service in (None, row.to_service)]
    if as_json:
        for _, fields in rows[:limit]:
            typer.echo(json.dumps(fields))
        return
    sent = views.sent(kafka, topics)
    if rows:
        shown, most = [row for row, _ in rows], limit or lists.TABLE_ROWS
        is_narrow = tables.is_narrow()
        tables.print_view(lists.transmissions_view(shown, most, is_narrow=is_narrow, is_routed=present.monitor))
    else:
        what = "nothing is held" if sent.is_unread else "nothing waits"
        say(lists.nothing(what, is_sent=sent.is_any or bool(found)))
    if sent.is_unread:
        say(lists.for_router())
    if rows or unknown.warn(kafka, topics, service, {row.to_service for _, row, _ in found}):
        return
    if sent.is_any or found:
        say(lists.where_delivered())


def _ending(error: int | None, text: str | None, *, cleanup: bool) -> "Ending":
    from streaming.cli.conversations.endings import Ending

    if cleanup and error is not None:
        raise UserError("--cleanup tells nobody, and --error tells the far side. Give one of them.")
    if text is not None and error is None:
        raise UserError("--text is the text of an Error. Give its code with --error.")
    if error is not None and error <= 0:
        raise UserError(f"--error: the code is {error}; it must be positive. Negative codes are the router's own.")
    if error is not None:
        return Ending("ERROR", error, text or "")
    return Ending("CLEANUP" if cleanup else "END")


def _warn(lines: Iterable[str]) -> None:
    for line in lines:
        say(line, err=True)


def _ask(endpoints: Mapping[str, "EndpointRow"], ending: "Ending") -> None:
    """Asks whether to end many endpoints."""
    count = len({row.conversation_id for row in endpoints.values()})
    with_what = "" if ending.kind == "END" else f" WITH {ending.kind}"
    confirm(f"End {plural(len(endpoints), 'endpoint')} of {plural(count, 'conversation')}{with_what}?")
