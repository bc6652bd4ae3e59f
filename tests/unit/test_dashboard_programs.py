"""The dashboard's pages about programs and health, as far as they need no Kafka."""

import re
import socket
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("starlette")

from confluent_kafka import KafkaError, KafkaException
from markupsafe import Markup
from starlette.datastructures import QueryParams

from streaming.cli.activators import Told
from streaming.cli.dashboard import backlogs, batches, contact, health_page, program_pages
from streaming.cli.dashboard.health_page import HealthPage
from streaming.cli.dashboard.instants import sentence
from streaming.cli.dashboard.kept import Kept, NotYetError
from streaming.cli.dashboard.program_pages import Program
from streaming.cli.dashboard.server import Dashboard, Entry, News, Page, Part
from streaming.cli.lines import say
from streaming.cli.routing.definition_faults import Fault
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.system import hints, runs, wall_clock
from streaming.wire.activator_rows import ActivatorRow, ExitRow, HeldRow
from streaming.wire.activator_rows import ProgramRow as ActivatorProgram
from streaming.wire.service_maintenance import ConnectionRow, ProgramRow, TaskRow
from streaming.wire.signs_of_life import SignOfLife
from streaming.wire.topics import Topics
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from streaming.cli.dashboard.live_view import LiveView

NAME = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
TIME = "2026-01-31T12:00:00.000Z"
SOON_S = 10


def html(template: str, news: News | None = None, **values: Any) -> str:
    """Returns a part of a page as it is sent."""
    dashboard, entry = Dashboard([], lambda: 0, lambda: news or News()), Entry("/", lambda _: page)
    page = Page("A page", [Part("part", template, values)])
    return dashboard._rendered(entry, page)["part"]


def activator_row(**fields: Any) -> ActivatorRow:
    values: dict[str, Any] = {
        "queue": "orders",
        "activator": "box-1",
        "group_id": "activators",
        "host": "box",
        "config_file": "activator.toml",
        "entry": "orders",
        "max": 2,
    }
    return ActivatorRow(**values | fields)


_NOT_LOOKED_AT = r"found none in the \d+ s before Kafka fell silent"


