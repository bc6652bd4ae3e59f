"""Every command, option, link, anchor, variable and import in the documents exists."""

import ast
import importlib
import re
import shutil
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from streaming.cli.activators import Told
from streaming.cli.conversations.lists import counts_view, transmissions_view
from streaming.cli.present import NOBODY_MISSING
from streaming.cli.task_failures import failure
from streaming.core.activation.explanation import Situation, why
from streaming.core.activation.queue_monitor import Hindrance, State
from streaming.daemons.activator.config import Config
from streaming.daemons.host.config import HostConfig
from streaming.system import ages
from streaming.wire.activator_rows import ActivatorRow, ExitRow, HeldRow
from streaming.wire.input_records import arrivals_decoder, decode, receives_decoder
from streaming.wire.service_views import TransmissionRow
from tests.support.command_lines import (
    COMMAND,
    ROOT,
    VARIABLE_PREFIX,
    all_variables,
    check_make,
    fenced_blocks,
    parse,
    shell_commands,
    split_assignments,
)

GUIDE = ROOT / "docs" / "guide"
CONVERSATIONS = GUIDE / "conversations.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# Foreign programs that the documents may use, besides those of every shell.
FOREIGN = frozenset(("docker", "kcat"))
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_ANY_VARIABLE = re.compile(rf"\b{VARIABLE_PREFIX}[A-Z_]+\b")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands_of(document: str) -> list[list[str]]:
    return [words for block in fenced_blocks(document, "sh") for words in shell_commands(block)]


