"""The commands for conversations without Kafka: which endpoints they select, what they count, say and send."""

import json
import re
from typing import Any

import msgspec
import pytest
import typer
from confluent_kafka import Message
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from streaming.cli import options, presence
from streaming.cli.conversations import commands, endings, lists, unknown, views
from streaming.cli.conversations.endings import Ending, Outcome, behind_held, not_allowed
from streaming.cli.conversations.show import facts
from streaming.cli.conversations.views import Selection, Sent, Viewed, idle_before
from streaming.cli.main import app
from streaming.cli.routing.explained_routes import Origin, Result, one_case
from streaming.core.conversations.conversation import SPOKEN_STEP_MS
from streaming.core.conversations.endpoint_states import State
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Instance
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.explanation import Explanation
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import durations
from streaming.wire.envelope import decode_envelope
from streaming.wire.service_progress import KEY, ProgressRecord, encode_progress
from streaming.wire.service_views import decode_endpoint
from streaming.wire.topics import Topics
from tests.support.conversation_scene import DEFINITIONS
from tests.support.shell import run_command
from tests.support.viewed import endpoint, transmission

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def text_of(view: RenderableType) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(view)
    return captured.get()


@pytest.mark.parametrize(
    ("selection", "is_selected"),
    [
        (Selection(), True),
        (Selection("c"), True),
        (Selection("d"), False),
        (Selection(is_initiator=True), True),
        (Selection(is_initiator=False), False),
        (Selection(service="Orders"), True),
        (Selection(service="orders"), False),
        (Selection(states={"CO", "ER"}), True),
        (Selection(states={"ER"}), False),
        (Selection(far_service="Stock"), True),
        (Selection(far_service="Orders"), False),
        (Selection("c", True, "Orders", "Stock", {"CO"}), True),
        (Selection("c", True, "Orders", "Stock", {"CD"}), False),
    ],
)
def test_all_filters_must_allow_an_endpoint(selection: Selection, is_selected: bool) -> None:
    assert selection.has(endpoint()) is is_selected


def idle(row_ms: int, **fields: Any) -> bool:
    """Returns whether an endpoint whose last statement is shown for this instant counts as idle for a day."""
    return Selection(idle_before=idle_before(NOW_MS, DAY_MS)).has(endpoint(last_statement=iso_time(row_ms), **fields))


def test_an_endpoint_is_idle_only_if_no_statement_can_have_come_since() -> None:
    exact = NOW_MS - DAY_MS - SPOKEN_STEP_MS
    assert idle(exact)
    # A program may have spoken up to ten minutes after the instant that the view shows.
    assert not idle(exact + 1)
    assert not idle(NOW_MS)


def test_without_a_last_statement_the_time_of_the_row_counts() -> None:
    selection = Selection(idle_before=idle_before(NOW_MS, DAY_MS))
    assert selection.has(endpoint(last_statement=None, update_time=iso_time(NOW_MS - 2 * DAY_MS)))
    assert not selection.has(endpoint(last_statement=None, update_time=iso_time(NOW_MS)))


def test_a_row_is_printed_with_the_fields_of_newer_routers() -> None:
    value = json.dumps({"conversation_id": "c", "newer": 1}).encode()
    viewed = Viewed({"c/initiator": endpoint()}, {"c/initiator": value}, [("c/initiator", transmission(), {})])
    assert viewed.fields("c/initiator") == {"conversation_id": "c", "newer": 1, "held_messages": 1}


def test_records_that_are_no_rows_are_passed_over_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    values = {"bad": b'{"state": 1}', "good": msgspec.json.encode(endpoint()), "worse": b"\xff"}
    assert [*views._decoded(values, decode_endpoint)] == [("good", endpoint())]
    assert [record.getMessage()[:28] for record in caplog.records] == [
        "the record with key 'bad' is",
        "the record with key 'worse' ",
    ]