class TestKept:
    """Answers that take long to find."""

    def test_an_answer_is_found_once_for_all_who_ask(self) -> None:
        kept, found = Kept(60.0, 60.0), iter(range(10))
        answers = [kept.get("number", lambda: next(found)) for _ in range(3)]
        assert [answer.found for answer in answers] == [0, 0, 0]

    def test_the_last_answer_is_shown_while_the_next_one_is_looked_for(self) -> None:
        kept, may_end = Kept(0.0, 60.0), threading.Event()
        calls: list[None] = []

        def find() -> int:
            calls.append(None)
            if len(calls) == 2:
                may_end.wait(SOON_S)
            return len(calls)

        def number() -> int:
            return kept.get("number", find).found

        assert number() == 1
        assert number() == 1
        may_end.set()
        wait_until(lambda: number() >= 2, SOON_S, "the second answer")

    def test_an_answer_that_is_not_fresh_is_not_shown(self) -> None:
        kept, found = Kept(0.0, 0.0), iter(range(10))
        answers = [kept.get("number", lambda: next(found)) for _ in range(3)]
        assert [answer.found for answer in answers] == [0, 1, 2]

    def test_the_page_says_what_the_command_prints_to_the_standard_error(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def find() -> None:
            say("whether a host runs is unknown", err=True)

        answer = Kept(60.0, 60.0).get("hosts", find)
        assert answer.warnings == ["whether a host runs is unknown"]
        assert capsys.readouterr().err == ""

    def test_while_kafka_is_silent_nothing_is_asked_and_what_was_fresh_then_is_shown(self) -> None:
        silent_since_ms: list[int | None] = [None]
        kept, found = Kept(0.0, 60.0, lambda: silent_since_ms[0]), iter(range(10))
        first = kept.get("number", lambda: next(found))
        silent_since_ms[0] = first.at_ms + 1_000
        assert [kept.get("number", lambda: next(found)) for _ in range(3)] == [first] * 3
        with pytest.raises(UserError, match=_NOT_LOOKED_AT):
            kept.get("another", lambda: next(found))
        silent_since_ms[0] = first.at_ms + 3_600_000
        with pytest.raises(UserError, match=_NOT_LOOKED_AT):
            kept.get("number", lambda: next(found))
        silent_since_ms[0] = None
        wait_until(lambda: kept.get("number", lambda: next(found)).found, SOON_S, "an answer")

    def test_the_last_answer_is_known_without_a_question(self) -> None:
        kept = Kept(60.0, 60.0)
        assert kept.last("hosts") is None
        kept.get("hosts", lambda: 7)
        last = kept.last("hosts")
        assert last is not None
        assert last.found == 7

    @pytest.mark.parametrize("fresh_s", [0.0, 60.0])
    def test_while_kafka_is_silent_the_last_answer_is_the_one_that_a_page_shows(self, fresh_s: float) -> None:
        silent_since_ms: list[int | None] = [None]
        kept = Kept(60.0, fresh_s, lambda: silent_since_ms[0])
        shown = kept.get("faults", lambda: 7)
        silent_since_ms[0] = shown.at_ms
        assert kept.get("faults", lambda: 8) == kept.last("faults") == shown
        silent_since_ms[0] = shown.at_ms + 3_600_000
        assert kept.last("faults") is None

    def test_what_was_asked_before_a_silence_does_not_replace_what_was_known(self) -> None:
        silent_since_ms: list[int | None] = [None]
        kept, may_end = Kept(0.0, 60.0, lambda: silent_since_ms[0]), threading.Event()
        threads: list[threading.Thread] = []

        def find() -> str:
            threads.append(threading.current_thread())
            if len(threads) == 1:
                return "found"
            may_end.wait(SOON_S)
            raise UserError("Kafka cannot be reached")

        first = kept.get("rows", find)
        assert kept.get("rows", find) == first
        wait_until(lambda: len(threads) == 2, SOON_S, "the second question")
        silent_since_ms[0] = wall_clock.now_ms()
        may_end.set()
        threads[1].join(SOON_S)
        assert kept.get("rows", find) == first

    @pytest.mark.parametrize("is_silent", [False, True])
    def test_what_was_known_before_an_error_is_shown_while_it_is_fresh(self, is_silent: bool) -> None:
        silent_since_ms: list[int | None] = [None]
        kept, failed = Kept(0.0, 60.0, lambda: silent_since_ms[0]), threading.Event()
        outcomes = iter(["found"])

        def find() -> str:
            found = next(outcomes, None)
            if found is None:
                failed.set()
                raise UserError("Kafka cannot be reached")
            return found

        first = kept.get("rows", find)
        assert kept.get("rows", find) == first
        assert failed.wait(SOON_S)
        silent_since_ms[0] = wall_clock.now_ms() if is_silent else None
        assert kept.get("rows", find) == first

    def test_a_page_that_has_waited_learns_that_nothing_is_known_yet(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kept, may_end = Kept(60.0, 60.0), threading.Event()
        with monkeypatch.context() as impatient:
            impatient.setitem(Kept.get.__globals__, "_LONGEST_S", 0.0)
            with pytest.raises(NotYetError):
                kept.get("rows", lambda: may_end.wait(SOON_S))
        may_end.set()
        assert kept.get("rows", lambda: False).found

    def test_each_answer_has_its_own_advice(self) -> None:
        hints.begin("dashboard", None)
        try:
            kept = Kept(60.0, 60.0)
            answers = [kept.get(name, lambda: hints.is_new("Start one")) for name in ("programs", "health")]
            assert [answer.found for answer in answers] == [True, True]
        finally:
            hints.forget()

    def test_an_error_is_raised_and_looked_at_again(self) -> None:
        kept, outcomes = Kept(0.0, 60.0), iter([UserError("Kafka cannot be reached"), None, None, None, None])

        def find() -> str:
            if (error := next(outcomes)) is not None:
                raise error
            return "found"

        with pytest.raises(UserError, match="cannot be reached"):
            kept.get("rows", find)

        def is_found() -> bool:
            try:
                return kept.get("rows", lambda: "found").found == "found"
            except UserError:
                return False

        wait_until(is_found, SOON_S, "an answer after the error")


def test_after_a_question_without_an_answer_the_next_one_follows_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    class Deaf:
        def list_topics(self, *_: object, **__: object) -> None:
            asked.append(time.monotonic())
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

        def close(self) -> None:
            pass

    monkeypatch.setattr(Cluster, "consumer", lambda *_: Deaf())
    with contact.Contact(Cluster("127.0.0.1:1", {}), Topics()):
        wait_until(lambda: len(asked) > 4, SOON_S, "some questions")
    assert asked[4] - asked[0] < 4 * contact._ASK_EVERY_S


def test_the_end_of_a_run_on_this_machine_is_noticed_with_the_next_answer_of_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[None] = []
    is_over = threading.Event()
    consumer = SimpleNamespace(list_topics=lambda *_, **__: None, close=lambda: None)

    def found(*_: object) -> batches.Batches:
        looks.append(None)
        return batches.Batches("monitor", problem="no monitor runs" if is_over.is_set() else "")

    monkeypatch.setattr(Cluster, "consumer", lambda *_: consumer)
    monkeypatch.setattr(contact, "batches", found)
    monkeypatch.setattr(contact, "_ASK_EVERY_S", 0.0)
    monkeypatch.setattr(contact, "_LOOK_EVERY_S", float("inf"))
    note = runs.Run(
        process=runs.of_this_process(),
        namespace=runs.namespace(),
        servers="127.0.0.1:1",
        prefix="",
        programs=["monitor"],
        state_directory="/",
    )
    with ExitStack() as run:
        run.enter_context(runs.noted(note))
        with contact.Contact(Cluster("127.0.0.1:1", {}), Topics()) as watched:
            wait_until(lambda: looks, SOON_S, "the first look")
            is_over.set()
            run.close()
            wait_until(lambda: watched.monitor == "no monitor runs", SOON_S, "the sentence about the monitor")


def test_commands_in_sentences_are_code_and_names_stay_text() -> None:
    assert sentence("Start one: `a <b>`.") == Markup("Start one: <code>a &lt;b&gt;</code>.")
    assert str(sentence(f"one ` and {NAME}")) == f"one ` and {ESCAPED}"


@pytest.mark.parametrize(
    ("hosts", "is_needed", "state"),
    [
        (["box"], True, "runs"),
        ([], True, "does not run"),
        ([], False, "not needed"),
        (None, True, "unknown"),
    ],
)
def test_the_state_of_a_program(hosts: list[str] | None, is_needed: bool, state: str) -> None:
    assert Program("host", "hosts", hosts, None, is_needed).state == state


@pytest.mark.parametrize(
    ("servers", "address", "is_named"),
    [
        ("127.0.0.1:9092", "127.0.0.1", True),
        ("localhost:9092", "0:0:0:0:0:0:0:1", True),
        ("kafka-1:9092,kafka-2:9092", "127.0.0.1", False),
        ("127.0.0.1:9092", "10.0.0.7", False),
    ],
)
def test_this_machine_has_one_name_on_the_page(servers: str, address: str, is_named: bool) -> None:
    """Programs write their machine's name, and Kafka knows its address."""
    shown = program_pages._machine(Cluster(servers), address)
    assert shown == (socket.gethostname() if is_named else address)


def test_an_unknown_program_is_shown_as_unknown_with_the_reason() -> None:
    shown = html("programs.html", kinds=[Program("host", "hosts", None, None, True, f"no right on {NAME}")], rows=[])
    assert '<span class="unknown">unknown</span>' in shown
    assert f"No right on {ESCAPED}" in shown


class TestActivators:
    """The table of what the activators hold back."""

    def shown(self, told: Told) -> str:
        return html("activators.html", rows=[told], found=1, search="")

    def test_what_is_held_back_is_shown_with_the_reason(self) -> None:
        row = activator_row(held=HeldRow("id", 7, "2 of 2 programs run"))
        assert "held: #7: 2 of 2 programs run" in self.shown(Told(row, True, 0))

    def test_the_processes_that_run_are_shown(self) -> None:
        row = activator_row(programs=[ActivatorProgram(4711, TIME), ActivatorProgram(4712, TIME)])
        found = [re.findall(r"process (\d+)", self.shown(Told(row, is_running, 0))) for is_running in (True, False)]
        assert found == [["4711", "4712"], []]

    def test_a_queue_without_a_problem_has_nothing_held_back(self) -> None:
        assert "nothing" in self.shown(Told(activator_row(), True, 0))

    def test_of_an_activator_that_does_not_run_the_programs_are_unknown(self) -> None:
        shown = self.shown(Told(activator_row(), False, 0, "Start it: `queue-activation activator`"))
        assert "does not run" in shown
        assert "<code>queue-activation activator</code>" in shown
        assert 'class="unknown"' in shown

    def test_names_and_lines_of_logs_are_text(self) -> None:
        exited = ExitRow(TIME, f"exit code 1 {NAME}")
        shown = self.shown(Told(activator_row(queue=NAME, last_exit=exited, log_file="a.log", last_line=NAME), True, 0))
        assert "<script>" not in shown
        assert shown.count(ESCAPED) >= 3

    def test_a_line_of_a_log_that_several_queues_share_is_not_shown_as_that_of_one(self) -> None:
        def told(queue: str, **fields: Any) -> Told:
            exited = ExitRow(TIME, "exit code 1")
            fields |= {"last_exit": exited, "last_line": "the last line", "fatal_exit_code": 1}
            return Told(activator_row(queue=queue, **fields), True, 0)

        one, other = told("invoices", log_file="all.log"), told("orders", log_file="all.log")
        alone, elsewhere = told("parcels", log_file="own.log"), told("orders", log_file="own.log", host="other")
        found = [self.shown(each) for each in program_pages.without_shared_lines([one, other, alone, elsewhere])]
        assert ["the last line" in each for each in found] == [False, False, True, True]
        assert all("log all.log" in each for each in found[:2])


def test_tasks_are_shown_with_their_interval_and_failures() -> None:
    task = TaskRow("CLOSE_IDLE_CONNECTIONS", 5, "closes what is idle", 3, 1, 0, TIME, 0, 1, f"OSError {NAME}")
    row = ProgramRow("transport", "box:4711", 5_000, TIME, [task], [])
    shown = html("maintenance.html", programs=[row])
    for text in ("25 s", "closes what is idle", f"last failed: OSError {ESCAPED}", "transport box:4711"):
        assert text in shown, text


def test_a_connection_is_shown_with_its_last_error() -> None:
    connection = ConnectionRow("tcp://south:9092", "CLOSED", TIME, 12_034, 9, 0, 2, 1_250, 0, f"refused {NAME}", TIME)
    row = ProgramRow("transport", "box:4711", 5_000, TIME, [], [connection])
    shown = html("connections.html", found=[(row, connection)], is_running=True)
    for text in ("tcp://south:9092", "12,034", "2 (1,250 B)", ">was suppressed until", f"refused {ESCAPED}"):
        assert text in shown, text


@pytest.mark.parametrize("is_running", [False, True])
def test_without_connections_the_page_says_what_needs_them_and_names_the_guide(is_running: bool) -> None:
    shown = html("connections.html", found=[], is_running=is_running)
    assert "only conversations with services" in shown
    assert ("No transport runs, or none has the right Write on the topic service-maintenance:" in shown) != is_running
    assert "docs/guide/instances.md" in shown


def test_without_programs_the_page_of_periodic_tasks_names_their_document() -> None:
    shown = html("maintenance.html", programs=[])
    assert "docs/periodic-tasks.md" in shown
    assert "host runs, or none has the right Write on the topic service-maintenance" in shown


def test_dead_letters_show_what_is_missing_as_unknown() -> None:
    letter = {
        "reason": f"invalid JSON {NAME}",
        "topic": None,
        "partition": None,
        "offset": None,
        "time": None,
        "key": NAME,
        "value": NAME,
        "envelope": "",
    }
    shown = html("dead_letters.html", letters=[letter], of="", kinds=program_pages._LETTERS_OF, most=100)
    assert "<script>" not in shown
    assert shown.count("unknown</") >= 2


def test_a_page_without_dead_letters_names_who_refused_none() -> None:
    for of, who in (("", "the monitor"), ("services", "the router and the transports")):
        shown = html("dead_letters.html", letters=[], of=of, kinds=program_pages._LETTERS_OF, most=100)
        assert f"Kafka holds no record that {who} refused" in shown


def test_an_activator_that_has_not_written_for_long_is_no_silent_one() -> None:
    kinds = [Program(name, name, ["box"], TIME, True) for name in ("activator", "host")]
    shown = [html("programs.html", kinds=[kind], rows=[]) for kind in kinds]
    assert ["only when something changes" in each for each in shown] == [True, False]


@pytest.mark.parametrize(
    ("name", "hosts", "said", "why"),
    [
        ("observer", ["box"], "not known", "it reports only groups with members or messages"),
        ("activator", ["box"], "not known", "it writes only when something changes"),
        ("host", ["box"], "none", ""),
        ("observer", [], "none", ""),
        ("activator", [], "none", ""),
    ],
)
def test_a_program_that_runs_but_writes_no_regular_sign_of_life_is_not_shown_without_one(
    name: str, hosts: list[str], said: str, why: str
) -> None:
    shown = html("programs.html", kinds=[Program(name, name, hosts, None, False)], rows=[])
    cell = shown.partition('data-label="Last sign">')[2].partition("</td>")[0]
    assert re.findall(">([^<>]+)<", cell) == [text for text in (said, why) if text]


class TestBacklogs:
    """The records that wait for a program."""

    @pytest.mark.parametrize(
        ("done", "waiting"),
        [
            ({0: 10, 1: 7}, 0 + 3),
            ({0: 10}, 0 + 6),  # partition 1 has records from offset 4 on
            ({0: 2, 1: 0}, 10 - 2 + 6),
            ({0: 12, 1: 10}, 0),  # the end was asked for before
            ({}, None),
        ],
    )
    def test_it_is_what_lies_between_the_place_and_the_end(self, done: dict[int, int], waiting: int | None) -> None:
        assert backlogs.waiting(done, [0, 4], [10, 10]) == waiting

    def test_nothing_waits_in_an_empty_topic_although_there_is_no_place(self) -> None:
        assert backlogs.waiting({}, [3, 0], [3, 0]) == 0

    def test_one_that_is_not_known_is_no_zero(self) -> None:
        shown = html("signs.html", batches=[], backlogs=[backlogs.Backlog("host", "queue-tasks", None)])
        assert 'class="unknown"' in shown
        assert ">0<" not in shown


class TestBatches:
    """The signs of life of monitor and router."""

    SIGN = SignOfLife(1_000_000, 10_000)

    def test_one_in_time_has_no_problem(self) -> None:
        found = batches.of_sign("monitor", self.SIGN, 1_005_000, None)
        assert (found.committed, found.every, found.problem) == ("1970-01-01T00:16:40.000Z", "10 s", "")
        # It may be older than usual and in time, so the page says when it is late.
        late = batches.of_sign("monitor", self.SIGN, 1_030_000, None)
        assert (late.late_after, late.problem) == ("30 s", "")
        shown = html("signs.html", batches=[late], backlogs=[])
        assert shown.index("Usually every") < shown.index("Late after") < shown.index("10 s") < shown.index("30 s")
        assert batches.of_sign("monitor", self.SIGN, 1_030_001, None).problem

    def test_while_kafka_is_silent_nothing_is_said_of_the_present(self) -> None:
        news = News(silent_since="2026-01-02T03:04:05.000Z")
        found = batches.of_sign("monitor", self.SIGN, 1_005_000, None)
        assert ">was in time<" in html("signs.html", news, batches=[found], backlogs=[])
        answer = Kept(60.0, 60.0).get("faults", list[Fault])
        assert "No faults were found before Kafka fell silent." in html("faults.html", news, answer=answer)
        answer = Kept(60.0, 60.0).get("faults", lambda: [Fault("kind", "where", "problem")])
        assert "1 fault was found before Kafka fell silent." in html("faults.html", news, answer=answer)

    def test_one_that_is_late_is_told_with_the_sentence_of_the_commands(self) -> None:
        found = batches.of_sign("monitor", self.SIGN, 1_100_000, None)
        assert found.problem.startswith("the monitor's last sign of life is 100 s old")

    def test_one_that_does_not_run_is_not_called_late(self) -> None:
        assert batches.of_sign("monitor", self.SIGN, 1_100_000, "no monitor runs").problem == "no monitor runs"

    def test_without_a_sign_nothing_is_known(self) -> None:
        found = batches.of_sign("router", None, 0, None)
        assert found.committed is None
        assert "no router has left a sign of life" in found.problem
        assert "No router has left a sign of life" in html("signs.html", batches=[found], backlogs=[])
        assert 'class="unknown"' in html("signs.html", batches=[found], backlogs=[])

    def test_one_that_runs_and_has_no_sign_yet_was_just_started_unless_it_stays_so(self) -> None:
        found = batches.of_sign("monitor", None, 0, None)
        assert found.told(0.0) == ("The monitor runs, and has not written anything yet", True)
        assert found.told(3_600.0) == (found.problem, False)
        absent = batches.of_sign("monitor", None, 0, "no monitor runs")
        assert absent.told(0.0) == ("no monitor runs", False)
        assert batches.of_sign("monitor", self.SIGN, 1_005_000, None).told(0.0) == ("", False)

    def test_one_whose_start_takes_long_is_told_until_the_batches_before_it_are_late(self) -> None:
        found = replace(batches.of_sign("monitor", self.SIGN, 1_005_000, None), beginning="`run` is starting")
        assert found.told(3_600.0) == ("`run` is starting", True)
        assert replace(found, problem="late").told(3_600.0) == ("late", False)

    @pytest.mark.parametrize(
        ("found", "is_current"),
        [
            (batches.Batches("monitor"), True),
            (batches.Batches("monitor", problem="late"), False),
            (batches.Batches("monitor", beginning="`run` is starting"), False),
            (batches.Batches("monitor", problem="no right", is_unknown=True), True),
        ],
    )
    def test_what_is_not_known_to_be_old_counts_as_current(self, found: batches.Batches, is_current: bool) -> None:
        assert found.is_current == is_current

    def test_a_user_who_may_not_look_does_not_know_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise UserError("no right")

        monkeypatch.setattr(batches.presence, "last_sign", refuse)
        found = batches.batches(Cluster("127.0.0.1:1"), Topics(), "monitor")
        assert (found.problem, found.is_current) == ("no right", True)


@pytest.mark.parametrize("slow", ["_find_faults", "_find_signs"])
def test_the_page_of_faults_is_answered_while_they_are_still_searched(
    slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    found: dict[str, Any] = {"_find_faults": [], "_find_signs": ([], [])}

    def find(name: str) -> Any:
        assert name != slow or may_end.wait(SOON_S)
        return found[name]

    for name in found:
        monkeypatch.setattr(HealthPage, name, lambda _, name=name: find(name))
    monkeypatch.setattr(health_page, "_LONGEST_S", 0.0)
    contact = SimpleNamespace(silent_since_ms=lambda: None)
    page = HealthPage(cast("LiveView", SimpleNamespace(contact=contact)))
    with pytest.raises(NotYetError):
        page.health(QueryParams())
    may_end.set()

    def is_found() -> bool:
        try:
            return [part.name for part in page.health(QueryParams()).parts] == ["faults", "warnings", "signs"]
        except NotYetError:
            return False

    wait_until(is_found, SOON_S, "the faults")


def test_the_navigation_of_the_page_of_faults_has_the_number_that_the_page_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HealthPage, "_find_faults", lambda _: [Fault("kind", "where", "problem")] * 3)
    monkeypatch.setattr(HealthPage, "_find_signs", lambda _: ([], []))
    contact = SimpleNamespace(silent_since_ms=lambda: None, monitor="no monitor runs", is_normal=False)
    page = HealthPage(cast("LiveView", SimpleNamespace(contact=contact)))
    assert page.fault_count() == (1, "Only the monitor was looked at.")
    found: list[Page] = []

    def is_found() -> bool:
        with suppress(NotYetError):
            found.append(page.health(QueryParams()))
        return bool(found)

    wait_until(is_found, SOON_S, "the faults")
    assert found[0].faults == 3
    number, of = page.fault_count()
    assert number == 3
    assert re.fullmatch(r"As of \S+ \S+ UTC\.", of)


def test_faults_are_sentences_with_their_commands() -> None:
    kept = Kept(60.0, 60.0)
    answer = kept.get("faults", lambda: [Fault("no topic", f"service {NAME}", "Create it: `queue-activation`")])
    shown = html("faults.html", answer=answer)
    assert "1 fault was found" in shown
    assert f"<b>no topic</b>: service {ESCAPED}: Create it: <code>queue-activation</code>" in shown


def test_that_something_could_not_be_looked_at_is_said_beside_that_there_are_no_faults() -> None:
    def find() -> list[Fault]:
        say("not looked at: denied", err=True)
        return []

    shown = html("faults.html", answer=Kept(60.0, 60.0).get("faults", find))
    assert "No faults were found. Not all could be looked at." in shown


def test_instants_in_sentences_are_in_the_zone_of_the_page() -> None:
    today = iso_time(wall_clock.now_ms())[:10]
    shown = str(
        sentence(f"No reader is started before 14:03:12 UTC, or 2026-01-31 09:00:00 UTC: `x 10:00:00 UTC` {NAME}")
    )
    assert f'<time datetime="{today}T14:03:12Z" title="{today} 14:03:12 UTC">14:03:12 UTC</time>' in shown
    assert '<time datetime="2026-01-31T09:00:00Z" title="2026-01-31 09:00:00 UTC">' in shown
    assert "<code>x 10:00:00 UTC</code>" in shown
    assert shown.endswith(ESCAPED)