def inline_commands_of(document: str) -> list[list[str]]:
    """Returns the whole command lines between single backquotes."""
    quoted = [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", _FENCED.sub("", document))]
    return [text.split() for text in quoted if re.match(rf"({COMMAND}|make) \S", text)]


def check_command(words: list[str], environment: dict[str, str]) -> None:
    program, *arguments = words
    name = program.rpartition("/")[2]
    if name == COMMAND:
        check_queue_activation(arguments, environment)
    elif name == "spark-submit":
        program = next(word for word in arguments if word.endswith(".py"))
        check_python([program])
        check_queue_activation(arguments[arguments.index(program) + 1 :], environment)
    elif name == "make":
        check_make(arguments)
    elif name.startswith("python"):
        check_python(arguments)
    elif name not in FOREIGN and not program.startswith((".venv/", "build/")):
        assert shutil.which(program) or program == ".", f"unknown program: {program}"


def check_queue_activation(arguments: list[str], environment: dict[str, str]) -> None:
    parse(arguments, environment)


def check_python(arguments: list[str]) -> None:
    if arguments[:1] == ["-m"] and arguments[1] != "venv":
        assert importlib.util.find_spec(arguments[1]), f"there is no module {arguments[1]}"
    elif not arguments[0].startswith("-"):
        assert (ROOT / arguments[0]).is_file(), f"there is no {arguments[0]}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_exist_with_their_options(path: Path) -> None:
    document = path.read_text()
    environment: dict[str, str] = {}
    for words in commands_of(document):
        assignments, command = split_assignments(words)
        assert {name for name in assignments if name.startswith(VARIABLE_PREFIX)} <= all_variables()
        environment |= assignments
        if command:
            check_command(command, environment)
    for command in inline_commands_of(document):
        if command[0] == COMMAND and len(command) == 2:
            parse([command[1], "--help"])  # the name of a command, not a whole command line
        else:
            check_command(command, {})


@pytest.mark.parametrize("block", fenced_blocks((ROOT / "README.md").read_text(), "python"))
def test_each_program_of_the_readme_tells_its_user_what_to_do(block: str) -> None:
    tries = [node for node in ast.parse(block).body if isinstance(node, ast.Try)]
    assert "UserError" in [ast.unparse(each.type) for node in tries for each in node.handlers if each.type is not None]


def test_what_several_documents_create_is_the_same_in_all_of_them() -> None:
    created: dict[tuple[str, ...], set[tuple[str | None, ...]]] = {}
    for path in (ROOT / "README.md", *GUIDE.glob("*.md")):
        for words in commands_of(path.read_text()):
            if words[2:3] == ["create"] and "--topic-prefix" not in words:
                options = dict(pairwise(words[4:]))
                made = tuple(map(options.get, ("--partitions", "--database", "--queue")))
                created.setdefault((words[1], words[3]), set()).add(made)
    assert {name: made for name, made in created.items() if len(made) > 1} == {}


def test_commands_name_services_that_the_guide_creates() -> None:
    guide = [words for path in GUIDE.glob("*.md") for words in commands_of(path.read_text())]
    created = {words[3] for words in guide if words[1:3] == ["service", "create"]}
    assert {word for words in guide for word in words if word.startswith("//")} <= created


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_of_kafka_say_where_kafka_is(path: Path) -> None:
    for command in re.findall(r"kafka-[a-z-]+\.sh [^`\n]+", path.read_text()):
        assert "--bootstrap-server " in command


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_environment_variables_exist(path: Path) -> None:
    assert set(_ANY_VARIABLE.findall(path.read_text())) <= all_variables()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for target in _LINK.findall(path.read_text()):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        document = path.parent / file if file else path
        assert document.is_file(), f"{target} is missing"
        assert not anchor or anchor in anchors_of(document.read_text()), f"{target} has no such heading"


def anchors_of(document: str) -> set[str]:
    """Returns the anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_python_compiles_and_its_imports_exist(path: Path) -> None:
    for block in fenced_blocks(path.read_text(), "python"):
        tree = ast.parse(block)
        compile(tree, path.name, "exec")
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


def test_the_tests_would_notice() -> None:
    with pytest.raises(LookupError, match="moniter"):
        check_command(["queue-activation", "moniter"], {})
    with pytest.raises(Exception, match="No such option: --queue"):
        check_command([".venv/bin/queue-activation", "monitor", "--queue", "q"], {})
    with pytest.raises(Exception, match="is not a duration"):
        check_command(["queue-activation", "monitor"], {"QUEUE_ACTIVATION_QUIET_WINDOW": "5"})
    with pytest.raises(AssertionError, match="no deploy"):
        check_command(["make", "deploy"], {})
    with pytest.raises(AssertionError, match="unknown program"):
        check_command(["queue-activatoin", "demo"], {})


def test_the_documents_have_commands() -> None:
    readme = (ROOT / "README.md").read_text()

    assert [COMMAND, "activator", "status"] in commands_of(readme)
    assert ["make", "demo"] in commands_of(readme)
    assert ["make", "test"] in commands_of(readme)
    assert [COMMAND, "queue", "show", "orders"] in commands_of(readme)
    assert len(fenced_blocks(readme, "python")) >= 2


@pytest.mark.parametrize(
    ("document", "command"),
    [
        ("own-kafka.md", "activator status"),
        ("own-kafka.md", "watch --from-beginning"),
        ("activator.md", "activator --config examples/activator.toml"),
        ("internal-activation.md", "host --config examples/host.toml"),
        ("definitions.md", "queue show orders"),
        ("configuration.md", "--config FILE monitor"),
    ],
)
def test_the_guide_has_the_commands_that_it_is_about(document: str, command: str) -> None:
    assert [COMMAND, *command.split()] in commands_of((GUIDE / document).read_text())


def test_the_guide_shows_how_to_send_and_to_read_in_python() -> None:
    assert len(fenced_blocks((GUIDE / "python.md").read_text(), "python")) >= 2


def test_the_index_of_the_guide_has_each_of_its_documents() -> None:
    linked = set(_LINK.findall((GUIDE / "README.md").read_text()))

    assert {path.name for path in GUIDE.glob("*.md")} - linked == {"README.md"}


@pytest.mark.parametrize("document", [ROOT / "README.md", *sorted(GUIDE.glob("*.md"))], ids=name_of)
def test_config_files_of_activator_and_host_are_valid(document: Path) -> None:
    for block in fenced_blocks(document.read_text(), "toml"):
        content = tomllib.loads(block)
        if "programs" in content:
            msgspec.convert(content, Config)
        elif "procedures" in content:
            msgspec.convert(content, HostConfig)


@pytest.mark.parametrize("name", ["activator", "host", "observe/activator", "services/activator"])
def test_config_files_that_the_guide_shows_are_those_of_the_examples(name: str) -> None:
    example = (ROOT / "examples" / f"{name}.toml").read_text()
    shown = [block for path in DOCUMENTS for block in fenced_blocks(path.read_text(), "toml")]

    assert any(block in example for block in shown)


def test_records_that_a_program_reports_are_valid() -> None:
    [arrivals, receives] = fenced_blocks((GUIDE / "reporting.md").read_text(), "json")

    for block, decoder in ((arrivals, arrivals_decoder), (receives, receives_decoder)):
        for line in block.encode().splitlines():
            record = decode(decoder, b"orders", line, len(line))
            assert record.queue == "orders"


# The state for which docs/guide/why-a-reader.md quotes `queue show`.
QUOTED = Situation(
    state=State.NOTIFIED,
    is_on=True,
    unread=31,
    waiting=0,
    sequence=2,
    activated_at="10:23:11 UTC",
    empty_at=None,
    next_check_at="10:23:41 UTC",
    tasks_running=0,
    max_queue_readers=None,
    failures=0,
    next_start_at=None,
    has_notifications=True,
    is_topic=True,
    is_watched=True,
    switch_on="queue-activation queue alter orders --status ON",
)
FAILING = {
    "task_failures": 3,
    "failing_since": "9999-01-31T10:18:24.000Z",
    "next_start_time": "9999-01-31T10:19:01.000Z",
    "failing_procedure": "read_payments",
}

GIVEN_UP = ActivatorRow(
    *("orders", "activator-1", "queue-activation-activator", "host-1", "/etc/activator.toml"),
    entry="orders",
    max=4,
    crashes=6,
    backoff_until="9999-01-31T10:23:44.000Z",
    gave_up_until="9999-01-31T10:33:12.000Z",
    last_exit=ExitRow("9999-01-31T10:23:12.000Z", "exit code 1"),
    log_file="/var/log/readers/orders.log",
    last_line="ModuleNotFoundError: No module named 'orders'",
)


@pytest.mark.parametrize(
    "sentences",
    [
        why(QUOTED),
        why(replace(QUOTED, sequence=3)),
        why(replace(QUOTED, state=State.RECEIVES_OCCURRING, unread=1, waiting=1, hindrance=Hindrance.READER_WAITS)),
        why(replace(QUOTED, state=State.RECEIVES_OCCURRING, unread=63, waiting=2, hindrance=Hindrance.READER_WAITS)),
        why(replace(QUOTED, state=State.INACTIVE, unread=0, waiting=1)),
        why(replace(QUOTED, state=State.ABSENT, is_on=False, off_by="Five rollbacks in a row have set it OFF.")),
        why(replace(QUOTED, state=State.ABSENT, has_notifications=False)),
    ],
)
def test_the_guide_quotes_what_queue_show_prints(sentences: list[str]) -> None:
    require_quoted(sentences)


def test_the_guide_quotes_what_queue_show_prints_about_failures_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "today", lambda: "9999-01-31")
    require_quoted([str(failure(FAILING, NOBODY_MISSING))])
    require_quoted(Told(GIVEN_UP, True, 0).lines())


def test_the_guide_quotes_the_other_sentence_about_readers_that_wait_without_a_topic() -> None:
    waits = replace(QUOTED, state=State.RECEIVES_OCCURRING, unread=63, waiting=2, hindrance=Hindrance.READER_WAITS)

    for found in ([why(waits)[-1]], [why(replace(waits, is_topic=False))[-1]]):
        require_named(re.findall(r"they have no partition with messages|nothing that is unread [^,]*", found[0]))


def test_the_guide_quotes_both_lines_of_an_activator_that_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "today", lambda: "9999-01-31")
    held = msgspec.structs.replace(
        GIVEN_UP, gave_up_until=None, held=HeldRow("n", 4, "back-off after crash 6 in a row")
    )

    require_named(Told(held, True, 0).why()[:1])


def test_the_guide_quotes_what_transmissions_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "today", lambda: "2026-11-24")
    held = TransmissionRow(
        *("5f0c6d1e-1", True, "//shop/orders", "shop", "//stock", None, 2, "2026-11-23T18:12:40.000Z", 9796),
        *("the service is not here", None, ""),
    )
    billing = msgspec.structs.replace(
        held,
        conversation_id="a41b90c7-1",
        to_service="//billing",
        messages=1,
        held_since="2026-11-24T09:14:02.000Z",
        number=None,
        reason="topic billing does not exist",
        next_try="2026-11-24T09:14:27.000Z",
    )
    require_shown(transmissions_view([held, billing], 100), 0)


def test_the_guide_quotes_what_conversation_list_prints_with_counts() -> None:
    ages_of = {"idle_1h": (18_004, 310), "idle_1d": (11_871, 308), "idle_7d": (9_220, 290), "idle_30d": (4_107, 122)}
    rows = [
        {"state": state, "endpoints": endpoints, **{age: found[at] for age, found in ages_of.items()}}
        for at, (state, endpoints) in enumerate([("CO", 20_412), ("DI", 310)])
    ]

    require_shown(counts_view(rows), 1)


def require_shown(view: RenderableType, number: int) -> None:
    """Requires that a block of the guide has the lines of a view. Three dots in the block stand for any words."""
    console = Console(width=1_000, highlight=False)
    with console.capture() as captured:
        console.print(view)
    lines = captured.get().splitlines()

    quoted = fenced_blocks(CONVERSATIONS.read_text(), "text")[number].splitlines()[1:]  # without the command
    for line, shown in zip(lines, quoted, strict=True):
        pattern = re.escape(" ".join(shown.split())).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, " ".join(line.split())), line


def require_named(parts: list[str]) -> None:
    """Requires that the guide has these parts of sentences, in a block or in a paragraph."""
    text = " ".join((GUIDE / "why-a-reader.md").read_text().split())

    assert parts
    for part in parts:
        assert part in text


def require_quoted(sentences: list[str]) -> None:
    quoted = [" ".join(block.split()) for block in fenced_blocks((GUIDE / "why-a-reader.md").read_text(), "text")]

    assert any(" ".join(sentences) in block for block in quoted), sentences


def test_make_and_the_readme_name_the_same_time_for_the_set_up() -> None:
    for name, sentence in (
        ("Makefile", "Setting up $(VENV) (once; takes a few minutes)"),
        ("README.md", "The first run sets everything up, which takes a few minutes."),
    ):
        assert sentence in " ".join((ROOT / name).read_text().split())


def test_no_time_is_promised_for_a_demo_because_it_depends_on_the_machine() -> None:
    for name in ("README.md", "docs/guide/demo.md", "Makefile", "streaming/cli/main.py"):
        text = " ".join((ROOT / name).read_text().split())
        assert set(re.findall(r"(\w+) (?:with)?in (?:two|three) minutes", text)) == {"usually"}, name


def test_the_demo_in_the_readme_is_shortened_from_that_of_the_guide() -> None:
    readme, guide = (fenced_blocks(path.read_text(), "text") for path in (ROOT / "README.md", GUIDE / "demo.md"))

    assert set(readme[0].splitlines()) <= set(guide[0].splitlines())