def test_endpoints_are_counted_by_state_and_idle_time() -> None:
    ages = {"CO": [0, 2, 8], "CD": [0], "DI": [40, 40]}
    rows = [
        endpoint(state=state, last_statement=iso_time(NOW_MS - days * DAY_MS))
        for state, found in ages.items()
        for days in found
    ]
    found = lists.counts(rows, NOW_MS)
    assert [tuple(row.values()) for row in found] == [
        ("CO", 3, 2, 2, 1, 0),
        ("DI", 2, 2, 2, 2, 2),
        ("CD", 1, 0, 0, 0, 0),
    ]
    lines = [line.split() for line in text_of(lists.counts_view(found)).splitlines()]
    assert ["all", "6", "4", "4", "3", "2"] in lines


def test_views_say_how_exact_the_last_statement_is() -> None:
    row = endpoint(last_statement="2026-01-31T12:00:00.000Z")
    viewed = Viewed({"c/initiator": row}, {"c/initiator": b"{}"}, [])
    shown = text_of(facts("c", viewed, [], source()).view())
    assert "last statement 2026-01-31 12:00:00 UTC, or up to 10 min later" in shown
    assert "idle since may be up to 10 min too early" in text_of(lists.list_view({"c": row}, {}, 1))
    counted = text_of(lists.counts_view(lists.counts([row], NOW_MS)))
    assert "idle times may be up to 10 min too long" in counted


def test_a_last_statement_that_is_not_known_is_called_so() -> None:
    viewed = Viewed({"c/initiator": endpoint(last_statement=None)}, {"c/initiator": b"{}"}, [])
    assert "last statement unknown" in text_of(facts("c", viewed, [], source()).view())


def test_a_state_of_a_newer_router_is_counted() -> None:
    assert [row["state"] for row in lists.counts([endpoint(state="XX"), endpoint()], NOW_MS)] == ["CO", "XX"]


def test_names_with_brackets_and_escapes_are_shown_as_they_are() -> None:
    shown = text_of(lists.list_view({"c/initiator": endpoint(service="[red]\x1b[2J")}, {}, 1))
    assert "[red]\\x1b[2J" in shown


def test_a_short_list_says_how_many_there_are() -> None:
    assert "1 of 2 endpoints; --limit shows more" in text_of(lists.list_view({"c/initiator": endpoint()}, {}, 2))
    shown = text_of(lists.transmissions_view([transmission(), transmission(to_service="//second")], 1))
    assert "1 of 2 rows" in shown
    assert "//second" not in shown
    assert "2 services: 2 messages" in shown


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (transmission(), "within 10 s"),
        (transmission(next_try="2026-01-31T12:00:25.000Z"), "2026-01-31 12:00:25"),
        (transmission(held_since=None, next_try="2026-01-31T12:00:04.000Z"), "2026-01-31 12:00:04"),
    ],
)
def test_the_next_try_is_shown_of_everything_that_waits(row: Any, expected: str) -> None:
    assert lists.next_try(row) == expected


@pytest.mark.parametrize("next_try", [None, "2026-01-31T12:00:25.000Z"])
def test_without_a_router_no_next_try_is_promised(next_try: str | None) -> None:
    row = transmission(next_try=next_try)
    facts_of_it = facts("c", Viewed({}, {}, []), [(row, {})], source())
    summary = lists.transmissions_view([row], 100, is_routed=False)
    for view in (summary, facts_of_it.view(is_routed=False)):
        shown = " ".join(text_of(view).split())
        assert "ext try once a router works" in shown
        assert not re.search("within 10 s|12:00:25", shown)
    assert [each.when for each in lists.reasons([row], is_routed=False)] == ["once a router works"]


def test_what_waits_is_summed_up_by_reason() -> None:
    rows = [
        transmission(messages=2, held_since="2026-01-31T12:00:00.000Z"),
        transmission(messages=3, held_since="2026-01-30T12:00:00.000Z", number=None, reason="topic stock is missing"),
        transmission(messages=4, held_since="2026-01-31T11:00:00.000Z", to_service="Other"),
    ]
    first, *second = text_of(lists.transmissions_view(rows, 100)).partition("Stock: ")[2].splitlines()
    assert first == "3 messages since 2026-01-30 12:00:00 UTC. topic stock is missing. Next try within 10 s"
    assert " ".join(" ".join(second).split()) == (
        "2 services: 6 messages since 2026-01-31 11:00:00 UTC. 9796: the service is not here. "
        "`queue-activation service create SERVICE --database DATABASE --queue QUEUE` creates it; if the name is wrong, "
        "`queue-activation conversation end CONVERSATION --cleanup` drops what waits. Next try within 10 s"
    )


