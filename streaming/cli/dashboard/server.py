"""Renders the pages, keeps them live by server-sent events, and admits users. Escapes names from records."""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders, QueryParams
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming.cli.conversations import lists
from streaming.cli.dashboard import instants
from streaming.cli.dashboard.kept import NotYetError
from streaming.cli.dashboard.pictures import short
from streaming.cli.monitor_rows import state_name, unread_count
from streaming.core.activation.headline import why_activated
from streaming.core.activation.session_ids import program_of
from streaming.core.times import iso_time
from streaming.daemons.activator import words
from streaming.errors import UserError
from streaming.system import hints
from streaming.system.ages import has_passed
from streaming.system.documents import document

# The shortest time between two looks for news.
_LOOK_S = 1.0
# The longest time without an event on most pages. The ages on a page grow without any record.
_AT_LEAST_EVERY_S = 5.0
# The statuses of a page without content: nobody has answered yet, or the question has failed.
_NOT_YET, _NOT_KNOWN = 202, 503
_MOST_FORM_BYTES = 16_384
# The beginning of the paths of files, which need no token. So an answer there shows nothing of the instance.
_FILES = "/static/"
_COOKIE = "queue-activation-dashboard"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Part:
    """A part of a page, which is replaced as a whole when it changes.

    Attributes:
        name: Its id in the page.
        template: The file that renders it.
        values: The values of the template.
    """

    name: str
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page: its title, and its parts from top to bottom.

    Attributes:
        title: The title.
        parts: The parts that are live.
        form: The template of a form above the parts; empty: none. The form stays as the user has filled it in.
        values: The values of the form.
        status: The HTTP status.
        every_s: The longest time without an event.
        faults: The number of faults that the page itself shows; None: it shows none.
    """

    title: str
    parts: list[Part]
    form: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    every_s: float = _AT_LEAST_EVERY_S
    faults: int | None = None


_FILTERS: dict[str, Callable[..., Any]] = {
    "instant": instants.element,
    "ago": instants.ago,
    "has_passed": has_passed,
    "iso": iso_time,
    "count": instants.count,
    "duration": instants.duration,
    "sentence": instants.sentence,
    "capital": instants.capital,
    "short": short,
    "program": program_of,
    "state": state_name,
    "unread": unread_count,
    "limits": words.limits,
    "most": words.most_of,
}

# Returns a page for the query of a request. It may ask Kafka, and raise UserError or NotYetError.
Build = Callable[[QueryParams], Page]


@dataclass(frozen=True)
class Entry:
    """A page of the navigation.

    Attributes:
        path: Its path. The template `about.html` explains the page at this path.
        build: Builds the page.
        name: Its name in the navigation; empty: only other pages link the page.
        under: For a page without a name: the path of the page in the navigation to which it belongs.
        needs_monitor: Whether the page is out of date if no monitor runs, and does not itself say that none runs.
    """

    path: str
    build: Build
    name: str = ""
    under: str = ""
    needs_monitor: bool = False


@dataclass(frozen=True)
class News:
    """The state of the whole instance, which every page shows.

    Attributes:
        problem: The reason why the dashboard cannot read a topic at present; empty if it reads all topics.
        silent_since: The time at which Kafka last answered; None if it answers.
        monitor: The sentence about a monitor that does not run; empty if a monitor runs.
        is_normal: Whether that sentence is no alarm.
        as_of: The instant to which the pages of queues are up to date if there is such a sentence; None: not known.
        faults: The number of faults that `diagnose` finds; 0 if the number is not known.
        faults_of: The sentence that says when the faults were counted.
    """

    problem: str = ""
    silent_since: str | None = None
    monitor: str = ""
    is_normal: bool = False
    as_of: str | None = None
    faults: int = 0
    faults_of: str = ""


@dataclass(frozen=True)
class _Look:
    """A page, rendered once for all browsers that ask within a moment, with its version and the moment's time."""

    version: int
    at_s: float
    rendered: "asyncio.Future[tuple[Page, dict[str, str]]]"


