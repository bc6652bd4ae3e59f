"""The dashboard's pages about queues: what they show, how they sort, and that names are text."""

import asyncio
import re
import time
from contextlib import nullcontext
from queue import SimpleQueue
from types import SimpleNamespace

import msgspec
import pytest
from msgspec import structs
from starlette.requests import Request
from starlette.types import Message

from streaming.cli import activators, presence
from streaming.cli.dashboard import live_view, pages, server
from streaming.cli.dashboard.activations import of_notification
from streaming.cli.dashboard.group_map import GroupMap
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.pages import QueuePages, _answer
from streaming.cli.dashboard.server import Dashboard, Entry, News, Page, Part, application
from streaming.cli.dashboard.timeline import Reader, Span, Timeline
from streaming.cli.group_facts import GroupFacts
from streaming.cli.group_survey import Finding
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.cli.queue_facts import QueueFacts
from streaming.core.activation.definition import ActivationClause, QueueDefinition
from streaming.core.observer.pictures import GroupState
from streaming.core.observer.question import Answer as FinalAnswer
from streaming.core.observer.verdict import Verdict
from streaming.core.times import iso_time
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.group_looks import GroupKind
from streaming.kafka.topic_follower import Start
from streaming.system import wall_clock
from streaming.wire.notifications import Activation
from streaming.wire.topics import Topics
from tests.support.dashboards import HOSTILE, NAMES, Answer, RowsInMemory, activation, application_of, ask, row
from tests.unit.test_told_activators import ROW, told

FUTURE = "9998-01-01T00:00:00.000Z"
SOON_S = 10.0
GARBAGE = "9999-99-99T99:99:99Z"
MANY = 10_000


def shown(view: RowsInMemory, target: str = "/") -> str:
    answer = ask(application_of(view), target)
    assert answer.status == 200
    return answer.text


def names(text: str) -> list[str]:
    return re.findall(r'<th scope="row"[^>]*><a [^>]*>([^<]*)</a>', text)


def notification(queue: str, **fields: object) -> Activation:
    return msgspec.convert(activation(queue, **fields), Activation)


@pytest.fixture(scope="module")
def many() -> RowsInMemory:
    return RowsInMemory(
        [
            row(
                f"queue-{number:05}",
                unread_messages=number,
                tasks_waiting=number % 7,
                activation_sequence=MANY - number,
                last_activated_time=f"2026-01-01T00:00:{number % 60:02}.000Z" if number % 2 else None,
                next_check_time=f"2026-01-01T00:00:{number % 60:02}.000Z" if number % 3 else None,
                state="INACTIVE" if number % 10 == 0 else "RECEIVES_OCCURRING",
            )
            for number in range(MANY)
        ]
    )


def test_a_row_says_what_the_record_says() -> None:
    queue = row("orders", unread_messages=1_234, tasks_waiting=2, activation_sequence=1, state="NOTIFIED")
    text = shown(RowsInMemory([queue], [notification("orders")]))
    for part in ("orders", "1,234", "2 waiting in RECEIVE", "NOTIFIED", "message arrived on empty queue"):
        assert part in text


def test_the_last_reason_is_shown_only_if_it_is_that_of_the_last_activation() -> None:
    text = shown(RowsInMemory([row("orders", activation_sequence=2)], [notification("orders")]))
    assert "message arrived on empty queue" not in text


def test_a_queue_whose_reader_did_not_come_is_told_from_one_whose_reader_may_still_come() -> None:
    for reason, state, is_marked in (
        ("MESSAGE_ARRIVED_ON_EMPTY_QUEUE", "NOTIFIED", False),
        ("TIMEOUT_EXPIRED", "NOTIFIED", True),
        ("TIMEOUT_EXPIRED", "RECEIVES_OCCURRING", False),
    ):
        queue = row("orders", activation_sequence=1, state=state)
        text = shown(RowsInMemory([queue], [notification("orders", reason=reason)]))
        assert ("the reader before did not come" in text) == is_marked