def test_what_waits_for_a_service_that_is_not_here_says_what_to_do() -> None:
    [waiting] = lists.reasons([transmission(to_service="Other")])
    assert "`queue-activation service create SERVICE --database DATABASE --queue QUEUE` creates it" in waiting.why
    [waiting] = lists.reasons([transmission(number=None, reason="topic stock is missing")])
    assert waiting.why == "topic stock is missing"


def test_the_next_try_of_a_reason_is_the_first_one_also_across_midnight() -> None:
    tries = ("2026-02-01T00:00:20.000Z", "2026-01-31T23:59:58.000Z")
    rows = [transmission(next_try=at, held_since="2026-01-31T23:00:00.000Z") for at in tries]
    summary = " ".join(text_of(lists.transmissions_view(rows, 100)).split())
    assert summary.endswith("Next try 2026-01-31 23:59:58 UTC")


@pytest.mark.parametrize(
    ("kind", "held", "states"),
    [
        ("END", 1, "SO CO DI ER"),
        ("ERROR", 1, "SO CO DI ER"),
        ("CLEANUP", 0, "SO CO DI DO ER"),
        ("CLEANUP", 1, "SO CO DI DO ER CD"),
    ],
)
def test_statements_are_sent_only_where_the_state_allows_them(kind: Any, held: int, states: str) -> None:
    ending = Ending(kind)
    allowed = [name for name in [*State.__members__, "XX"] if ending.is_allowed(endpoint(state=name), held)]
    assert allowed == states.split()


def test_a_statement_is_one_of_the_endpoints_own_program() -> None:
    row = endpoint(is_initiator=False, service="Stock", database="B", far_service="Orders")
    record = Ending("ERROR", 7, "out of stock").statement(row)
    found = decode_envelope([*record.headers])
    assert (record.key, found.type, found.is_initiator) == ("c", "ERROR", False)
    assert (found.from_service, found.from_database, found.to_service) == ("Stock", "B", "Orders")
    assert (found.error_code, found.error_text) == (7, "out of stock")
    with pytest.raises(UserError, match="error_text"):
        Ending("ERROR", 7, "x" * 3_001).statement(row)


def test_the_effect_of_a_statement_is_a_state() -> None:
    done = {kind: [name for name in State.__members__ if Ending(kind).is_done(endpoint(state=name))] for kind in KINDS}
    assert done == {"END": ["DO", "CD"], "ERROR": ["DO", "CD"], "CLEANUP": ["CD"]}


KINDS: tuple[Any, ...] = ("END", "ERROR", "CLEANUP")


def test_what_cannot_be_ended_is_named() -> None:
    rows = [endpoint(state="DO"), endpoint(is_initiator=False, state="CD"), endpoint()]
    assert [*not_allowed(Ending("END"), [(row, 0) for row in rows])] == [
        "the initiator is in state DO, which does not allow END; --cleanup ends it",
        "the target is in state CD, which does not allow END",
    ]


CD = "endpoint{} in state CD: closed, nothing is sent or received any more"
DO = "endpoint{} in state DO: disconnected outbound, this side has ended and the far side has not been told yet"


@pytest.mark.parametrize(
    ("words", "states", "held", "lines"),
    [
        ((), ["DO"], 0, [f"1 {DO.format('')}; --cleanup ends it"]),
        (("--error", "1"), ["CD", "DO", "DO"], 0, [f"2 {DO.format('s')}; --cleanup ends them", f"1 {CD.format('')}"]),
        ((), ["CD", "CD"], 0, [f"2 {CD.format('s')}"]),
        ((), ["CD"], 1, [f"1 {CD.format('')}; --cleanup ends it"]),
        (("--cleanup",), ["CD"], 0, [f"1 {CD.format('')}"]),
        ((), ["new"], 0, ["1 endpoint in state new"]),
        ((), [], 0, []),
    ],
)
def test_if_filters_find_nothing_to_end_the_states_and_what_helps_are_told(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], states: list[str], held: int, lines: list[str]
) -> None:
    rows = {f"{number}/initiator": endpoint(state=state) for number, state in enumerate(states)}
    transmissions: list[Any] = [(key, transmission(), {}) for key in rows if held]
    monkeypatch.setattr(views, "read_endpoints", lambda *_: Viewed(rows, dict.fromkeys(rows, b"{}"), transmissions))
    monkeypatch.setattr(unknown, "warn", lambda *_: False)
    assert run_command("conversation", "end", "--service", "Orders", *words).splitlines() == [
        "no endpoint to end",
        *lines,
    ]


