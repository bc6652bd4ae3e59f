"""The dashboard's pages of conversations: counts, what waits and why, and one conversation."""

import html as escaping
import re
from urllib.parse import urlencode

import pytest

from streaming.cli.conversations.show import facts
from streaming.cli.conversations.views import Viewed
from streaming.cli.dashboard.conversation_pages import conversation_page
from streaming.cli.routing.explained_routes import Origin, instance_of
from streaming.core.times import iso_time
from streaming.system import wall_clock
from tests.support.conversation_scene import DEFINITIONS
from tests.support.service_records import html, html_of, live_services
from tests.support.viewed import endpoint, transmission

HOSTILE = "<script>alert(1)</script>"
DAY_MS = 86_400_000


def text(page: str) -> str:
    return " ".join(escaping.unescape(re.sub(r"<[^>]+>", " ", page.partition("<main")[2])).split())


def shown(page: str) -> list[str]:
    """Returns the conversations of the endpoints, from top to bottom."""
    table = page.partition('aria-label="Endpoints"')[2]
    return re.findall(r'href="/conversation\?id=([^"]*)"', table)


def days_ago(days: int) -> str:
    return iso_time(wall_clock.now_ms() - days * DAY_MS - 1_000)


def test_endpoints_are_counted_by_state_and_age() -> None:
    rows = [
        endpoint(conversation_id="a", last_statement=days_ago(0)),
        endpoint(conversation_id="b", last_statement=days_ago(2)),
        endpoint(conversation_id="c", last_statement=days_ago(31), state="ER"),
    ]
    page = text(html(live_services(endpoints=rows), "/conversations"))
    assert "CO 2 1 1 0 0 conversing, both sides may send" in page
    assert "ER 1 1 1 1 1 error, the conversation has failed" in page


def test_endpoints_stand_in_order_of_their_idle_time() -> None:
    rows = [endpoint(conversation_id=name, last_statement=days_ago(days)) for name, days in (("a", 1), ("b", 3))]
    assert shown(html(live_services(endpoints=rows), "/conversations")) == ["b", "a"]


ROWS = [
    endpoint(conversation_id="aa1", service="Orders", far_service="Stock"),
    endpoint(conversation_id="aa2", service="Bills", far_service="Stock", state="ER"),
    endpoint(conversation_id="bb1", service="Orders", far_service="Later"),
]
HELD = [transmission(conversation_id="bb1", to_service="Later", messages=3)]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"search": "aa"}, ["aa1", "aa2"]),
        ({"search": "AA1"}, ["aa1"]),
        ({"search": "1"}, []),
        ({"search": "order"}, ["aa1", "bb1"]),
        ({"search": "later"}, ["bb1"]),
        ({"state": "ER"}, ["aa2"]),
        ({"held": "yes"}, ["bb1"]),
        ({"held": "yes", "search": "aa"}, []),
    ],
)
def test_endpoints_are_searched(asked: dict[str, str], found: list[str]) -> None:
    page = html(live_services(endpoints=ROWS, held=HELD), "/conversations", urlencode(asked))
    assert shown(page) == found
    assert found or "No endpoint matches the search." in page


def test_what_an_endpoint_holds_is_shown_with_the_reason() -> None:
    page = text(html(live_services(endpoints=ROWS, held=HELD), "/conversations", "held=yes"))
    assert "Later 3 " in page.partition("What waits, and why")[2]
    assert "3 messages 9796: the service is not here" in page


def test_a_hundred_endpoints_are_shown_at_a_time() -> None:
    live = live_services(endpoints=[endpoint(conversation_id=f"{number:03}") for number in range(150)])
    assert shown(html(live, "/conversations")) == [f"{number:03}" for number in range(100)]
    second = html(live, "/conversations", "page=2&search=Orders")
    assert shown(second) == [f"{number:03}" for number in range(100, 150)]
    assert 'href="/conversations?search=Orders&amp;state=&amp;page=1" rel="prev"' in second