def test_readers_at_work_are_counted_for_each_queue_and_for_all() -> None:
    rows = [
        row("group", members=3, unread_messages=4),
        row("orders", tasks_waiting=1, unread_messages=3),
        row("payments", max_queue_readers=2, tasks_running=1, unread_messages=2),
        row("stopped", tasks_waiting=0),
    ]
    text = shown(RowsInMemory(rows))
    assert re.findall(r'data-label="Readers"><span>([^<]*)', text) == [
        "3 in the group",
        "1 waiting in RECEIVE",
        "0 waiting in RECEIVE, tasks 1 of 2",
        "0 waiting in RECEIVE",
    ]
    totals = "1 task, 3 members of consumer groups, 1 waiting in RECEIVE"
    assert f"Readers: {totals}." in text


def test_readers_and_states_that_no_program_keeps_up_to_date_are_unknown_and_never_zero() -> None:
    rows = [
        row("group", members=0, unread_messages=0, state="INACTIVE"),
        row("other", members=2, unread_messages=0, state="INACTIVE"),
        row("payments", max_queue_readers=2, is_activation_enabled=True, tasks_running=1),
    ]
    view = RowsInMemory(rows)
    view.found = Present(observer=False, host=False), ["no observer is in the consumer group"]
    text = shown(view)
    assert re.findall(r'data-label="Readers"><span>([^<]*)', text) == [
        "0 waiting in RECEIVE, tasks requested 1 of 2",
        "members of the group unknown",
        "members of the group unknown",
    ]
    assert "Readers: 1 task, members of 2 consumer groups unknown, 0 waiting in RECEIVE." in text
    assert "no observer is in the consumer group" in text
    view.found = Present(observer=True, unwatched=frozenset({"group"})), []
    text = shown(view)
    assert "Readers: 1 task, 2 members of consumer groups, members of 1 consumer group unknown" in text
    assert '<span class="state not-watched">not watched</span>' in text
    assert "whether its consumer group has messages or readers is unknown" in text
    assert re.findall(r'data-label="Unread" class="number">([^<]*)', text)[1:] == ["unknown", "0"]
    assert names(shown(view, "/?state=not+watched")) == ["group"]


