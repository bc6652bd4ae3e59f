"""The pages about conversations: all conversations, one conversation, and held messages."""

from functools import partial

from starlette.datastructures import QueryParams

from streaming.cli.conversations import lists, show, unknown
from streaming.cli.dashboard.kept import Kept
from streaming.cli.dashboard.live_services import MAX_ROWS, LiveServices, Services
from streaming.cli.dashboard.server import Page, Part
from streaming.cli.dashboard.service_pages import live_page
from streaming.cli.dashboard.table_pages import paged
from streaming.cli.routing import explained_routes
from streaming.system import wall_clock
from streaming.wire.service_views import EndpointRow

_HELD = "held"
# All readers share the rows for this time, as counting all endpoints takes long.
_SHARED_S = 1.5
# The number of reasons on the page.
_MOST_REASONS = 20
# The command marks this field by a sign.
_NAMES = {explained_routes.RESULT: "outcome"}


class ConversationPages:
    """Builds the pages: of many conversations from the live view, of one conversation as `conversation show` does."""

    def __init__(self, services: LiveServices) -> None:
        self._services = services
        self._shared = Kept(_SHARED_S, _SHARED_S)
        self._kept = Kept(silent_since_ms=services.contact.silent_since_ms)

    def conversations(self, query: QueryParams) -> Page:
        """Returns the page of all endpoints: counts, waiting messages, and the endpoints that the user searches for."""
        search, state, held_only = query.get("search", "").strip(), query.get("state", ""), _HELD in query
        found = self._shared.get("rows", self._rows).found
        select = partial(found.selected, search, state, held_only=held_only)
        page = paged(self._shared.get(f"endpoints {held_only} {state} {search}", select).found, query.get("page"))
        names = lists.short((row.conversation_id for _, row in page.rows), is_narrow=True)
        values = {
            "paged": page,
            "names": names,
            "held": found.held,
            "all": len(found.endpoints),
            "query": {"search": search, "state": state, **({_HELD: "yes"} if held_only else {})},
            "path": "/conversations",
        }
        parts = [
            Part("counts", "conversation_counts.html", {"found": found, "chosen": state, "kept": MAX_ROWS}),
            Part("waiting", "waiting.html", {"found": found, "most": _MOST_REASONS}),
            Part("conversations", "conversations.html", values),
        ]
        form = {"search": search, "state": state, "states": [*lists.STATES], "is_held": held_only}
        return live_page(self._services, Page("Conversations", parts, "conversations_form.html", form))

    def transmissions(self, query: QueryParams) -> Page:
        """Returns the page of all held messages, oldest first."""
        search = query.get("search", "").strip()
        found = self._shared.get("rows", self._rows).found
        rows = sorted(found.held.values(), key=lambda each: (each.held_since or "", each.conversation_id))
        rows = [each for each in rows if _is_searched(search, each.conversation_id, each.to_service, each.from_service)]
        page = paged(rows, query.get("page"))
        names = lists.short((row.conversation_id for row in page.rows), is_narrow=True)
        values = {
            "paged": page,
            "names": names,
            "is_complete": found.is_complete,
            "is_routed": found.is_routed,
            "query": {"search": search},
            "path": "/transmissions",
        }
        parts = [Part("transmissions", "transmissions.html", values)]
        return live_page(self._services, Page("Held messages", parts, "search_form.html", {"search": search}))

    def conversation(self, query: QueryParams) -> Page:
        """Returns the page of one conversation: both endpoints, the held messages, and the reason why they are held."""
        given = query.get("id", "")
        found = self._kept.get(f"conversation {given}", partial(self._facts, given)).found
        if found.is_known:
            return live_page(self._services, conversation_page(found, is_routed=self._services.is_routed))
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
            return _Rows(found, is_routed=self._services.is_routed)


class _Rows:
    """All rows at one moment, with counts of endpoints and the reasons why messages are held."""

    def __init__(self, found: Services, *, is_routed: bool) -> None:
        self.endpoints = dict(found.endpoints.rows)
        self.held = dict(found.held.rows)
        self.is_full = found.endpoints.is_full or found.held.is_full
        self.is_complete = found.is_complete
        self.counts = lists.counts(self.endpoints.values(), wall_clock.now_ms())
        self.is_routed = is_routed
        self.reasons = lists.reasons(self.held.values(), is_routed=is_routed)

    def selected(self, search: str, state: str, *, held_only: bool) -> list[tuple[str, EndpointRow]]:
        """Returns the endpoints that the user asks for, longest idle first."""
        found = [
            (key, row)
            for key, row in self.endpoints.items()
            if state in ("", row.state)
            and (not held_only or key in self.held)
            and _is_searched(search, row.conversation_id, row.service, row.far_service)
        ]
        found.sort(key=lambda each: (each[1].idle_since, each[0]))
        return found


def conversation_page(found: show.ConversationFacts, *, is_routed: bool = True) -> Page:
    """Returns the page of a conversation that is known. `is_routed` is as for `lists.next_try`."""
    values = {
        "fields": [
            (_NAMES.get(name.strip(), name.strip()), lines) for name, lines in found.fields(is_routed=is_routed)
        ],
        "reasons": lists.reasons((row for row, _ in found.held), is_routed=is_routed),
        "services": sorted({row.service for row, _ in found.endpoints.values()}),
    }
    return Page(f"Conversation {found.conversation_id}", [Part("conversation", "conversation.html", values)])


def _is_searched(search: str, conversation_id: str, *services: str) -> bool:
    """Returns whether an identifier begins with a text, or the name of a service contains the text."""
    text = search.casefold()
    return not text or conversation_id.casefold().startswith(text) or any(text in each.casefold() for each in services)
