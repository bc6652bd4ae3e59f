"""The page of databases, services and routes, with a form that explains where a message would go."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from starlette.datastructures import QueryParams

from streaming.cli.dashboard.live_services import LiveServices, Services
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.server import Page, Part
from streaming.cli.dashboard.table_pages import paged
from streaming.cli.routing.explained_routes import RESULT, Result, one_case, results
from streaming.core.conversations.endpoint_states import ENDED
from streaming.wire.service_definitions import rows_of

_ENDED = frozenset(state.name for state in ENDED)
# The number of names that the form proposes.
_MAX_PROPOSED = 500
# The choice of the form for a message from another instance. No database has an empty name.
_OTHER_INSTANCE = ""
_SEARCHED_OF_ROUTES = ("name", "database", "service_name", "address")


class ServicePages:
    """Builds the page from the live views."""

    def __init__(self, view: LiveView, services: LiveServices) -> None:
        self._view = view
        self._services = services

    def services(self, query: QueryParams) -> Page:
        """Returns the page: an explanation if the form asks for it, then services, databases and routes."""
        search = query.get("search", "")
        with self._services.read() as found:
            rows = rows_of(found.definitions)
            explained = self._explained(query)
            conversations = _open_endpoints(found)
            held = _held(found)
            expired = {name: table.routes.keys() - table.live for name, table in found.definitions.tables.items()}
            is_complete = found.is_complete
        services = [each for each in rows["services"] if _has(each, search, "name", "database", "queue")]
        shown = paged(services, query.get("page"))
        values = {
            "is_complete": is_complete,
            "all": len(rows["services"]),
            "paged": shown,
            "monitor_of": self._view.monitor,
            "conversations": conversations,
            "held": held,
            "databases": paged([each for each in rows["databases"] if _has(each, search, "name")], None),
            "routes": paged([each for each in rows["routes"] if _has(each, search, *_SEARCHED_OF_ROUTES)], None),
            "expired": expired,
            "query": {"search": search},
            "path": "/services",
        }
        explanation = {"explained": explained, "addresses": self._services.addresses}
        parts = [Part("explanation", "explanation.html", explanation), Part("services", "services.html", values)]
        return live_page(self._services, Page("Services", parts, "services_form.html", _form(query, rows)))

    def _explained(self, query: QueryParams) -> Mapping[str, Any] | None:
        """Returns where the message of the form would go; None if the form is empty."""
        if not (to_service := query.get("to", "").strip()):
            return None
        sender = query.get("from", _OTHER_INSTANCE)
        case = one_case(
            query.get("conversation", "").strip() or "explained",
            to_service,
            query.get("instance", "").strip() or None,
            "reply" not in query,
            None if sender == _OTHER_INSTANCE else sender,
            None,
        )
        return explained(next(results(self._services.origin(), [case])))


def live_page(services: LiveServices, page: Page) -> Page:
    """Returns a page with a first part that says why the other parts are old, or why they are empty.

    The names of the parts are always the same, so that an open page shows the parts once the problem is over.
    """
    with services.read() as found:
        is_used = found.is_used
    values = {
        "problem": services.problem,
        "unused": services.unused,
        "is_used": is_used,
        "router": services.router,
        "is_normal": services.is_normal,
        "as_of": services.committed,
    }
    first = Part("router", "router.html", values)
    if is_used and not services.problem:
        return replace(page, parts=[first, *page.parts])
    return Page(page.title, [first, *(Part(each.name, "nothing.html") for each in page.parts)])


def explained(result: Result) -> dict[str, Any]:
    """Returns the values for the template that explains where a message would go."""
    fields = [*result.fields()]
    service = result.decision.service
    return {
        "message": result.heading().partition(": ")[2],
        "outcome": result.decision.outcome.value,
        "answer": next(lines[0] for title, lines in fields if title == RESULT),
        "steps": [(title, lines) for title, lines in fields if title != RESULT],
        "queue": None if service is None else service.queue,
    }


def _form(query: QueryParams, rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, Any]:
    return {
        "search": query.get("search", ""),
        "to": query.get("to", ""),
        "from": query.get("from"),
        "instance": query.get("instance", ""),
        "conversation": query.get("conversation", ""),
        "is_reply": "reply" in query,
        "databases": [each["name"] for each in rows["databases"]],
        "proposed": sorted({each["name"] for each in rows["services"]})[:_MAX_PROPOSED],
    }


def _has(row: Mapping[str, Any], search: str, *names: str) -> bool:
    return any(search.casefold() in (row[name] or "").casefold() for name in names)


def _open_endpoints(found: Services) -> Counter[tuple[str, str]]:
    """Returns database and service -> number of the service's endpoints that have not ended."""
    return Counter((row.database, row.service) for row in found.endpoints.rows.values() if row.state not in _ENDED)


def _held(found: Services) -> Counter[str]:
    """Returns service -> number of messages that are held for it."""
    held: Counter[str] = Counter()
    for row in found.held.rows.values():
        held[row.to_service] += row.messages
    return held