def test_it_is_said_if_only_some_endpoints_are_kept() -> None:
    live = live_services(endpoints=ROWS)
    assert "keeps in memory" not in html(live, "/conversations")
    with live.read() as found:
        found.endpoints.is_full = True
    assert "the first 50,000 are counted and shown" in text(html(live, "/conversations"))


def test_nothing_waits_is_said_only_after_all_has_been_read() -> None:
    for path in ("/conversations", "/transmissions"):
        assert "Nothing waits." in text(html(live_services(DEFINITIONS), path))
        assert "Nothing waits." not in text(html(live_services(is_complete=False), path))


def test_held_messages_are_shown_oldest_first_with_reason_and_next_try() -> None:
    held = [
        transmission(conversation_id="new", held_since=days_ago(1)),
        transmission(conversation_id="old", held_since=days_ago(3), next_try="2026-01-31T12:00:25.000Z"),
        transmission(conversation_id="sent", held_since=None, number=None, reason="sent", next_try=None),
    ]
    page = html(live_services(held=held), "/transmissions")
    assert re.findall(r'href="/conversation\?id=([^"]*)"', page) == ["sent", "old", "new"]
    assert "old 3 d ago 1 Stock initiator 9796: the service is not here 12:00:25 UTC" in text(page)
    assert "sent on the way 1 Stock initiator sent" in text(page)
    assert "new 24 h ago 1 Stock initiator 9796: the service is not here within 10 s" in text(page)


def test_without_a_router_no_next_try_is_promised() -> None:
    tries = {"soon": None, "timed": "2026-01-31T12:00:25.000Z"}
    held = [transmission(conversation_id=name, next_try=at) for name, at in tries.items()]
    live = live_services(held=held)
    live.is_routed = False
    origin = Origin(lambda: live._found.definitions, instance_of([], is_forwarding=False))
    known = facts("c", Viewed({}, {}, []), [(row, {}) for row in held], origin)
    pages = [html(live, path) for path in ("/conversations", "/transmissions")]
    for page in (*pages, html_of(lambda _: conversation_page(known, is_routed=False))):
        assert "once a router works" in text(page)
        assert not re.search("within 10 s|12:00:25", text(page))


def test_names_and_reasons_are_text() -> None:
    row = endpoint(conversation_id=HOSTILE, service=HOSTILE, far_service=HOSTILE, state=HOSTILE)
    held = transmission(conversation_id=HOSTILE, to_service=HOSTILE, reason=HOSTILE)
    live = live_services(endpoints=[row], held=[held])
    for path in ("/conversations", "/transmissions"):
        page = html(live, path, urlencode({"search": HOSTILE}))
        assert HOSTILE not in page
        assert HOSTILE in text(page)


def test_a_conversation_is_shown_as_the_command_shows_it() -> None:
    live = live_services(DEFINITIONS)
    with live.read() as found:
        origin = Origin(lambda: found.definitions, instance_of(live.addresses, is_forwarding=False))
        row = endpoint(database="A", far_service=HOSTILE)
        held = transmission(from_database="A", to_service=HOSTILE)
        known = facts("c", Viewed({"c/initiator": row}, {"c/initiator": b"{}"}, []), [(held, {})], origin)
    page = html_of(lambda _: conversation_page(known))
    said = text(re.sub("</?time[^>]*>", "", page))
    assert f"{HOSTILE}: 1 message since 2026-01-31 12:00:00 UTC; 9796: the service is not here" in said
    for title, lines in known.fields():
        assert title.strip().replace("=>", "outcome") in said
        assert all(" ".join(line.split()) in said for line in lines)
    assert HOSTILE not in page


def test_a_conversation_that_holds_nothing_says_so() -> None:
    origin = Origin(lambda: live_services(DEFINITIONS)._found.definitions, instance_of([], is_forwarding=False))
    known = facts("c", Viewed({"c/initiator": endpoint()}, {"c/initiator": b"{}"}, []), [], origin)
    assert "Nothing is held." in text(html_of(lambda _: conversation_page(known)))
