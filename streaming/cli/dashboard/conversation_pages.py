"""The pages about conversations: all of them by state and age, what is held and why, and one of them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.datastructures import QueryParams

from streaming.cli.conversations import lists, show, unknown
from streaming.cli.dashboard.kept import Kept, Shared
from streaming.cli.dashboard.live_services import MAX_ROWS, LiveServices
from streaming.cli.dashboard.server import Page, Part
from streaming.cli.dashboard.service_pages import live_parts
from streaming.cli.dashboard.table_pages import paged
from streaming.cli.routing import explained_routes
from streaming.system import wall_clock
from streaming.wire.service_views import EndpointRow, TransmissionRow

_HELD = "held"
# Reasons that the page lists; each is one sentence.
_MOST_REASONS = 20
# What the command marks by a sign.
_NAMES = {explained_routes.RESULT: "outcome"}


class ConversationPages:
    """Builds the pages from the live view, and that of one conversation from what `conversation show` reads."""

    def __init__(self, services: LiveServices) -> None:
        self._services = services
        self._shared = Shared()
        self._kept = Kept(silent_since_ms=services.contact.silent_since_ms)

    def conversations(self, query: QueryParams) -> Page:
        """Returns the page of all endpoints: their counts, what waits, and those that are searched for."""
        search, state, held_only = query.get("search", "").strip(), query.get("state", ""), _HELD in query
        found = self._shared.get("rows", self._rows)
        shown = self._shared.get(
            ("endpoints", search, state, held_only), partial(found.selected, search, state, held_only=held_only)
        )
        page = paged(shown, query.get("page"))
        names = lists.short((row.conversation_id for _, row in page.rows), is_narrow=True)
        values = {
            "rows": [_endpoint(row, names[row.conversation_id], found.held.get(key)) for key, row in page.rows],
            "paged": page,
            "all": len(found.endpoints),
            "query": {"search": search, "state": state, **({_HELD: "yes"} if held_only else {})},
            "path": "/conversations",
            "inexact": lists.INEXACT,
        }
        parts = [
            Part("counts", "conversation_counts.html", _counts(found, state)),
            Part("waiting", "waiting.html", _waiting(found)),
            Part("conversations", "conversations.html", values),
        ]
        form = {"search": search, "state": state, "states": [*lists.STATES], "is_held": held_only}
        return Page("Conversations", live_parts(self._services, parts), "conversations_form.html", form)

    def transmissions(self, query: QueryParams) -> Page:
        """Returns the page of all messages that are held, oldest first."""
        search = query.get("search", "").strip()
        found = self._shared.get("rows", self._rows)
        rows = sorted(found.held.values(), key=lambda each: (each.held_since or "", each.conversation_id))
        rows = [each for each in rows if _is_searched(search, each.conversation_id, each.to_service, each.from_service)]
        page = paged(rows, query.get("page"))
        names = lists.short((row.conversation_id for row in page.rows), is_narrow=True)
        values = {
            "rows": [_transmission(each, names[each.conversation_id]) for each in page.rows],
            "paged": page,
            "is_complete": found.is_complete,
            "query": {"search": search},
            "path": "/transmissions",
        }
        parts = [Part("transmissions", "transmissions.html", values)]
        return Page("Held messages", live_parts(self._services, parts), "search_form.html", {"search": search})

    def conversation(self, query: QueryParams) -> Page:
        """Returns the page of one conversation: both endpoints, what is held, and why."""
        given = query.get("id", "")
        answer = self._kept.get(f"conversation {given}", partial(self._facts, given))
        if answer is None:
            return Page("Conversation", [Part("conversation", "looking.html")])
        found = answer.found
        if found.is_known:
            page = conversation_page(found)
            return replace(page, parts=live_parts(self._services, page.parts))
        error = unknown.no_conversation(self._services.cluster, self._services.topics, given)
        return Page("Conversation", [Part("conversation", "error.html", {"error": str(error)})], status=404)

    def _facts(self, given: str) -> show.ConversationFacts:
        cluster, topics = self._services.cluster, self._services.topics
        origin = partial(
            explained_routes.source, None, lambda: cluster, topics, self._services.addresses, is_forwarding=False
        )
        return show.find(cluster, topics, given, origin)

    def _rows(self) -> "_Rows":
        with self._services.read() as found:
            endpoints, held = dict(found.endpoints.rows), dict(found.held.rows)
            return _Rows(
                endpoints, held, is_full=found.endpoints.is_full or found.held.is_full, is_complete=found.is_complete
            )


class _Rows:
    """The rows at one moment, and what is computed from all of them."""

    def __init__(
        self,
        endpoints: Mapping[str, EndpointRow],
        held: Mapping[str, TransmissionRow],
        *,
        is_full: bool,
        is_complete: bool,
    ) -> None:
        self.endpoints = endpoints
        self.held = held
        self.is_full = is_full
        self.is_complete = is_complete
        self.counts = lists.counts(endpoints.values(), wall_clock.now_ms())
        self.reasons = lists.reasons(held.values())

    def selected(self, search: str, state: str, *, held_only: bool) -> list[tuple[str, EndpointRow]]:
        """Returns the endpoints that a reader asks for, those first that have been idle for longest."""
        found = [
            (key, row)
            for key, row in self.endpoints.items()
            if state in ("", row.state)
            and (not held_only or key in self.held)
            and _is_searched(search, row.conversation_id, row.service, row.far_service)
        ]
        found.sort(key=lambda each: (each[1].idle_since, each[0]))
        return found


def _counts(found: _Rows, chosen: str) -> dict[str, Any]:
    return {
        "counts": found.counts,
        "ages": lists.AGES,
        "states": lists.STATES,
        "chosen": chosen,
        "is_complete": found.is_complete,
        "kept": MAX_ROWS if found.is_full else None,
    }


def _waiting(found: _Rows) -> dict[str, Any]:
    return {
        "reasons": found.reasons[:_MOST_REASONS],
        "more": max(0, len(found.reasons) - _MOST_REASONS),
        "is_complete": found.is_complete,
    }


def conversation_page(found: show.ConversationFacts) -> Page:
    """Returns the page of a conversation of which something is known."""
    values = {
        "fields": [(_NAMES.get(name.strip(), name.strip()), lines) for name, lines in found.fields()],
        "reasons": lists.reasons(row for row, _ in found.held),
        "services": sorted({row.service for row, _ in found.endpoints.values()}),
    }
    return Page(f"Conversation {found.conversation_id}", [Part("conversation", "conversation.html", values)])


def _is_searched(search: str, conversation_id: str, *services: str) -> bool:
    """Returns whether an identifier begins with a text, or the name of a service contains it."""
    text = search.casefold()
    return not text or conversation_id.casefold().startswith(text) or any(text in each.casefold() for each in services)


def _endpoint(row: EndpointRow, name: str, held: TransmissionRow | None) -> dict[str, Any]:
    return {
        "conversation": row.conversation_id,
        "name": name,
        "side": lists.SIDES[row.is_initiator],
        "state": row.state,
        "service": row.service,
        "far_service": row.far_service,
        "idle_since": row.idle_since,
        "held": None if held is None else lists.held_messages(held.messages, row.state),
        "why": None if held is None else lists.why(held.number, held.reason),
    }


def _transmission(row: TransmissionRow, name: str) -> dict[str, Any]:
    return {
        "conversation": row.conversation_id,
        "name": name,
        "side": lists.SIDES[row.is_initiator],
        "since": row.held_since,
        "messages": row.messages,
        "to": row.to_service,
        "why": lists.why(row.number, row.reason),
        "next_try": row.next_try,
        "when": lists.next_try(row),
    }
