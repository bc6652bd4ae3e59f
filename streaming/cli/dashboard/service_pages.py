"""The page of databases, services and routes, with a form that explains where a message would go."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.datastructures import QueryParams

from streaming.cli.dashboard.live_services import LiveServices, Services
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.server import Page, Part
from streaming.cli.dashboard.table_pages import paged
from streaming.cli.monitor_rows import state_name, unread_count
from streaming.cli.routing.explained_routes import RESULT, Result, one_case, results
from streaming.core.conversations.endpoint_states import ENDED
from streaming.kafka.own_programs import PROGRAMS
from streaming.wire.service_definitions import rows_of

_ENDED = frozenset(state.name for state in ENDED)
# Names that the form proposes.
_MAX_PROPOSED = 500
# The sender of a message that comes from another instance; no database has an empty name.
_OTHER_INSTANCE = ""


class ServicePages:
    """Builds the page from the live views."""

    def __init__(self, view: LiveView, services: LiveServices) -> None:
        self._view = view
        self._services = services

    def services(self, query: QueryParams) -> Page:
        """Returns the page: an explanation if the form asks for one, then what is defined."""
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
            "services": [self._service(each, conversations, held) for each in shown.rows],
            "paged": shown,
            "databases": paged([each for each in rows["databases"] if _has(each, search, "name")], None),
            "routes": paged(
                [
                    each | {"is_expired": each["name"] in expired[each["database"]]}
                    for each in rows["routes"]
                    if _has(each, search, "name", "database", "service_name", "address")
                ],
                None,
            ),
            "query": {"search": search},
            "path": "/services",
        }
        explanation = {"explained": explained, "addresses": self._services.addresses}
        parts = [Part("explanation", "explanation.html", explanation), Part("services", "services.html", values)]
        return Page("Services", live_parts(self._services, parts), "services_form.html", _form(query, rows))

    def _explained(self, query: QueryParams) -> Mapping[str, Any] | None:
        """Returns where the message would go that the form describes; None if it describes none."""
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

    def _service(
        self, row: Mapping[str, Any], conversations: Counter[tuple[str, str]], held: Counter[str]
    ) -> dict[str, Any]:
        monitor = self._view.monitor(row["queue"])
        return {
            **row,
            "state": None if monitor is None else state_name(monitor),
            "unread": None if monitor is None else unread_count(monitor),
            "conversations": conversations[row["database"], row["name"]],
            "held": held[row["name"]],
        }


def live_parts(services: LiveServices, parts: list[Part]) -> list[Part]:
    """Returns the parts of a page, and before them why they are not up to date, or else not known at all.

    Their names are always the same, so that a page that is open shows the parts once the problem is over.
    """
    values = {
        "problem": services.problem,
        "unused": services.unused,
        "has_router": services.has_router,
        "consequence": PROGRAMS["router"][1],
    }
    known = [Part(each.name, "nothing.html") for each in parts] if services.problem else parts
    return [Part("router", "router.html", values), *known]


def explained(result: Result) -> dict[str, Any]:
    """Returns what the template of an explanation shows."""
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
    """Returns database and service -> number of its endpoints that have not ended."""
    return Counter((row.database, row.service) for row in found.endpoints.rows.values() if row.state not in _ENDED)


def _held(found: Services) -> Counter[str]:
    """Returns service -> number of messages that are held for it."""
    held: Counter[str] = Counter()
    for row in found.held.rows.values():
        held[row.to_service] += row.messages
    return held