def test_the_page_of_queues_looks_for_the_programs_that_its_rows_need(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = told(structs.replace(ROW, queue="group", entry=None))
    monkeypatch.setattr(Admin, "members", lambda _self, _group, _timeout_s: [])
    monkeypatch.setattr(activators, "read", lambda *_: {"group": [gone]})
    watched = row("group", members=0, unread_messages=0, observer_silent_since="2026-01-31T12:00:00.000Z")
    payments = row("payments", max_queue_readers=2, is_activation_enabled=True)
    monkeypatch.setattr(presence, "stopping_hosts", lambda *_: frozenset())
    view = LiveView(Cluster("127.0.0.1:1"), Topics())
    assert view.programs() == (NOBODY_MISSING, [])
    view._monitors.rows = {"group": watched, "payments": payments}
    present, warnings = view.programs()
    assert present == Present(observer=False, host=False, unwatched=frozenset({"group"}))
    assert [each.partition(" is in")[0] for each in warnings] == ["no host", "no observer"]
    view = LiveView(Cluster("127.0.0.1:1"), Topics())
    view._monitors.rows = {"orders": row("orders")}
    assert view.programs() == (Present(), [])


def test_programs_are_looked_for_only_while_kafka_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    view = LiveView(Cluster("127.0.0.1:1"), Topics())
    looks = SimpleQueue[None]()

    def look(*_: object) -> Present:
        looks.put(None)
        return Present(host=False)

    monkeypatch.setattr(presence, "look", look)
    view._monitors.rows = {"payments": row("payments", max_queue_readers=2)}
    view.contact._answered_ms = 0
    assert view.programs() == (NOBODY_MISSING, [])
    assert looks.empty()
    view.contact._answered_ms = None
    assert view.programs() == (Present(host=False), [])
    assert view.programs() == (Present(host=False), [])
    assert looks.qsize() == 1, "it looks again after a while"


def test_without_groups_and_tasks_only_readers_that_wait_are_counted() -> None:
    assert "Readers: 1,200 waiting in RECEIVE." in shown(RowsInMemory([row("orders", tasks_waiting=1_200)]))


def test_unknown_is_not_zero() -> None:
    count = r'class="number"[^>]*>(.*?)</td>'
    uncertain = shown(RowsInMemory([row("orders", is_count_uncertain=True, unread_messages=0)]))
    certain = shown(RowsInMemory([row("orders", unread_messages=0)]))
    assert re.findall(count, uncertain)[0] != re.findall(count, certain)[0]


def test_a_name_of_a_queue_is_text_everywhere() -> None:
    view = RowsInMemory(
        [row(HOSTILE, activation_sequence=1, next_check_time=HOSTILE, last_activated_time=HOSTILE)],
        [notification(HOSTILE, reason=HOSTILE, notification=HOSTILE, post_time=HOSTILE)],
    )
    for target in ("/", "/activity", "/?search=%22%3E%3Cscript%3Ealert(1)", "/?state=%3Cscript%3E&sort=%3Cscript%3E"):
        text = shown(view, target)
        assert "<script>" not in text
        assert '"><script' not in text


@pytest.mark.parametrize("instant", [GARBAGE, "", "soon", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_times_that_are_none_break_no_page(instant: str) -> None:
    queue = row("orders", last_activated_time=instant, next_check_time=instant, update_time=instant)
    view = RowsInMemory([queue], [notification("orders", PostTime=instant)])
    for target in ("/", "/?sort=activated", "/?sort=check"):
        assert "orders" in shown(view, target)
    is_old = instant.startswith("0001")
    assert ("orders" in shown(view, "/activity")) != is_old


def test_an_empty_view_says_what_a_queue_is_and_a_search_that_nothing_matches() -> None:
    assert "There is no queue yet" in shown(RowsInMemory([]))
    assert "No queue of this name and state" in shown(RowsInMemory([row("orders")]), "/?search=x")
    assert "No queue was activated" in shown(RowsInMemory([]), "/activity")


def test_of_a_group_that_no_observer_looks_at_the_page_says_what_was() -> None:
    queue = row("orders", state="INACTIVE", members=0, unread_messages=0, hindrance="NOTHING_UNREAD")
    for present, since, part in (
        (Present(observer=True), "", "because nothing is unread"),
        (Present(observer=False), "an observer last reported it", "no observer runs"),
        (Present(monitor=False), "", "no monitor runs"),
    ):
        answer = _answer(QueueFacts("orders", None, None, queue, present=present))
        assert part in answer["sentence"]
        assert since in answer["since"]
        assert bool(since) == bool(answer["since"])


def test_a_problem_is_told_above_what_was_known() -> None:
    view = RowsInMemory([row("orders")])
    view._problems["queue-monitors"] = "Kafka cannot be reached <b>"
    text = shown(view)
    assert "Kafka cannot be reached &lt;b&gt;" in text
    assert names(text) == ["orders"]


@pytest.mark.parametrize(("waiting", "is_told"), [(0, False), (2, True)])
def test_the_answer_says_when_it_was_written_and_until_when_readers_that_ended_count(
    waiting: int, is_told: bool
) -> None:
    queue = row("orders", tasks_waiting=waiting, update_time="2026-01-31T12:00:00.250Z")
    answer = _answer(QueueFacts("orders", None, None, queue, present=Present()))
    page = Page("orders", [Part("answer", "answer.html", answer | {"why": []})])
    text = Dashboard([], lambda: 0, News)._rendered(Entry("/queue", lambda _: page), page)["answer"]
    assert 'As the monitor wrote it at <time datetime="2026-01-31T12:00:00.250Z"' in text
    assert ("until its lease ends" in text) == is_told


def page_of(monkeypatch: pytest.MonkeyPatch, view: RowsInMemory, facts: QueueFacts, line: Timeline) -> Answer:
    """Returns the page of the queue `orders`, with facts and a timeline that were read before."""
    pages = QueuePages(view)
    monkeypatch.setattr(pages, "_facts", lambda _: facts)
    monkeypatch.setattr(pages, "_timeline", lambda *_: line)
    monkeypatch.setattr(pages._maps, "of", lambda _: GroupMap(problem="unknown"))
    app = application(Dashboard([Entry("/queue", pages.queue)], lambda: 0, News), NAMES, None, is_secure=False)
    return ask(app, "/queue?name=orders")


def test_the_answer_is_that_of_the_row_that_was_read_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = wall_clock.now_ms()
    older = row("orders", hindrance="QUIET_WINDOW", quiet_until=iso_time(now_ms + 60_000), unread_messages=7)
    newer = row("orders", hindrance="NOTHING_UNREAD", state="INACTIVE", unread_messages=0, is_receive_enabled=False)
    older["update_time"] = iso_time(now_ms - 5_000)
    for facts, live in ((older, newer), (newer, older)):
        found = QueueFacts("orders", 1, QueueDefinition(), facts)
        text = page_of(monkeypatch, RowsInMemory([live]), found, Timeline(0, 60_000)).text
        assert "because nothing is unread" in text
        assert "started before" not in text
        assert "STATUS OFF" in text


def test_the_page_follows_when_an_instant_passes_without_any_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_AT_LEAST_EVERY_S", float("inf"))
    soon = iso_time(wall_clock.now_ms() + 700)
    quiet = row("orders", hindrance="QUIET_WINDOW", quiet_until=soon, next_check_time=soon)
    pages = QueuePages(RowsInMemory([quiet]))
    monkeypatch.setattr(pages, "_facts", lambda _: QueueFacts("orders", 1, None, quiet))
    monkeypatch.setattr(pages, "_timeline", lambda *_: Timeline(0, 60_000))
    dashboard, entry = Dashboard([], lambda: 0, News), Entry("/queue", pages.queue)

    async def receive() -> Message:
        return await asyncio.Future()  # the reader stays

    async def is_followed() -> bool:
        scope = {"type": "http", "method": "GET", "path": "/queue", "query_string": b"name=orders", "headers": []}
        events = dashboard._changes(entry, Request(scope, receive))
        assert "No reader is started before" in await anext(events)
        async for event in events:
            if "No reader was to be started before" in event:
                return True
        return False

    assert asyncio.run(asyncio.wait_for(is_followed(), SOON_S))


def test_a_queue_is_shown_as_soon_as_its_first_row_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = QueueFacts("orders", 1, None, None)
    before = page_of(monkeypatch, RowsInMemory([]), unknown, Timeline(0, 60_000))
    assert before.status == 404
    assert "There is no queue &#39;orders&#39; yet." in before.text
    assert "once the monitor has written its first row" in before.text
    after = page_of(monkeypatch, RowsInMemory([row("orders", hindrance="READER_WAITS")]), unknown, Timeline(0, 60_000))
    assert after.status == 200, "a page that was not found loads itself again then"
    assert "in RECEIVE: one more would have no work" in after.text


def test_of_a_queue_that_nobody_knows_the_page_names_the_queue_that_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    for known, meant in ((["orders-2", "orders-1"], "&#39;orders-1&#39; or &#39;orders-2&#39;?"), (["other"], "")):
        view = RowsInMemory([row(each) for each in known])
        text = page_of(monkeypatch, view, QueueFacts("orders", 1, None, None), Timeline(0, 60_000)).text
        assert text.partition(" Did you mean ")[2].partition(" A queue is there")[0] == meant


def test_the_activations_are_those_of_the_last_hour_or_the_last_ones_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms = 1_790_000_000_000
    monkeypatch.setattr(wall_clock, "now_ms", lambda: now_ms)
    ages_ms = {"old": live_view._RECENT_MS + 1, "new": live_view._RECENT_MS, "newest": 0}
    sent = [notification(name, PostTime=iso_time(now_ms - age_ms)) for name, age_ms in ages_ms.items()]
    view = RowsInMemory([], sent)
    text = shown(view, "/activity")
    assert names(text) == ["newest", "new"]
    assert "2 entries in the last hour, 2 shown." in text
    monkeypatch.setattr(live_view, "KEPT_ACTIVATIONS", 2)
    monkeypatch.setattr(pages, "KEPT_ACTIVATIONS", 2)
    assert "2 entries among the last 2, 2 shown." in shown(RowsInMemory([], sent), "/activity")
    assert "No queue was activated in the last hour." in shown(RowsInMemory([], sent[:1]), "/activity")
    assert "None of the last 2 activations is of a queue that matches" in shown(view, "/activity?search=x")
    fewer = RowsInMemory([], sent[1:2])
    assert "No queue that matches the search was activated in the last hour." in shown(fewer, "/activity?search=x")


def test_before_a_topic_is_read_or_if_it_cannot_be_read_nothing_is_said_to_be_missing() -> None:
    view = RowsInMemory([])
    view.unfinished |= {view.topics.monitors, view.topics.tasks}
    assert "It is not known yet which queues there are." in shown(view)
    assert "There is no queue yet" not in shown(view)
    assert "It is not known yet whether queues were activated." in shown(view, "/activity")
    assert "No queue was activated" not in shown(view, "/activity")
    view.unfinished.remove(view.topics.monitors)
    assert "There is no queue yet" in shown(view)
    view._monitors.rows = {"orders": row("orders")}
    assert "No queue of this name and state" in shown(view, "/?search=x")


def test_a_topic_is_read_once_its_follower_is_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    view = LiveView(Cluster("127.0.0.1:1"), Topics())
    topics = {view.topics.monitors, view.topics.activations, view.topics.tasks}
    assert view.unfinished == topics
    follower = SimpleNamespace(is_at_end=False)
    polls: list[bool] = []

    def poll(_timeout_s: float) -> None:
        polls.append(view.topics.tasks in view.unfinished)
        follower.is_at_end = len(polls) > 1
        if len(polls) > 2:
            view._is_stopped.set()

    follower.poll = poll
    monkeypatch.setattr(live_view, "TopicFollower", lambda *_arguments, **_options: nullcontext(follower))
    view._follow(view.topics.tasks, lambda _message: None, Start.BEGINNING, None)
    assert polls == [True, True, False]
    assert view.unfinished == topics - {view.topics.tasks}
    assert view.version == 1, "open pages show the news"


def test_the_next_check_is_due_once_its_instant_has_passed() -> None:
    shown_of = {at: shown(RowsInMemory([row("orders", next_check_time=at)])) for at in ("2026-01-01T00:00:00Z", FUTURE)}
    assert ['data-label="Next check">due<' in text for text in shown_of.values()] == [True, False]
    assert f'datetime="{FUTURE}"' in shown_of[FUTURE]


def test_the_end_of_a_lease_that_reports_postpone_is_no_check_that_is_due() -> None:
    text = shown(RowsInMemory([row("orders", tasks_running=1, next_check_time="2026-01-01T00:00:00Z")]))
    assert 'data-label="Next check"><span class="none">-<' in text


def test_the_map_of_a_group_says_whose_answer_it_is_and_of_when() -> None:
    seen = "2026-01-31T12:00:09.250Z"
    dashboard, entry = Dashboard([], lambda: 0, News), Entry("/queue", lambda _: Page("orders", []))
    for one_more, answer in ((True, "would have said then that"), (None, "did not know then whether")):
        verdict = Verdict(one_more, "m owns 2 partitions in which messages wait")
        finding = Finding("g", GroupKind.CLASSIC, GroupState.STABLE, 2, FinalAnswer(verdict, []))
        page = Page("orders", [Part("group", "group.html", {"map": GroupMap(finding, seen)})])
        text = dashboard._rendered(entry, page)["group"]
        assert f'At <time datetime="{seen}"' in text
        assert f"<code>queue-activation groups</code> {answer} one more reader would have work: m owns 2" in text
        assert "One more reader would" not in text, "only the observer's answer counts"


def timeline_part(line: Timeline, **more: object) -> str:
    """Returns the part of a queue's page with the timeline and its tables."""
    values = {"line": line, "picture": "", "periods": ["1m"], "period": "1m", "name": "orders", "most_readers": 9}
    values |= {"hosts": {}, "is_activated": False} | more
    page = Page("orders", [Part("timeline", "timeline.html", values)])
    return Dashboard([], lambda: 0, News)._rendered(Entry("/queue", lambda _: page), page)["timeline"]


def queue_page(monkeypatch: pytest.MonkeyPatch, facts: QueueFacts, line: Timeline | None = None) -> str:
    """Returns the whole page of a queue of which no row was read since its facts."""
    return page_of(monkeypatch, RowsInMemory([]), facts, line or Timeline(0, 60_000)).text


@pytest.mark.parametrize("has_activations", [True, False])
def test_the_page_of_one_queue_says_each_fact_once(monkeypatch: pytest.MonkeyPatch, has_activations: bool) -> None:
    queue = row("orders", state="INACTIVE", unread_messages=0, hindrance="NOTHING_UNREAD", activation_sequence=1)
    notified = notification("orders")
    facts = QueueFacts("orders", 1, None, queue, activations=[notified], present=Present())
    line = Timeline(0, 60_000, activations=[(1, of_notification(notified))] if has_activations else [])
    text = page_of(monkeypatch, RowsInMemory([queue]), facts, line).text
    for said in ("because nothing is unread", "The next message activates the queue", ">INACTIVE<"):
        assert text.count(said) == 1, said
    assert "<dt>state</dt>" not in text
    assert ("<dt>last notified</dt>" in text) is not has_activations


@pytest.mark.parametrize(
    ("definition", "procedure", "poison"),
    [
        (None, False, False),
        (QueueDefinition(), False, True),
        (QueueDefinition(handles_poison=False, activation=ActivationClause()), True, False),
    ],
)
def test_a_word_is_explained_only_on_a_page_that_has_it(
    monkeypatch: pytest.MonkeyPatch, definition: QueueDefinition | None, procedure: bool, poison: bool
) -> None:
    facts = QueueFacts("orders", 1, definition, row("orders"), present=Present())
    text = queue_page(monkeypatch, facts)
    assert ("A session is" in text, "A procedure is" in text) == (False, procedure)
    assert ("five rollbacks in a row" in text) is poison


@pytest.mark.parametrize("group", [None, GroupFacts("orders", "Stable", 1)])
def test_the_page_of_a_group_speaks_of_its_observer_instead_of_receive(
    monkeypatch: pytest.MonkeyPatch, group: GroupFacts | None
) -> None:
    facts = QueueFacts("orders", 1, None, row("orders", members=1), group=group, present=Present(observer=True))
    [about] = re.findall('<p class="about">(.*)</p>', queue_page(monkeypatch, facts))
    assert ("RECEIVE" in about, "observer" in about) == (group is None, group is not None)
    assert "time-out" in about, "a reason of requests"


def test_a_reader_that_a_host_runs_is_shown_with_its_host_and_processes_of_an_activator_are_linked() -> None:
    lives = Span(0, None, "lives")
    line = Timeline(0, 60_000, readers=[Reader("task-1/a", lives), Reader("other", lives)])
    text = timeline_part(line, hosts={"task-1": "vm:4711", "task-2": None}, is_activated=True)
    assert text.count("host vm:4711") == 1
    assert 'href="/programs?search=orders"' in text
    assert "/programs" not in timeline_part(line)


@pytest.mark.parametrize(("members", "what"), [([], "a reader found nothing"), ([(1, 1)], "one more would have had")])
def test_a_quiet_window_that_begins_anew_is_no_longer_than_its_legend_says(
    members: list[tuple[int, int]], what: str
) -> None:
    line = Timeline(0, 60_000, quiet=[Span(0, 16_000, "quiet")], window_ms=5_000, members=members)
    assert f"until 5 s after the last time that {what}" in timeline_part(line)


def test_the_notification_that_every_queue_has_needs_no_name() -> None:
    asked = [of_notification(notification("orders", notification=name)).asked for name in ("default", "audit", None)]
    assert asked == [("a notification",), ("notification audit",), ()]


def test_the_readers_of_a_queue_are_listed_latest_first_with_what_they_reported() -> None:
    at_ms = 1_760_000_000_000
    ended = Reader("ended", Span(at_ms, at_ms + 2_000, "lives"), [], at_ms + 2_000, 1_234)
    lives = Reader(HOSTILE, Span(at_ms + 1_000, None, "lives"), [], at_ms + 3_000, 5)
    line = Timeline(at_ms, at_ms + 60_000, readers=[ended, lives])
    text = timeline_part(line)
    rows = [re.sub(r"\s*<[^>]*>\s*", " ", each).split() for each in re.findall("<tr><th scope=.row.*</tr>", text)]
    assert "<script>" not in text
    assert [(each[-1], "1,234" in each) for each in rows] == [("reported", False), ("reported", True)]
    assert text.index("none reported") < text.index("1,234")


@pytest.mark.parametrize("path", ["/", "/activity"])
def test_each_page_says_since_when_kafka_is_silent_above_what_was_known(path: str) -> None:
    view = RowsInMemory([row("orders")], [notification("orders")])
    since = iso_time(wall_clock.now_ms() - 42_000)
    text = ask(application_of(view, news=News(silent_since=since, monitor="no monitor runs")), path).text
    assert f'Kafka has not answered since <time datetime="{since}"' in text
    assert "(<time" in text
    assert "42 s ago" in text
    assert names(text) == ["orders"]
    # Whether a monitor runs is not known meanwhile.
    assert "no monitor runs" not in text


def test_pages_of_what_a_monitor_writes_say_that_none_runs() -> None:
    view = RowsInMemory([row("orders")])
    app = application_of(view, news=News(monitor="no monitor runs. Start one: `queue-activation monitor`"))
    assert (
        '<p class="wrong">No monitor runs. Start one: <code>queue-activation monitor</code>. What follows may be old.'
        in (ask(app).text)
    )


def test_that_a_monitor_was_just_started_is_no_alarm() -> None:
    news = News(monitor="The monitor runs, and has not written anything yet", is_normal=True)
    text = ask(application_of(RowsInMemory([row("orders")]), news=news)).text
    assert "The monitor runs, and has not written anything yet." in text
    assert 'class="wrong"' not in text
    assert "may be old" not in text


@pytest.mark.parametrize("path", ["/", "/activity"])
@pytest.mark.parametrize("is_normal", [True, False])
def test_without_a_monitor_each_page_says_how_old_it_is(
    path: str, is_normal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wall_clock, "now_ms", lambda: 1_790_000_000_000)
    news = News(monitor="`run` (process 7) is starting", is_normal=is_normal, as_of=iso_time(1_789_999_940_000))
    text = ask(application_of(RowsInMemory([row("orders")]), news=news), path).text
    told = re.sub(r"<[^>]*>", "", text)
    assert "(process 7) is starting. What follows is as of 14:12:20 UTC (60 s ago)." in told
    assert ('class="wrong"' in text) != is_normal


def test_what_no_monitor_keeps_up_to_date_is_told_as_what_was() -> None:
    waited = row("orders", state="NOTIFIED", tasks_waiting=2)
    view = RowsInMemory([waited, row("parcels", state="NOTIFIED", next_check_time="2026-01-01T00:00:00.000Z")])
    text = shown(view)
    for part in (
        "2 waiting in RECEIVE",
        "has not come yet",
        'data-label="Next check">due<',
        "comes with one of its next batches",
    ):
        assert part in text
    view.found = Present(monitor=False), ()
    text = shown(view)
    for part in ("2 waited in RECEIVE", "had not come yet", 'data-label="Next check">-<'):
        assert part in text
    assert "next batches" not in text
    assert "waiting in RECEIVE" not in text


@pytest.mark.parametrize("is_current", [True, False])
def test_whether_a_monitor_keeps_the_rows_up_to_date_is_known_from_the_contact(is_current: bool) -> None:
    view = LiveView(Cluster("127.0.0.1:1"), Topics())
    view.contact.is_current = is_current
    assert view.programs()[0].monitor == is_current, "there are no rows"
    view._monitors.rows = {"orders": row("orders")}
    view._look_around = lambda: NOBODY_MISSING  # type: ignore[method-assign]
    view.contact._answered_ms = wall_clock.now_ms()
    assert view.programs()[0].monitor == is_current


def test_rows_are_as_of_the_last_sign_of_life_or_of_the_newest_row_after_it() -> None:
    times = [iso_time(at_ms) for at_ms in (1_000, 2_000, 3_000)]
    view = RowsInMemory([row("orders", update_time=times[1]), row("audit", update_time="no time")])
    assert view.as_of() is None, "no sign of life is known"
    for committed, expected in ((times[0], times[1]), (times[2], times[2])):
        view.contact.committed = committed
        assert view.as_of() == expected


def test_what_keeps_one_topic_from_being_read_is_told_although_another_is_read() -> None:
    view = RowsInMemory([row("orders")])
    view._problems |= {"queue-monitors": "no right to read queue-monitors", "queue-activations": "no topic"}
    view._problems.pop("queue-activations")
    assert "no right to read queue-monitors" in shown(view)


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("", "queue-09999", "queue-09900"),
        ("sort=queue", "queue-00000", "queue-00099"),
        ("sort=sequence", "queue-00000", "queue-00099"),
        ("sort=readers", "queue-00006", "queue-00699"),
        ("sort=activated", "queue-00059", "queue-05999"),
        ("sort=state&page=1", "queue-00000", "queue-00990"),
        ("sort=queue&page=100", "queue-09900", "queue-09999"),
        ("sort=queue&page=101", "queue-09900", "queue-09999"),
        ("sort=queue&page=-1", "queue-00000", "queue-00099"),
        ("sort=queue&page=%C2%B2", "queue-00000", "queue-00099"),
        ("sort=nonsense&page=nonsense", "queue-09999", "queue-09900"),
        ("sort=queue&search=QUEUE-0001", "queue-00010", "queue-00019"),
        ("sort=queue&state=INACTIVE&page=2", "queue-01000", "queue-01990"),
    ],
)
def test_sort_search_and_pages_of_many_queues(many: RowsInMemory, query: str, first: str, last: str) -> None:
    found = names(shown(many, f"/?{query}"))
    assert (found[0], found[-1]) == (first, last)
    assert len(found) <= 100


def test_an_unknown_order_is_the_usual_one_and_is_shown_as_such(many: RowsInMemory) -> None:
    assert shown(many, "/?sort=nonsense").count("aria-sort") == 1


def test_queues_that_are_checked_next_come_first_and_those_without_an_instant_last(many: RowsInMemory) -> None:
    first = names(shown(many, "/?sort=check"))[0]
    assert int(first.removeprefix("queue-")) % 60 == 1
    assert names(shown(many, "/?sort=check&page=100"))[-1] == "queue-09999"


def test_a_page_of_many_queues_is_built_in_under_a_second_of_cpu_time(many: RowsInMemory) -> None:
    shown(many)
    began_s = time.process_time()
    shown(many)
    assert time.process_time() - began_s < 1.0


def test_the_links_between_pages_keep_search_state_and_order(many: RowsInMemory) -> None:
    text = shown(many, "/?sort=queue&state=INACTIVE&search=queue&page=2")
    for number in (1, 3):
        assert re.search(rf'href="/\?search=queue&amp;state=INACTIVE&amp;sort=queue&amp;page={number}"', text)
    assert "101 to 200 of 1,000" in text
    assert "<option selected>INACTIVE</option>" in text
