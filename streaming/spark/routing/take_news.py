"""Takes the reports for every shard: connections, questions to the configuration service, and roles of mirrors."""

import hashlib
import hmac
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Protocol

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import Conversation
from streaming.core.conversations.due_work import forget_reachable, note_reachable
from streaming.core.conversations.questions import Missing
from streaming.core.conversations.route_questions import begin_question, keep_question
from streaming.core.routing.conversation import Pair
from streaming.core.routing.databases import Changes
from streaming.core.routing.definitions import Definitions
from streaming.spark.routing.shard_records import Partition
from streaming.wire.service_decisions import AnsweredReport, ConnectedReport, NeedRouteReport, News, RoleReport


class Store(Protocol):
    """The conversations of a shard."""

    def mark(self, changes: Changes) -> None:
        """Makes due the conversations that changed definitions concern."""
        ...

    def held_of(self, services: Collection[str]) -> set[str]:
        """Returns the services for which conversations hold messages."""
        ...

    def find(self, conversation_id: str) -> Conversation | None:
        """Takes up a conversation. Returns None if there is no such conversation."""
        ...

    def add(self, conversation: Conversation) -> None:
        """Adds a new conversation."""
        ...


def take_news(
    context: Context, news: Sequence[News], away: dict[str, int], store: Store, changes: Changes
) -> list[NeedRouteReport]:
    """Takes the reports for every shard. Makes due the conversations that reports or changed definitions concern.

    Args:
        context: The context.
        news: The reports, in order.
        away: Address of another instance -> the instant until which it counts as not reachable; it is changed.
        store: The conversations, of which none is taken up yet.
        changes: The changed definitions.

    Returns:
        The routes that are to be asked for now.
    """
    if changes and context.mirrors:
        context.mirrors.keep_only({pair for pair, _ in _mirrored(context.definitions)})
    # A batch may have an answer and the next need for the same route. One question is enough.
    needed: dict[Missing, NeedRouteReport] = {}
    forget_reachable(away, context.now_ms, context.settings)
    was_full = context.questions.is_full
    routed = context.questions.expire(context.now_ms)
    # Without room for a question, its service is not noted. So once there is room, any service may have waited for it.
    is_all = changes.is_all or (was_full and not context.questions.is_full)
    changed: list[Pair] = []
    for report in news:
        if isinstance(report, NeedRouteReport):
            if context.questions.ask((report.database, report.service), context.now_ms):
                needed.setdefault((report.database, report.service), report)
        elif isinstance(report, AnsweredReport):
            context.questions.end((report.database, report.service), context.now_ms, is_error=report.is_error)
            routed.add(report.service)
        else:
            changed += _take_role(context, report, away)
    services = _services_at(context.definitions, [*changed, *context.mirrors.due(context.now_ms)])
    routed.update(*[services[pair] for pair in changed if pair in services])
    store.mark(Changes(changes.services, changes.routed | routed, is_all))
    _ask_for_principals(context, store, changed, services)
    return [*needed.values()]


def _take_role(context: Context, report: ConnectedReport | RoleReport, away: dict[str, int]) -> list[Pair]:
    """Takes a report about an address. Returns the pairs that have another principal now."""
    if isinstance(report, RoleReport):
        return context.mirrors.take_answer(report.broker_instance, report.address, (report.role, report.epoch))
    note_reachable(away, report.address, context.now_ms, is_connected=report.is_connected)
    return [] if report.is_connected else context.mirrors.lose(report.address)


def _ask_for_principals(context: Context, store: Store, changed: list[Pair], services: Mapping[Pair, set[str]]) -> None:
    """Asks for the lost principals, and asks again for principals for which messages wait."""
    for pair in dict.fromkeys(changed):
        if context.mirrors.principal(pair) is None:
            context.ask(pair)
    due = context.mirrors.due(context.now_ms)
    held = store.held_of({name for pair in due for name in services.get(pair, ())})
    for pair in due:
        if not held.isdisjoint(services.get(pair, ())):
            context.ask(pair)
        else:
            context.mirrors.rest(pair)


def ask_for_routes(
    context: Context, needed: Iterable[NeedRouteReport], store: Store, secret: str, partition: Partition
) -> None:
    """Begins the questions to the configuration service. Only one shard begins them, for all shards.

    Args:
        context: The context.
        needed: The routes.
        store: The conversations, to which the new conversations are added.
        secret: The secret of the checkpoint.
        partition: The shard's partition.
    """
    for report in needed:
        asked = context.questions.conversation_about((report.database, report.service))
        question = None if asked is None else store.find(asked)
        if question is not None:
            keep_question(context, question)
            continue
        if context.conversations >= context.settings.max_conversations:
            context.answer(report.database, report.service, is_error=True)
            continue
        name = _question_id(secret, f"{report.database}\0{report.service}\0{context.now_ms}", partition)
        store.add(begin_question(context, name, report.database, report.service, report.broker_instance))


def _question_id(secret: str, about: str, partition: Partition) -> str:
    """Returns an identifier for a conversation of this shard's partition.

    Programs cannot guess the identifier without the checkpoint's secret. A batch that is done again gets the same
    identifier.
    """
    for number in count():
        digest = hmac.digest(secret.encode(), f"{about}\0{number}".encode(), hashlib.sha256)
        found = str(uuid.UUID(bytes=digest[:16]))
        if partition.has(found.encode()):
            return found
    raise AssertionError  # never: `count` has no end


def _mirrored(definitions: Definitions) -> Iterable[tuple[Pair, str]]:
    """Yields each mirrored route's pair and service."""
    for table in definitions.tables.values():
        for route in table.routes.values():
            if route.mirror_address is not None:
                yield (route.broker_instance or "", route.address, route.mirror_address), route.service_name or ""


def _services_at(definitions: Definitions, pairs: Collection[Pair]) -> dict[Pair, set[str]]:
    """Returns pair -> the services whose routes lead to the pair."""
    found: dict[Pair, set[str]] = {}
    if pairs:
        wanted = {*pairs}
        for pair, service in _mirrored(definitions):
            if pair in wanted:
                found.setdefault(pair, set()).add(service)
    return found