def source() -> Origin:
    """Returns the definitions of the conversations' scene, of which no service is Later."""

    def load() -> Definitions:
        definitions = Definitions.of_new_instance()
        for command in DEFINITIONS:
            command.apply(definitions, 0)
        return definitions

    return Origin(load, Instance(frozenset()))


def test_a_conversation_is_shown_with_the_decision_about_what_it_holds() -> None:
    row = endpoint(database="A", far_service="Later", dialog_timer="2026-02-01T00:00:00.000Z")
    held = transmission(from_database="A", to_service="Later", next_try="2026-01-31T12:00:25.000Z")
    viewed = Viewed({"c/initiator": row}, {"c/initiator": b"{}"}, [])
    found = facts("c", viewed, [(held, {"messages": 1})], source())
    shown = text_of(found.view())
    for text in (
        "CO, service Orders of database A, broker instance aaaaaaaa-0000-4000-8000-000000000000",
        "timer at 2026-02-01 00:00:00",
        "there is none yet",
        "1 message from the initiator to Later since 2026-01-31 12:00:00",
        "next try 2026-01-31 12:00:25",
        "rule 5",
    ):
        assert text in shown
    assert re.search("=> +DELAYED \\(9796\\)", shown)
    assert found.as_json()["explained"][0]["number"] == 9796


def test_a_message_on_its_way_to_another_instance_is_not_said_to_be_held_since_some_time() -> None:
    sent = transmission(held_since=None, number=None, reason="sent", next_try="2026-01-31T12:00:25.000Z")
    found = facts("c", Viewed({}, {}, []), [(sent, {})], source())
    assert "1 message from the initiator to Stock\n" in re.sub(" +\n", "\n", text_of(found.view()))
    [waiting] = lists.reasons([sent])
    assert (waiting.what, waiting.when) == ("1 message", "2026-01-31 12:00:25 UTC")
    assert waiting.why == "sent. `queue-activation connections` says whether the address can be reached"


def test_what_would_have_to_be_sent_on_names_the_option_of_the_router() -> None:
    advice = "The router sends messages on with `--message-forwarding ON`"
    held = transmission(number=9792, reason="message forwarding is off")
    [waiting] = lists.reasons([held])
    assert waiting.why == f"9792: message forwarding is off. {advice}"
    off, on = (routing.Decision(routing.Outcome.DROPPED, number=number) for number in (9792, 9796))
    case = one_case("c", "Stock", None, True, None, None)
    for decision, said in ((off, True), (on, False)):
        shown = Result(case, decision, Explanation()).as_text()
        assert (advice in shown) is said


def test_an_explanation_is_wrapped_below_its_own_begin() -> None:
    viewed = Viewed({"c/initiator": endpoint()}, {"c/initiator": b"{}"}, [])
    found = facts("c", viewed, [(transmission(to_service="Later"), {"messages": 1})], source())
    console = Console(width=60)
    with console.capture() as captured:
        console.print(found.view())
    lines = captured.get().splitlines()
    column = next(line for line in lines if line.startswith("held")).index("1 message")
    titles = {line[:column].strip() for line in lines if line.startswith("  ")}
    assert {"sender", "result", "=>", ""} <= titles
    assert all(line[column] != " " and line[column - 1] == " " for line in lines[1:])


def test_an_answer_is_explained_with_the_initiators_broker_instance() -> None:
    initiator, target = endpoint(database="A"), endpoint(is_initiator=False, service="Stock", database="B")
    viewed = Viewed({"c/initiator": initiator, "c/target": target}, {"c/initiator": b"{}", "c/target": b"{}"}, [])
    answer = transmission(is_initiator=False, from_service="Stock", from_database="B", to_service="Orders")
    [explained] = facts("c", viewed, [(answer, {})], source()).explained
    assert explained is not None
    assert explained.case.conversation.to_broker_instance == "aaaaaaaa-0000-4000-8000-000000000000"
    assert explained.decision.service is not None


