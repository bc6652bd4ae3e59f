"""The dashboard's server: who gets an answer, and with which headers."""

import asyncio
import re

import pytest
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import Message

from streaming.cli.dashboard.kept import NotYetError
from streaming.cli.dashboard.server import Dashboard, Entry, News, Page, Part, application
from streaming.errors import UserError
from tests.support.dashboards import NAMES, RowsInMemory, application_of, ask, row

TOKEN = "0123456789abcdef"  # noqa: S105  (of this test alone)
FORM = {"content_type": "application/x-www-form-urlencoded"}


def test_nothing_is_loaded_from_elsewhere_and_no_script_runs_from_a_page() -> None:
    answer = ask(application_of(RowsInMemory([row("orders")])))
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert re.findall(r"https?://", answer.text) == []
    assert re.findall(r"<[^>]+ (?:style|on\w+)=|<style|<script>", answer.text) == []


def test_files_have_the_headers_too() -> None:
    answer = ask(application_of(RowsInMemory([])), "/static/dashboard.js")
    assert answer.status == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert ask(application_of(RowsInMemory([])), "/static/../server.py").status == 404


@pytest.mark.parametrize("host", ["example.org", "example.org:8466", "127.0.0.1.example.org", "", "localhost@evil"])
def test_a_request_for_the_name_of_a_foreign_site_is_refused(host: str) -> None:
    assert ask(application_of(RowsInMemory([])), host=host).status == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8466", "127.0.0.1:1", "[::1]:8466", "[::1]"])
def test_the_names_of_this_machine_are_answered(host: str) -> None:
    assert ask(application_of(RowsInMemory([])), host=host).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(method: str) -> None:
    assert ask(application_of(RowsInMemory([])), method=method).status == 405


def test_without_the_token_nothing_is_shown() -> None:
    app = application_of(RowsInMemory([row("secret-queue")]), TOKEN)
    for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "queue-activation-dashboard=wrong"}):
        answer = ask(app, "/", **headers)
        assert answer.status == 401
        assert 'action="/token"' in answer.text
        assert "secret-queue" not in answer.text
        assert "content-security-policy" in answer.headers
    program = ask(app, "/", accept="text/event-stream")
    assert program.status == 401
    assert "Authorization: Bearer TOKEN" in program.text
    assert ask(app, "/static/dashboard.css").status == 200  # the form needs it


def test_the_token_as_a_header_and_in_the_form_which_sets_a_cookie() -> None:
    app = application_of(RowsInMemory([row("secret-queue")]), TOKEN, is_secure=True)
    assert "secret-queue" in ask(app, authorization=f"Bearer {TOKEN}").text
    assert ask(app, "/token", method="POST", body="token=wrong", **FORM).status == 401
    assert ask(app, "/token", method="POST", body="", **FORM).status == 401
    entered = ask(app, "/token", method="POST", body=f"token={TOKEN}", **FORM)
    assert (entered.status, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    for attribute in ("HttpOnly", "Secure", "SameSite=strict"):
        assert attribute.lower() in cookie.lower()
    assert "secret-queue" in ask(app, cookie=cookie.partition(";")[0]).text


def test_a_token_with_other_letters_is_only_wrong() -> None:
    app = application_of(RowsInMemory([]), TOKEN)
    assert ask(app, authorization="Bearer ü€").status == 401
    assert ask(app, "/token", method="POST", body="token=%ff%fe", **FORM).status == 401
    assert ask(app, "/token", method="POST", body=f"x={'y' * 10**6}&token={TOKEN}", **FORM).status == 401


@pytest.mark.parametrize(("faults", "name"), [(0, "Health"), (1, "Health 1 fault"), (1_234, "Health 1,234 faults")])
def test_the_navigation_says_how_many_faults_there_are(faults: int, name: str) -> None:
    entries = [Entry("/", lambda _: Page("A page", [])), Entry("/health", lambda _: Page("Health", []), "Health")]
    app = application(Dashboard(entries, lambda: 0, lambda: News(faults=faults)), NAMES, None, is_secure=False)
    [link] = re.findall(r'<a href="/health">(.*?)</a>', ask(app).text, re.DOTALL)
    assert " ".join(re.sub("<[^>]*>", "", link).split()) == name


@pytest.mark.parametrize(
    ("own", "shown", "is_earlier"), [(None, ["2 faults"], True), (5, ["5 faults"], False), (0, [], False)]
)
def test_a_page_that_shows_faults_has_their_number_in_the_navigation_and_others_say_when_they_were_counted(
    own: int | None, shown: list[str], is_earlier: bool
) -> None:
    entries = [Entry("/health", lambda _: Page("Health", [], faults=own), "Health")]
    news = News(faults=2, faults_of="As of 12:00:03 UTC.")
    text = ask(application(Dashboard(entries, lambda: 0, lambda: news), NAMES, None, is_secure=False), "/health").text
    [link] = re.findall(r'<a href="/health"[^>]*>(.*?)</a>', text, re.DOTALL)
    assert " ".join(re.sub("<[^>]*>", "", link).split()) == " ".join(["Health", *shown])
    assert ('title="As of 12:00:03 UTC."' in link) == is_earlier


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(NotYetError(), 202, "is reading the content"), (UserError("no"), 503, "no")],
)
def test_a_page_without_an_answer_says_so(error: Exception, status: int, said: str) -> None:
    def build(_: QueryParams) -> Page:
        raise error

    answer = ask(application(Dashboard([Entry("/", build)], lambda: 0, News), NAMES, None, is_secure=False))
    assert answer.status == status
    assert said in answer.text


