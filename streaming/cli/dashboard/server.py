"""Serves the pages: rendered here, live by server-sent events, and safe for names that anybody may have chosen."""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
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

from streaming.cli.dashboard import instants
from streaming.cli.dashboard.pictures import short
from streaming.core.activation.headline import why_activated
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.system import hints

# The shortest time between two looks for news, and the longest time without an event: ages grow without any record.
_LOOK_S = 1.0
_AT_LEAST_EVERY_S = 5.0
_MOST_FORM_BYTES = 16_384
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
        values: What the template shows.
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
        form: The template of a form above them, with `values`; empty: none. It stays as the reader has filled it in.
        values: What the form shows.
        status: The HTTP status.
    """

    title: str
    parts: list[Part]
    form: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


# Returns a page for the query of a request; may ask Kafka, and raise UserError.
Build = Callable[[QueryParams], Page]


@dataclass(frozen=True)
class Entry:
    """A page of the navigation.

    Attributes:
        path: Its path.
        build: Builds it.
        name: Its name in the navigation; empty: it is reached from others.
        about: What it shows, for one who sees such a page for the first time.
        under: The path of the page of the navigation that it belongs to, if it has no name.
        needs_monitor: Whether it shows what a monitor writes, and does not say itself that none runs.
    """

    path: str
    build: Build
    name: str = ""
    about: str = ""
    under: str = ""
    needs_monitor: bool = False


@dataclass(frozen=True)
class News:
    """The reasons for which the pages may not be up to date.

    Attributes:
        problem: Why something is not read at present; empty if all is.
        silent_since: When Kafka last answered; None if it answers.
        monitor: The sentence about a monitor that does not run; empty if one does.
        is_normal: Whether it says only that the monitor was just started.
    """

    problem: str = ""
    silent_since: str | None = None
    monitor: str = ""
    is_normal: bool = False


@dataclass(frozen=True)
class _Look:
    """A page as it was rendered for one of its readers, for all who look at it at that time.

    Attributes:
        version: The version of which it is.
        at_s: When it was begun.
        rendered: The page and its parts, once they are there.
    """

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
            news: Returns what keeps the pages from being up to date.
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
        self._templates.filters |= {"instant": instants.element, "ago": instants.ago, "count": instants.count}
        self._templates.filters["iso"] = iso_time
        self._templates.filters |= {"duration": instants.duration, "short": short}
        self._templates.filters |= {"sentence": instants.sentence, "capital": instants.capital}
        self._templates.globals["why_activated"] = why_activated

    def stop(self) -> None:
        """Ends all streams."""
        self._is_stopped = True

    def routes(self) -> list[Route | Mount]:
        """Returns the pages and the files of stylesheet and script."""
        static = Mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
        return [*(Route(each.path, self._answer(each), methods=["GET"]) for each in self._entries), static]

    def _answer(self, entry: Entry) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if "text/event-stream" in request.headers.get("accept", ""):
                return StreamingResponse(self._changes(entry, request), media_type="text/event-stream")
            page = await run_in_threadpool(self._build, entry, request.query_params)
            return HTMLResponse(await run_in_threadpool(self._html, entry, page), page.status)

        return answer

    def _build(self, entry: Entry, query: QueryParams) -> Page:
        try:
            with hints.anew():
                return entry.build(query)
        except UserError as error:
            return Page(entry.name or "Not known", [Part("error", "error.html", {"error": str(error)})], status=503)

    def _html(self, entry: Entry, page: Page) -> str:
        values = {
            "page": page,
            "here": entry,
            "entries": [each for each in self._entries if each.name],
            "parts": self._rendered(entry, page),
        }
        return self._templates.get_template("page.html").render(values)

    def _rendered(self, entry: Entry, page: Page) -> dict[str, str]:
        problem = {"news": self._news(), "needs_monitor": entry.needs_monitor}
        parts = [Part("problem", "problem.html", problem), *page.parts]
        return {part.name: self._templates.get_template(part.template).render(part.values) for part in parts}

    async def _changes(self, entry: Entry, request: Request) -> AsyncIterator[str]:
        """Yields, as JSON objects, the names of all parts in order, and name -> HTML of those that have changed.

        Also the status of the page, and whether Kafka is silent.
        """
        known: dict[str, str] = {}
        version, waited_s = -1, _AT_LEAST_EVERY_S
        while not self._is_stopped and not await request.is_disconnected():
            if version != self._version() or waited_s >= _AT_LEAST_EVERY_S:
                look = self._look(entry, request.query_params)
                version, waited_s = look.version, 0.0
                # One reader who leaves does not take it from the others.
                page, rendered = await asyncio.shield(look.rendered)
                changed = {name: html for name, html in rendered.items() if known.get(name) != html}
                is_news = bool(changed) or list(rendered) != list(known)
                known = rendered
                is_silent = self._news().silent_since is not None
                news = json.dumps(
                    {"parts": list(rendered), "changed": changed, "status": page.status, "is_silent": is_silent}
                )
                # A comment keeps the connection, and tells the server if the reader has gone.
                yield f"data: {news}\n\n" if is_news else ": nothing new\n\n"
            await asyncio.sleep(_LOOK_S)
            waited_s += _LOOK_S

    def _look(self, entry: Entry, query: QueryParams) -> _Look:
        """Returns the page of now: that of another reader who has looked a moment ago, or a new one."""
        address, now_s = (entry.path, str(query)), time.monotonic()
        found = self._looks.get(address)
        if found is None or now_s - found.at_s >= _LOOK_S:
            self._looks = {each: look for each, look in self._looks.items() if now_s - look.at_s < _LOOK_S}
            rendering = run_in_threadpool(self._build_and_render, entry, query)
            found = self._looks[address] = _Look(self._version(), now_s, asyncio.ensure_future(rendering))
        return found

    def _build_and_render(self, entry: Entry, query: QueryParams) -> tuple[Page, dict[str, str]]:
        page = self._build(entry, query)
        return page, self._rendered(entry, page)


class _Guard:
    """Adds the headers of safety to each answer, and asks for the token if there is one."""

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
        if scope["type"] == "http" and self._token is not None and not scope["path"].startswith("/static/"):
            app = await self._admit(Request(scope, receive), self._token)
        await app(scope, receive, send_with_headers)

    async def _admit(self, request: Request, token: str) -> ASGIApp:
        """Returns what answers: the pages for one who has the token, or the form that asks for it."""
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
    """Returns the token of the form; empty if there is none. Starlette needs one more package to read forms."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_FORM_BYTES:
            return ""
    return parse_qs(body.decode(errors="replace")).get("token", [""])[0]


def _is_same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def application(dashboard: Dashboard, hosts: list[str], token: str | None, *, is_secure: bool) -> Starlette:
    """Returns the application.

    Args:
        dashboard: The pages.
        hosts: The names of this machine that a request may have; others could be a foreign site's (DNS rebinding).
        token: What a reader must know; None: nothing.
        is_secure: Whether it is served by TLS.
    """
    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=hosts),
        Middleware(_Guard, token=token, is_secure=is_secure),
    ]
    return Starlette(routes=dashboard.routes(), middleware=middleware)