def test_an_answer_to_another_instance_is_explained_with_the_broker_instance_that_it_names() -> None:
    far = "ffffffff-0000-4000-8000-000000000000"
    # Database A here has a service of that name, too.
    target = endpoint(is_initiator=False, service="Stock", database="B", far_broker_instance=far)
    viewed = Viewed({"c/target": target}, {"c/target": b"{}"}, [])
    answer = transmission(
        is_initiator=False, from_service="Stock", from_database="B", to_service="Orders", to_broker_instance=far
    )
    found = facts("c", viewed, [(answer, {})], source())
    [explained] = found.explained
    assert explained is not None
    assert explained.decision.number == 9795
    assert f"in another instance, broker instance {far}" in text_of(found.view())


def test_what_the_router_itself_sends_is_not_explained() -> None:
    found = facts("c", Viewed({}, {}, []), [(transmission(from_database=None), {})], source())
    assert found.explained == [None]
    assert "9796: the service is not here" in text_of(found.view())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["end"], "Name a conversation, or give a filter"),
        (["end", "--side", "target"], "Name a conversation, or give a filter"),
        (["end", "c", "--cleanup", "--error", "1"], "Give one of them"),
        (["end", "c", "--text", "t"], "Give its code with --error"),
        (["end", "c", "--error", "-8489"], "the code is -8489; it must be positive"),
        (["end", "c", "--error", "0"], "the code is 0; it must be positive"),
        (["list", "--counts", "--limit", "1"], "Do not give --limit with it"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words: list[str], problem: str) -> None:
    done = CliRunner().invoke(app, ["conversation", *words])
    assert isinstance(done.exception, UserError)
    assert problem in str(done.exception)