@pytest.mark.parametrize(
    ("found", "is_known"), [(NotYetError(), False), (UserError("no"), False), (Page("A page", []), True)]
)
def test_while_kafka_is_silent_only_a_page_with_content_says_that_it_shows_what_was_known(
    found: Page | Exception, is_known: bool
) -> None:
    def build(_: QueryParams) -> Page:
        if isinstance(found, Exception):
            raise found
        return found

    dashboard = Dashboard([Entry("/", build)], lambda: 0, lambda: News(silent_since="2026-01-31T12:00:00.000Z"))
    text = ask(application(dashboard, NAMES, None, is_secure=False)).text
    assert "Kafka has not answered since" in text
    assert "goes on by itself once Kafka answers" in text
    assert ("The page shows what was known then" in text) == is_known


@pytest.mark.parametrize(
    ("found", "is_loaded_again"),
    [
        (NotYetError(), True),
        (UserError("no"), True),
        (Page("Queue", [], status=404), True),
        (Page("Queue", []), False),
    ],
)
def test_without_a_script_a_page_loads_again_until_its_content_is_there(
    found: Page | Exception, is_loaded_again: bool
) -> None:
    def build(_: QueryParams) -> Page:
        if isinstance(found, Exception):
            raise found
        return found

    answer = ask(application(Dashboard([Entry("/", build)], lambda: 0, News), NAMES, None, is_secure=False))
    head = answer.text.partition("</head>")[0]
    # A browser that runs scripts ignores the element: there the script replaces the parts, or loads the page again.
    again = re.findall(r'<noscript><meta http-equiv="refresh" content="(\d+)"></noscript>', head)
    assert [int(seconds) > 0 for seconds in again] == [True] * is_loaded_again


@pytest.mark.parametrize("path", ["/nosuch", "/queues/orders", "/%3Cscript%3E", "/<script>"])
def test_a_page_that_does_not_exist_has_the_navigation(path: str) -> None:
    answer = ask(application_of(RowsInMemory([row("orders")])), path)
    assert answer.status == 404
    assert re.findall(r'<a href="([^"]*)">(?:Queues|Activity)', answer.text) == ["/", "/activity"]
    assert "There is no page" in answer.text
    assert "<script>" not in answer.text


def test_a_file_that_does_not_exist_shows_nothing_to_who_has_no_token() -> None:
    app = application_of(RowsInMemory([]), TOKEN, news=News(monitor="no monitor runs", faults=3))
    for accept in ("text/html", "text/event-stream"):
        answer = ask(app, "/static/nosuch.css", accept=accept)
        assert (answer.status, answer.text) == (404, "Not Found")


def test_readers_of_one_page_share_what_is_rendered() -> None:
    built: list[str] = []

    def build(query: QueryParams) -> Page:
        built.append(str(query))
        return Page("A page", [Part("part", "error.html", {"error": str(len(built))})])

    entry = Entry("/", build)
    dashboard = Dashboard([entry], lambda: len(built), News)

    async def receive() -> Message:
        return await asyncio.Future()  # the reader stays

    async def first_event(query: bytes) -> str:
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": query, "headers": []}
        return await anext(dashboard._changes(entry, Request(scope, receive)))

    async def look() -> list[str]:
        return await asyncio.gather(*(first_event(query) for query in (b"a=1", b"a=1", b"a=2", b"a=1", b"a=2")))

    one, same, other, third, also = asyncio.run(look())
    assert sorted(built) == ["a=1", "a=2"]
    assert one == same == third
    assert other == also != one