class Dashboard:
    """Renders pages and streams their changes."""

    def __init__(self, entries: list[Entry], version: Callable[[], int], news: Callable[[], News]) -> None:
        """Prepares the templates.

        Args:
            entries: The pages.
            version: Returns a number that changes when there is news.
            news: Returns the state of the whole instance.
        """
        self._entries = entries
        self._version = version
        self._news = news
        self._is_stopped = False
        self._looks: dict[tuple[str, str], _Look] = {}
        self._templates = Environment(
            loader=PackageLoader("streaming.cli.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= _FILTERS
        self._templates.globals |= {"why_activated": why_activated, "lists": lists, "document": document}

    def stop(self) -> None:
        """Ends all streams."""
        self._is_stopped = True

    def routes(self) -> list[Route | Mount]:
        """Returns the routes of the pages, the stylesheet and the script."""
        static = Mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
        return [*(Route(each.path, self._answer(each), methods=["GET"]) for each in self._entries), static]

    async def not_found(self, request: Request, _error: Exception) -> Response:
        """Answers a request for a page that does not exist."""
        if request.url.path.startswith(_FILES):
            return PlainTextResponse("Not Found", 404)
        error = f"There is no page {request.url.path!r}. The navigation names all pages."
        page = Page("Not found", [Part("error", "error.html", {"error": error})], status=404)
        answer: Response = await self._answer(Entry(request.url.path, lambda _: page))(request)
        return answer

    def _answer(self, entry: Entry) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if "text/event-stream" in request.headers.get("accept", ""):
                return StreamingResponse(self._changes(entry, request), media_type="text/event-stream")
            page, parts = await run_in_threadpool(self._rendered_page, entry, request.query_params)
            entries = [each for each in self._entries if each.name]
            html = self._templates.get_template("page.html")
            return HTMLResponse(html.render(page=page, here=entry, entries=entries, parts=parts), page.status)

        return answer

    def _rendered_page(self, entry: Entry, query: QueryParams) -> tuple[Page, dict[str, str]]:
        page = self._build(entry, query)
        return page, self._rendered(entry, page)

    def _build(self, entry: Entry, query: QueryParams) -> Page:
        try:
            with hints.anew():
                return entry.build(query)
        except NotYetError:
            looking = [Part("looking", "looking.html")]
            return Page(entry.name or "Not known yet", looking, status=_NOT_YET, every_s=_LOOK_S)
        except UserError as error:
            part = Part("error", "error.html", {"error": str(error)})
            return Page(entry.name or "Not known", [part], status=_NOT_KNOWN)

    def _rendered(self, entry: Entry, page: Page) -> dict[str, str]:
        """Returns name -> HTML of the parts of a page, and of the parts that every page has."""
        news = self._news()
        if page.faults is not None:  # the other number may be that of another moment
            news = replace(news, faults=page.faults, faults_of="")
        is_known = page.status not in (_NOT_YET, _NOT_KNOWN)
        values = {"news": news, "needs_monitor": entry.needs_monitor, "is_known": is_known}
        of_all = {"is_silent": news.silent_since is not None}
        # The number of faults is in the navigation, all else below each other.
        parts = [
            Part("problem", "problem.html", values),
            *page.parts,
            Part("faults-found", "faults_found.html", values),
        ]
        templates = {part.name: self._templates.get_template(part.template) for part in parts}
        return {part.name: templates[part.name].render({**of_all, **part.values}) for part in parts}

    async def _changes(self, entry: Entry, request: Request) -> AsyncIterator[str]:
        """Yields JSON objects: all parts' names in order, name -> changed HTML, status, and whether Kafka is silent."""
        known: dict[str, str] = {}
        version, waited_s, every_s = -1, 0.0, 0.0
        while not self._is_stopped and not await request.is_disconnected():
            if version != self._version() or waited_s >= every_s:
                look = self._look(entry, request.query_params)
                version, waited_s = look.version, 0.0
                # A reader who leaves does not cancel the rendering for the others.
                page, rendered = await asyncio.shield(look.rendered)
                every_s = page.every_s
                changed = {name: html for name, html in rendered.items() if known.get(name) != html}
                is_news = bool(changed) or list(rendered) != list(known)
                known = rendered
                event = {"parts": list(rendered), "changed": changed, "status": page.status}
                event["is_silent"] = self._news().silent_since is not None
                # A comment keeps the connection, and tells the server if the reader has gone.
                yield f"data: {json.dumps(event)}\n\n" if is_news else ": nothing new\n\n"
            await asyncio.sleep(_LOOK_S)
            waited_s += _LOOK_S

    def _look(self, entry: Entry, query: QueryParams) -> _Look:
        """Returns the page as it was rendered for another browser a moment ago, or a new page."""
        address, now_s = (entry.path, str(query)), time.monotonic()
        found = self._looks.get(address)
        if found is None or now_s - found.at_s >= _LOOK_S:
            self._looks = {each: look for each, look in self._looks.items() if now_s - look.at_s < _LOOK_S}
            rendering = asyncio.ensure_future(run_in_threadpool(self._rendered_page, entry, query))
            found = self._looks[address] = _Look(self._version(), now_s, rendering)
        return found


class _Guard:
    """Adds security headers to each answer, and asks users for the token if a token is set."""

    def __init__(self, app: ASGIApp, token: str | None, is_secure: bool) -> None:
        self._app = app
        self._token = token
        self._is_secure = is_secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        app = self._app
        if scope["type"] == "http" and self._token is not None and not scope["path"].startswith(_FILES):
            app = await self._admit(Request(scope, receive), self._token)
        await app(scope, receive, send_with_headers)

    async def _admit(self, request: Request, token: str) -> ASGIApp:
        """Returns the application that answers: the pages for a user with the token, or the form for the token."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if any(_is_same(given, token) for given in (bearer, request.cookies.get(_COOKIE, ""))):
            return self._app
        is_form = request.url.path == "/token" and request.method == "POST"
        if is_form and _is_same(await _entered(request), token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(_COOKIE, token, httponly=True, samesite="strict", secure=self._is_secure)
            return answer
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse("A token is needed, as a header `Authorization: Bearer TOKEN`.\n", 401)
        return HTMLResponse(_ADMISSION, 401)


_ADMISSION = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Token</title>
<link rel="stylesheet" href="/static/dashboard.css"><main><h1>A token is needed</h1>
<form method="post" action="/token"><label>Token <input type="password" name="token" autocomplete="current-password"
required autofocus></label> <button>Enter</button></form></main></html>"""


async def _entered(request: Request) -> str:
    """Returns the token of the form, or an empty text. Starlette itself needs another package to read forms."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_FORM_BYTES:
            return ""
    return parse_qs(body.decode(errors="replace")).get("token", [""])[0]


def _is_same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def application(dashboard: Dashboard, hosts: list[str], token: str | None, *, is_secure: bool) -> Starlette:
    """Returns the web application that serves the dashboard.

    Args:
        dashboard: The pages.
        hosts: The names by which requests may address this machine. A request with another name may come from a foreign
            site (DNS rebinding).
        token: The token that a user must know; None: no token.
        is_secure: Whether TLS protects the pages.
    """
    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=hosts),
        Middleware(_Guard, token=token, is_secure=is_secure),
    ]
    handlers = {404: dashboard.not_found}
    return Starlette(routes=dashboard.routes(), middleware=middleware, exception_handlers=handlers)
