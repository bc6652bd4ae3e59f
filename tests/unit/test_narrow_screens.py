"""Each view for people on a screen of 80 columns, with long names: no identifier is broken over two lines."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType
from rich.text import Text

import streaming
from streaming.cli import maintenance, monitors_view, tables
from streaming.cli.activators import Told
from streaming.cli.conversations import lists
from streaming.cli.conversations.show import ConversationFacts
from streaming.cli.queue_facts import QueueFacts
from streaming.cli.queue_show import show as queue_view
from streaming.cli.routing import databases
from streaming.core.activation.definition import ActivationClause, QueueDefinition
from streaming.core.activation.sessions import Lease, Session
from streaming.core.routing.definitions import Definitions
from streaming.daemons.activator import status
from streaming.system.screens import FILE_WIDTH, Column, Fields, RecordTable, cell
from streaming.system.wrapped_text import wrap
from streaming.wire.activator_rows import ActivatorRow, DecisionRow, ExitRow, HeldRow
from streaming.wire.notifications import Activation
from streaming.wire.service_commands import CreateDatabase, CreateRoute, CreateService
from streaming.wire.service_definitions import rows_of
from streaming.wire.service_maintenance import ConnectionRow, ProgramRow, TaskRow
from tests.support.viewed import TIME, endpoint, transmission

NOW_MS = 1_790_000_000_000
QUEUES = ["customer-orders.europe.west-3", "注文の支払いを待つ列", "invoices"]
SERVICES = ["//adventure-works.com/warehouse/reserve-stock", "//adventure-works.com/shop/order-taken"]
HOST = "reader-host-017.eu-west-3.compute.example.com"
PATH = "/srv/queue-activation/production/readers/customer-orders.europe.west-3.log"
IDS = [f"{number:08x}-0000-4000-8000-0123456789ab" for number in (0xAFFE, 0xB0B0, 0xC0DE)]
ADDRESSES = ["tcp://broker-1.warehouse.example.com:9092/stock", "tcp://broker-2.warehouse.example.com:9092/stock"]
TASK = "FORGET_CLOSED_CONVERSATIONS"
PROCEDURE = "read_customer_orders_of_europe"


def monitor_rows() -> list[dict[str, Any]]:
    common = {
        "unread_messages": 12_345, "tasks_waiting": 0, "tasks_running": 0, "max_queue_readers": 2,
        "is_procedure_failed": False, "is_receive_enabled": True, "activation_sequence": 70_123,
        "last_activated_time": TIME, "last_empty_rowset_time": None, "next_check_time": None, "task_failures": 3,
        "failing_procedure": PROCEDURE, "task_failure": f"exit code 1, see {PATH}", "failing_since": TIME,
    }  # fmt: skip
    states = ("RECEIVES_OCCURRING", "NOTIFIED", "INACTIVE")
    return [{"queue": name, "state": state, **common} for name, state in zip(QUEUES, states, strict=True)]


def task_rows() -> list[dict[str, Any]]:
    return [
        {
            "queue": name, "procedure_name": PROCEDURE, "sequence": 7, "start_time": TIME, "host": HOST,
            "is_confirmed": True, "task_id": identifier,
        }
        for name, identifier in zip(QUEUES, IDS, strict=True)
    ]  # fmt: skip


def definitions() -> dict[str, list[dict[str, Any]]]:
    found = Definitions.of_new_instance()
    for number, name in enumerate(("warehouse-of-europe", "shop")):
        CreateDatabase(database=name, broker_instance=IDS[number]).apply(found, NOW_MS)
        CreateService(database=name, service=SERVICES[number], queue=QUEUES[0]).apply(found, NOW_MS)
        CreateRoute(
            database=name, route=f"to-{name}", service_name=SERVICES[1 - number], broker_instance=IDS[1 - number],
            address=ADDRESSES[0], mirror_address=ADDRESSES[1], lifetime_s=3_600,
        ).apply(found, NOW_MS)  # fmt: skip
    return rows_of(found)


def program() -> ProgramRow:
    tasks = [
        TaskRow(TASK, 5, "forgets", 1_234, 0, 17, TIME, 3, 12, f"OSError: {PATH}"),
        TaskRow("CLOSE_IDLE_CONNECTIONS", 2, "closes", 1_234, 2, 0, TIME, 0, 1, ""),
    ]
    connections = [
        ConnectionRow(each, "DISCONNECTED", TIME, 12_034, 1_234_567, 0, 2, 1_250, 0, f"refused by {each}", TIME)
        for each in ADDRESSES
    ]
    # One that has missed some of its intervals is not in the table.
    return ProgramRow("transport", f"{HOST}:4711", 400_000_000_000, TIME, tasks, connections)


ACTIVATOR = ActivatorRow(
    *(QUEUES[0], "activator-1", "queue-activation-activator", HOST, "/etc/queue-activation/production.toml"),
    entry="customer-orders*", max=4, crashes=6, gave_up_until="9999-01-31T10:33:12.000Z",
    last_exit=ExitRow(TIME, "exit code 1"), last=DecisionRow(TIME, "gave up", f"6 crashes, see {PATH}"),
    held=HeldRow(IDS[0], 7, "1 of max 1 are running"), log_file=PATH, last_line="ModuleNotFoundError",
)  # fmt: skip


def activator_status() -> RenderableType:
    rows = [ACTIVATOR, msgspec.structs.replace(ACTIVATOR, queue=QUEUES[1], crashes=0, gave_up_until=None)]
    fields = {
        "is_running": True,
        "pid": 4711,
        "since": TIME,
        "last_seen": TIME,
        "config_file": PATH,
        "are_programs_known": True,
    }
    return status.show(
        {
            **fields, "config_error": f"{PATH}: no `command`", "kafka_problem": f"{HOST} refuses", "passed_over": 3,
            "without_entry": QUEUES, "queues": [{**msgspec.to_builtins(row), "pids": []} for row in rows],
            "decisions": [],
        },
        NOW_MS,
    )  # fmt: skip


def queue() -> RenderableType:
    clause = ActivationClause(True, PROCEDURE, 2, None)
    definition = QueueDefinition(activation=clause, notifications={"default": SERVICES[0]})
    facts = QueueFacts(QUEUES[0], 1, definition, monitor_rows()[0], task_rows())
    facts.sessions = {f"{IDS[0]}/{IDS[1]}": Session(None, {IDS[2]: 3}, Lease(0))}
    facts.activations = [
        Activation("QUEUE_ACTIVATION", TIME, QUEUES[0], IDS[0], 7, 12_345, 0, "default", "MESSAGES_ACCUMULATING")
    ]
    facts.activators = [Told(ACTIVATOR, True, 0)]
    return queue_view(facts)


def endpoints() -> dict[str, Any]:
    return {
        f"{name}/initiator": endpoint(
            conversation_id=name, service=SERVICES[0], far_service=SERVICES[1], conversation_group_id=IDS[2]
        )
        for name in IDS[:2]
    }


def held() -> list[Any]:
    return [
        transmission(conversation_id=name, to_service=SERVICES[0], reason=f"{address} does not answer since a while")
        for name, address in zip(IDS, ADDRESSES, strict=False)
    ]


def counts() -> RenderableType:
    return lists.counts_view(lists.counts(endpoints().values(), NOW_MS))


def conversation() -> RenderableType:
    row: Any = endpoints()[f"{IDS[0]}/initiator"]
    waiting: list[Any] = [(each, {}) for each in held()[:1]]
    return ConversationFacts(IDS[0], {True: (row, {})}, waiting, [None], {"shop": IDS[1]}).view()


def shown(view: Callable[[], RenderableType]) -> Callable[[], None]:
    return lambda: tables.print_view(view())


# Name -> what prints it, and the identifiers that it must show.
VIEWS: dict[str, tuple[Callable[[], None], list[str]]] = {
    "queues": (shown(lambda: monitors_view.view(monitor_rows())), [*QUEUES, PROCEDURE, PATH]),
    "queues, one": (shown(lambda: monitors_view.view(monitor_rows()[:1])), [QUEUES[0], PROCEDURE, PATH]),
    "tasks": (shown(lambda: tables.tasks_view(task_rows())), [*QUEUES, PROCEDURE, HOST, *(each[:8] for each in IDS)]),
    "queue show": (shown(queue), [*QUEUES[:1], PROCEDURE, HOST, PATH, *SERVICES[:1], f"{IDS[0]}/{IDS[1]}", IDS[2]]),
    "activator status": (shown(activator_status), [*QUEUES, PATH, HOST]),
    "database list": (lambda: databases.print_rows(definitions()["databases"], False), IDS[:2]),
    "service list": (lambda: databases.print_rows(definitions()["services"], False), [*SERVICES, QUEUES[0]]),
    "route list": (lambda: databases.print_rows(definitions()["routes"], False), [*SERVICES, *ADDRESSES, *IDS[:2]]),
    "conversation list": (
        shown(lambda: lists.list_view(endpoints(), {}, 200, is_narrow=True)),
        [*SERVICES, *(each[:8] for each in IDS[:2])],
    ),
    "conversation list --counts": (shown(counts), []),
    "conversation show": (shown(conversation), [*SERVICES[:1], *IDS, ADDRESSES[0]]),
    "transmissions": (
        shown(lambda: lists.transmissions_view(held(), 10, is_narrow=True)),
        [*SERVICES[:1], *ADDRESSES, *(each[:8] for each in IDS[:2])],
    ),
    "maintenance": (lambda: maintenance._print_tasks([program()], str), [f"{HOST}:4711", TASK, PATH]),
    "connections": (lambda: maintenance._print_connections([program()], str), [f"{HOST}:4711", *ADDRESSES]),
}  # fmt: skip


def lines_of(
    view: Callable[[], None], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.setattr(tables, "width", lambda: width)
    view()
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("name", VIEWS)
def test_no_identifier_is_broken(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view, identifiers = VIEWS[name]
    lines = lines_of(view, width, monkeypatch, capsys)
    for identifier in identifiers:
        pattern = re.compile(rf"(?<![\w./-]){re.escape(identifier)}(?![\w/-])")
        assert any(pattern.search(line) for line in lines), (identifier, "\n".join(lines))
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("name", VIEWS)
def test_a_line_is_too_wide_only_because_of_an_identifier(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view, _ = VIEWS[name]
    for line in lines_of(view, 80, monkeypatch, capsys):
        assert Text(line.rstrip()).cell_len <= 80 or max(map(len, line.split())) > 55, line


def test_all_tables_are_made_in_one_place() -> None:
    root = Path(streaming.__file__).parent
    makers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "rich.table"
    }
    assert makers == {"system/screens.py"}


def printed(table: RecordTable, width: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    Console(width=width).print(table, crop=False)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_queues_is_a_table_on_80_columns_with_long_names_and_readers_of_all_kinds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, group, reporting = monitor_rows()
    tasks |= {"next_check_time": "9999-01-31T10:33:12.000Z"}
    group |= {"members": 3, "one_more": False, "max_queue_readers": None, "task_failures": 0, "unread_messages": 7}
    reporting |= {"max_queue_readers": None, "task_failures": 0, "tasks_waiting": 2, "activation_sequence": 0}
    view = shown(lambda: monitors_view.table([tasks, group, reporting]))
    assert [line.rstrip() for line in lines_of(view, 80, monkeypatch, capsys)] == [
        "                                                     unread",
        "queue                          state               messages  readers",
        "customer-orders.europe.west-3  RECEIVES_OCCURRING    12,345  0 waiting, tasks",
        "                                                             0/2 failed",
        "  sequence 70,123, last request at 2026-01-31 12:00:00 UTC; next check at",
        "  9999-01-31 10:33:12 UTC",
        "注文の支払いを待つ列           NOTIFIED                   7  3 members, one",
        "                                                             more: no",
        "  sequence 70,123, last activated at 2026-01-31 12:00:00 UTC",
        "invoices                       INACTIVE              12,345  2 waiting",
    ]
    reporting["queue"] = "i" * 70
    assert [line.rstrip() for line in lines_of(view, 80, monkeypatch, capsys)][-5:] == [
        "注文の支払いを待つ列",
        "  NOTIFIED, 7 unread messages; readers: 3 members, one more: no; sequence",
        "  70,123, last activated at 2026-01-31 12:00:00 UTC",
        "i" * 70,
        "  INACTIVE, 12,345 unread messages; readers: 2 waiting",
    ]


def test_an_identifier_that_has_no_room_beside_its_name_is_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    session = f"{IDS[0]}/{IDS[1]}"
    fields = [
        ("sessions", Text(f"{session}  waits in RECEIVE\nother  waits in RECEIVE")),
        ("last notified", Text("none")),
    ]
    Console(width=80).print(Fields(fields), crop=False)
    assert capsys.readouterr().out.splitlines() == [
        "sessions",
        f"    {session}",
        "    waits in RECEIVE",
        "    other  waits in RECEIVE",
        "last notified  none",
    ]


def table(*rows: tuple[str, ...], grouped_by: int = 0) -> RecordTable:
    columns = [Column("name"), Column("far\naddress"), Column("why", is_text=True), Column("next try")]
    return RecordTable(columns, [[cell(value) for value in row] for row in rows], gap=2, grouped_by=grouped_by)


ONE = ("//stock", "tcp://far.example.com:9092", "it does not answer", "-")
TWO = ("//orders", "tcp://far.example.com:9092", "topic orders is missing", "-")


def test_a_table_that_fits_is_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(table(ONE, TWO), 80, capsys) == [
        "          far",
        "name      address                     why                      next try",
        "//stock   tcp://far.example.com:9092  it does not answer       -",
        "//orders  tcp://far.example.com:9092  topic orders is missing  -",
    ]


def test_headings_and_sentences_are_wrapped_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(table(ONE, TWO), 59, capsys) == [
        "          far                                          next",
        "name      address                     why              try",
        "//stock   tcp://far.example.com:9092  it does not      -",
        "                                      answer",
        "//orders  tcp://far.example.com:9092  topic orders is  -",
        "                                      missing",
    ]


@pytest.mark.parametrize("why", ["started: #1", f"exited: exit code 1; log {PATH}: a line with the cause " + "x" * 70])
def test_reasons_below_their_rows_do_not_change_the_form_of_a_table(
    why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [Column("queue"), Column("running", is_number=True), Column("why", is_text=True, is_below=True)]
    rows = [[cell(value) for value in row] for row in (("orders-of-europe", "1/4", why), ("b", "0/4", "-"))]
    lines = printed(RecordTable(columns, rows), 80, capsys)
    assert lines[:2] == ["queue            running", "orders-of-europe     1/4"]
    assert " ".join(line.removeprefix("  ") for line in lines[2:-1]) == why
    assert lines[-1] == "b                    0/4"
    of_file = printed(RecordTable(columns, rows), FILE_WIDTH, capsys)
    assert of_file[0].split() == ["queue", "running", "why"]


def test_what_is_the_same_in_all_rows_is_said_above_and_nothing_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert printed(table(ONE, TWO), 34, capsys) == [
        "in all rows: far address tcp://far.example.com:9092",
        "name      why",
        "//stock   it does not answer",
        "//orders  topic orders is missing",
    ]


def test_a_record_is_one_line_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    one = ("n" * 200, *ONE[1:])
    assert [line.split()[0] for line in printed(table(one, TWO), FILE_WIDTH, capsys)[2:]] == [one[0], TWO[0]]


def test_a_record_that_fits_into_no_table_is_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = ONE, (*TWO[:3], "within 10 s")
    assert printed(table(one, two), 20, capsys) == [
        "in all rows: far address tcp://far.example.com:9092",
        "",
        "name: //stock",
        "  why:",
        "    it does not",
        "    answer",
        "",
        "name: //orders",
        "  why:",
        "    topic orders is",
        "    missing",
        "  next try:",
        "    within 10 s",
    ]


def test_each_group_becomes_a_table_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(table(ONE, (*ONE[:2], "another", "-"), TWO, grouped_by=2), 40, capsys) == [
        "name: //stock",
        "far address: tcp://far.example.com:9092",
        "why                 next try",
        "it does not answer  -",
        "another             -",
        "",
        "name: //orders",
        "far address: tcp://far.example.com:9092",
        "why                      next try",
        "topic orders is missing  -",
    ]


def test_a_number_is_never_shown_as_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(tables.table_of([{"epoch": 0, "is_on": True}, {"epoch": 1, "is_on": False}]))
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["epoch", "is", "on"],
        ["0", "yes"],
        ["1", "no"],
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two three", ["one two", "three"]),
        ("  one two three", ["  one two", "  three"]),
        ("see `a b c d e` there", ["see", "`a b c d e`", "there"]),
        ("see 'a b c', there", ["see", "'a b c',", "there"]),
        ("see 'a b c d e f' on", ["see 'a b c", "d e f' on"]),
        ("(`a b c d`) the users' own", ["(`a b c d`)", "the users'", "own"]),
        ("the user's own", ["the user's", "own"]),
        ("log /a/very/long/path: it", ["log", "/a/very/long/path:", "it"]),
        ("注文 注文 注文", ["注文 注文", "注文"]),
    ],
)
def test_a_text_is_wrapped_at_words_but_not_inside_what_is_one_thing(text: str, lines: list[str]) -> None:
    assert wrap(text, 10 if "注" in text else 11) == lines