class Terminal:
    """A standard input on a terminal or not."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_agreed", [True, False])
def test_many_are_ended_only_after_a_question_on_the_terminal(monkeypatch: pytest.MonkeyPatch, is_agreed: bool) -> None:
    asked: list[str] = []

    def confirm(question: str, *, abort: bool, **_: object) -> None:
        asked.append(question)
        if abort and not is_agreed:
            raise typer.Abort

    monkeypatch.setattr(options.sys, "stdin", Terminal(is_terminal=True))
    monkeypatch.setattr(typer, "confirm", confirm)
    endpoints = {"c/initiator": endpoint(), "c/target": endpoint(is_initiator=False)}
    if is_agreed:
        commands._ask(endpoints, Ending("CLEANUP"))
    else:
        with pytest.raises(typer.Abort):
            commands._ask(endpoints, Ending("CLEANUP"))
    assert asked == ["End 2 endpoints of 1 conversation WITH CLEANUP? [y/N]:"]


def test_without_a_terminal_the_agreement_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.sys, "stdin", Terminal(is_terminal=False))
    with pytest.raises(UserError, match=r"End 1 endpoint of 1 conversation\? Add --yes"):
        commands._ask({"c/initiator": endpoint()}, Ending())


def test_no_name_of_a_program_reaches_the_terminal_raw(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome({"c\x1b]0;owned\x07/initiator": "CD"}, {"x\x1b[31m/target": "reason \x1b[5m"}, set())
    endings.report(outcome, durations.parse("30s"), None)
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "c\\x1b]0;owned\\x07/initiator: ended" in said.out


def test_a_beginning_that_only_one_conversation_has_is_enough() -> None:
    identifiers = {"abc1", "abd2", "ab"}
    assert views.the_one("abc", identifiers) == "abc1"
    assert views.the_one("ab", identifiers) == "ab", "it is one itself"
    assert views.the_one("x", identifiers) == "x", "the command says that there is none"
    assert not views.the_one("", {"only"})
    with pytest.raises(UserError, match=r"3 conversations begin with 'a', such as ab, abc1, abd2\. Give more"):
        views.the_one("a", identifiers)


def test_a_narrow_table_has_identifiers_on_one_line_that_the_commands_take() -> None:
    ids = ["0b7c4f7e-2c55-4bb6-9d3a-5d1f4a3f2e1d", "0b7c4f7e-2c99-4bb6-9d3a-5d1f4a3f2e1d", "f" * 36]
    rows = {f"{each}/initiator": endpoint(conversation_id=each) for each in ids}
    shown = {word for word in text_of(lists.list_view(rows, {}, 3, is_narrow=True)).split() if word[:2] in ("0b", "ff")}
    assert shown == {"0b7c4f7e-2c5", "0b7c4f7e-2c9", "ffffffff"}
    assert {views.the_one(each, ids) for each in shown} == {*ids}
    held = lists.transmissions_view([transmission(conversation_id=ids[0])], 10, is_narrow=True)
    assert ids[0][:8] in text_of(held)
    assert ids[0] not in text_of(held).partition("Stock: ")[0]
    assert ids[0] in text_of(lists.list_view(rows, {}, 3))


@pytest.mark.parametrize("state", list(lists.STATES))
def test_a_list_says_what_its_states_mean(state: str) -> None:
    shown = text_of(lists.list_view({"c/initiator": endpoint(state=state)}, {}, 1))
    assert [line[:4] for line in shown.splitlines() if ": " in line] == [f"{state}: "]
    assert state in State.__members__


@pytest.mark.parametrize(
    ("count", "state", "said", "listed"),
    [
        (2, "CO", "2 messages", "2"),
        (2, "DO", "1 message and the END of the conversation", "1 + END"),
        (3, "CD", "2 messages and the END of the conversation", "2 + END"),
        (1, "DO", "the END of the conversation", "END"),
        (2, None, "2 messages", None),
    ],
)
def test_the_end_of_a_conversation_is_not_called_one_of_its_messages(
    count: int, state: str | None, said: str, listed: str | None
) -> None:
    held = transmission(from_database="A", to_service="Later", messages=count)
    row = endpoint(database="A", far_service="Later", state=state or "CO")
    rows = {} if state is None else {"c/initiator": row}
    found = facts("c", Viewed(rows, dict.fromkeys(rows, b"{}"), []), [(held, {})], source())
    assert f"{said} from the initiator to Later since" in text_of(found.view())
    for key in rows:
        assert f" {listed} " in f"{text_of(lists.list_view(rows, {key: count}, 1)).splitlines()[1]} "
    assert "The END of a conversation counts as a message" in text_of(lists.transmissions_view([held], 10))


def test_an_end_that_waits_behind_held_messages_names_cleanup() -> None:
    reached, far = endpoint(far_database="B"), endpoint(is_initiator=False)
    for kind in ("END", "ERROR"):
        for rows in ([(reached, 1), (far, 0)], [(reached, 0), (far, 1)]):
            [line] = behind_held(Ending(kind), rows)
            assert line.startswith("1 message is held, and ")
            assert f"the {kind} waits" in line
            assert "`queue-activation conversation end c --cleanup` ends it, and tells nobody" in line
    [line] = behind_held(Ending(), [(reached, 1), (endpoint(conversation_id="d"), 2)])
    assert line.startswith("3 messages are held, and the END waits behind")
    assert "`queue-activation conversation end CONVERSATION --cleanup`" in line
    assert [*behind_held(Ending("CLEANUP"), [(reached, 1)])] == []
    assert [*behind_held(Ending(), [(reached, 0)])] == []


def test_an_error_does_not_wait_for_a_far_side_that_was_never_reached() -> None:
    """The row of an initiator has no far database, also if the target is in another instance."""
    never = endpoint(far_database=None)
    for rows in ([(never, 1)], [(never, 1), (endpoint(conversation_id="d", far_database="B"), 2)]):
        [line] = behind_held(Ending("ERROR"), rows)
        assert re.search("dropped unless (it was|they were) sent to another instance. If (it was not|none was), ", line)
        assert "nobody is told. Otherwise the ERROR waits" in line
    [line] = behind_held(Ending("END"), [(never, 1)])
    assert "and the END waits behind until the far side can be told" in line


@pytest.mark.parametrize("state", ["SO", "DI", "ER"])
def test_the_end_of_an_endpoint_that_is_closed_at_once_waits_for_nobody(state: str) -> None:
    row = endpoint(state=state, far_database="B")
    assert [*behind_held(Ending("END"), [(row, 2)])] == []
    assert [*behind_held(Ending("ERROR"), [(row, 2)])] == ["2 messages are held, and dropped"]


class TestWhatTheRouterHasNotRead:
    """Views of the router do not know of messages that it has not read; the commands say that there are some."""

    PROGRESS = ProgressRecord(1, 7, {"service-messages": {"0": 4, "1": 6}}, "2026-09-21T14:13:20.000Z")

    @pytest.fixture
    def kafka(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """Stands for Kafka: the ends of topics, and the records of the router's progress or why they are not told."""
        found: dict[str, Any] = {
            "ends": {"p-service-messages": [4, 6], "p-service-incoming": [0, 0]},
            "progress": [Message(key=KEY, value=encode_progress(self.PROGRESS)), Message(key=KEY, value=b"no record")],
        }

        def records(*_: object) -> list[Message]:
            if isinstance(found["progress"], UserError):
                raise found["progress"]
            return list(found["progress"])

        monkeypatch.setattr(Admin, "find_topics", lambda _, rights: dict.fromkeys(rights, 2))
        monkeypatch.setattr(Admin, "offsets", lambda _, topic, _count, _spec: found["ends"][topic])
        monkeypatch.setattr(views, "last_records", records)
        return found

    def sent(self) -> Sent:
        return views.sent(Cluster("localhost:1"), Topics("p-"))

    def test_what_was_sent_after_the_last_batch_is_unread(self, kafka: dict[str, Any]) -> None:
        assert self.sent() == Sent(is_any=True, is_unread=False)
        kafka["ends"]["p-service-messages"] = [4, 7]
        assert self.sent() == Sent(is_any=True, is_unread=True)
        kafka["ends"] = {"p-service-messages": [4, 6], "p-service-incoming": [1, 0]}
        assert self.sent() == Sent(is_any=True, is_unread=True)

    def test_before_the_first_batch_all_is_unread(self, kafka: dict[str, Any]) -> None:
        kafka["progress"] = []
        assert self.sent() == Sent(is_any=True, is_unread=True)
        kafka["ends"] = {topic: [0, 0] for topic in kafka["ends"]}
        assert self.sent() == Sent(is_any=False, is_unread=False)

    def test_without_the_right_it_is_not_known(self, kafka: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        kafka["ends"]["p-service-messages"] = [9, 9]
        kafka["progress"] = AccessDeniedError("no right")
        assert self.sent() == Sent(is_any=True, is_unread=False)

        def refuse(*_: object) -> None:
            raise AccessDeniedError("no right")

        monkeypatch.setattr(Admin, "find_topics", refuse)
        assert self.sent() == Sent(is_any=True, is_unread=False)

    @pytest.mark.parametrize("is_held", [True, False])
    @pytest.mark.parametrize("is_unread", [True, False])
    @pytest.mark.parametrize("words", [["transmissions"], ["conversation", "list"]])
    def test_the_commands_say_so(
        self, kafka: dict[str, Any], monkeypatch: pytest.MonkeyPatch, words: list[str], is_unread: bool, is_held: bool
    ) -> None:
        if is_unread:
            kafka["ends"]["p-service-messages"] = [5, 6]
        rows = [("key", transmission(), {"one": 1})] if is_held else []
        endpoints = {"key": endpoint()} if is_held else {}
        monkeypatch.setattr(views, "read_transmissions", lambda *_: rows)
        monkeypatch.setattr(views, "read_endpoints", lambda *_: Viewed(endpoints, {"key": b"{}"}, rows))
        monkeypatch.setattr(presence, "introduce", lambda *_, **__: presence.NOBODY_MISSING)
        said = run_command(*words, "--topic-prefix", "p-")
        assert ("Messages wait for the router: they were sent after its last batch" in said) == is_unread
        assert "nothing waits" not in said or not is_unread, "something does"
        assert "nothing has been sent" not in said
        shown = run_command(*words, "--topic-prefix", "p-", "--json")
        assert "Messages wait" not in shown
        assert len(shown.splitlines()) == is_held
