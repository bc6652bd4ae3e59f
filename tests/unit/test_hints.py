"""Sentences that name a command or an option: a command works as it is pasted, and a program has the option."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import embedded_broker, hints
from streaming.wire.topics import prefix_of
from tests.support.command_lines import ROOT, parse
from tests.support.shell import run_command

# The command that a sentence names, such as "queue create".
_NAMED = re.compile(r"\bqueue-activation [a-z]")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# Calls whose texts are the help of an option, where the option is named as it is.
_HELP = {"option", "part_of_definition", "duration", "place", "Option", "Argument", "Typer"}
# These print the name of the command that runs.
_TITLES = ("streaming/cli/demo/",)
# The rooms of the programs that `run` starts.
_UNDER_RUN = (
    *("daemons/router", "daemons/transport", "daemons/monitor", "daemons/query", "daemons/observer"),
    *("daemons/activator", "spark", "kafka", "system"),
)
# Options of commands and tools outside this project, of `activator status`, of its own modules, and of commands that
# start programs.
_FOREIGN = {
    *("streaming/system/jars.py", "streaming/system/embedded_broker.py"),
    "streaming/system/java.py",
    *("streaming/system/command_template.py", "streaming/spark/session.py", "streaming/system/hints.py"),
    "streaming/daemons/activator/status.py",
    *("streaming/system/runs.py", "streaming/kafka/own_programs.py"),
}


def texts(path: Path) -> Iterator[str]:
    """Yields the texts of a module that are no docstrings, no help of options, and no arguments of a hint."""
    tree = ast.parse(path.read_text())
    passed_over = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed_over.add(node.value)
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            is_hint = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "hints"
            if name in _HELP or is_hint:
                passed_over.update(each for each in ast.walk(node) if isinstance(each, ast.Constant))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in passed_over:
            yield node.value


def modules(*rooms: str) -> list[str]:
    """Returns the files of rooms of `streaming`, and without rooms all files of the project."""
    folders = [ROOT / "streaming" / room for room in rooms] or [ROOT / "streaming", ROOT / "producers"]
    return [str(path.relative_to(ROOT)) for folder in folders for path in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize("name", [each for each in modules() if not each.startswith(_TITLES)])
def test_every_sentence_gets_its_command_from_one_function(name: str) -> None:
    assert [text for text in texts(ROOT / name) if _NAMED.search(text)] == []


@pytest.mark.parametrize("name", [each for each in modules(*_UNDER_RUN) if each not in _FOREIGN])
def test_every_sentence_of_a_program_of_run_gets_its_option_from_one_function(name: str) -> None:
    found = {option for text in texts(ROOT / name) for option in _OPTION.findall(text)}
    assert found - hints.OPTIONS_OF_RUN == set()


def named(name: str) -> list[list[str]]:
    """Returns the words of the commands in the hints of a module, with X for those that are computed."""
    calls = [node for node in ast.walk(ast.parse((ROOT / name).read_text())) if isinstance(node, ast.Call)]
    hinted = [
        call.args
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and getattr(call.func.value, "id", "") == "hints"
        and call.func.attr in ("command", "plain")
        and isinstance(call.args[0], ast.Constant)
        and not any(isinstance(each, ast.Starred) for each in call.args)
    ]
    return [[str(each.value) if isinstance(each, ast.Constant) else "X" for each in words] for words in hinted]


@pytest.mark.parametrize("name", [each for each in modules() if named(each)])
def test_every_command_of_a_sentence_exists_and_may_say_where_kafka_is(name: str) -> None:
    for words in named(name):
        place = [] if words[-1] == "--help" else ["--bootstrap-servers", "h:1", "--topic-prefix", "p"]
        parse([*words, *place])


PLACE = ["--bootstrap-servers", "kafka-1:9092", "--topic-prefix", "my-team."]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Makes each command that asks for the topics' existence end with the hints of a moment of its run."""
    for name in ("BOOTSTRAP_SERVERS", "TOPIC_PREFIX", "KAFKA_CONFIG", "OPTIONS"):
        monkeypatch.delenv(f"QUEUE_ACTIVATION_{name}", raising=False)
    found: list[str] = []

    def note(_cluster: Cluster, *_: object, **__: object) -> None:
        found.append(hints.command("queue", "show", "a b"))
        raise UserError("no Kafka")

    monkeypatch.setattr(Cluster, "admin_client", note)
    yield found
    hints.forget()


def hint(said: list[str], *words: str) -> list[str]:
    run_command(*words, code=2)
    return shlex.split(said[-1])


SHOW = ["queue-activation", "queue", "show", "a b"]


def test_a_hint_has_the_place_that_the_user_gave(said: list[str]) -> None:
    assert hint(said, "queues") == SHOW
    assert hint(said, "queues", *PLACE) == [*SHOW, *PLACE]
    assert hint(said, "queues", "--bootstrap-servers", "localhost:9092", "--topic-prefix", "") == SHOW
    assert hint(said, "queues") == SHOW, "what an earlier command was given is forgotten"


def test_a_hint_has_what_the_environment_says_for_another_terminal(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", "kafka-1:9092")
    assert hint(said, "queues") == [*SHOW, "--bootstrap-servers", "kafka-1:9092"]
    own = ["--bootstrap-servers", "localhost:9092"]
    assert hint(said, "queues", *own) == [*SHOW, *own], "the pasted command has not the server of the environment"


def test_a_hint_has_the_options_file_instead_of_its_content(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, properties = tmp_path / "my options.toml", tmp_path / "client.properties"
    options.write_text('bootstrap-servers = "kafka-1:9092"\ntopic-prefix = "p-"\n')
    properties.write_text("client.id=me\n")
    config = ["--config", str(options)]
    in_file = ["queue-activation", *config, "queue", "show", "a b"]
    assert hint(said, *config, "queues") == in_file
    assert hint(said, *config, "queues", "--topic-prefix", "q-") == [*in_file, "--topic-prefix", "q-"]
    given = ["--kafka-config", str(properties)]
    monkeypatch.chdir(properties.parent)
    relative = ["--config", options.name, "queues", "--kafka-config", properties.name]
    assert hint(said, *relative) == [*in_file, *given], "the command works in each directory"
    assert hint(said, *config, "queues", *given) == [*in_file, *given]


def test_a_hint_about_another_cluster_names_that_one() -> None:
    hints.begin("transport", None)
    hints.note("--bootstrap-servers", "near:1", is_needed=True)
    assert hints.command("topics", servers="near:1") == "queue-activation topics --bootstrap-servers near:1"
    assert hints.command("topics", servers="far:1", prefix="p-") == (
        "queue-activation topics --bootstrap-servers far:1 --topic-prefix p-"
    )
    hints.forget()


def test_a_program_without_a_command_line_names_the_place_of_its_client() -> None:
    admin = Admin(Cluster("127.0.0.1:1"))
    assert admin.servers == "127.0.0.1:1"
    assert hints.command("topics", servers=admin.servers) == "queue-activation topics --bootstrap-servers 127.0.0.1:1"
    assert [prefix_of(name) for name in ("queue-ticks", "p-queue-ticks", "service-queue-ticks", "x")] == [
        *("", "p-", "service-", "")
    ]


def test_a_broker_is_offered_only_for_this_machine_with_its_port_and_a_folder() -> None:
    kept = ["--data-dir", "checkpoints/broker"]
    assert shlex.split(str(hints.broker("localhost:9092"))) == ["queue-activation", "broker", *kept]
    other = shlex.split(str(hints.broker("127.0.0.1:19092")))
    assert other == ["queue-activation", "broker", "--port", "19092", *kept]
    assert [hints.broker(servers) for servers in ("kafka-1:9092", "localhost", "a:1,b:1")] == [None, None, None]


def test_a_program_of_run_names_options_that_run_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hints.option("--checkpoint-location") == "--checkpoint-location"
    assert hints.option("--restore", "none") == "`--restore none`"
    hints.begin("router", None)
    monkeypatch.setenv(hints.UNDER_RUN_VARIABLE, "")  # so that it is gone after the test
    hints.begin_run(has_checkpoints=True)
    assert hints.option("--checkpoint-location") == "--checkpoints"
    assert hints.option("--state-directory") == "--checkpoints"
    assert hints.option("--restore", "none") == '`restore = "none"` in the table [router] of the file of --config'
    assert hints.option("--take-over") == "--take-over"
    assert hints.option("--restore", "none", names_table=False) == '`restore = "none"`'
    assert hints.option("--state-directory", names_table=False) == "--checkpoints"
    with hints.about("monitor"):
        assert hints.option("--shards") == "`shards` in the table [monitor] of the file of --config"
    hints.begin_run(has_checkpoints=False)
    assert (
        hints.option("--checkpoint-location") == "`checkpoint-location` in the table [router] of the file of --config"
    )
    hints.forget()


@pytest.mark.parametrize("option", sorted(hints.OPTIONS_OF_RUN - {"--config"}))
def test_run_has_the_options_that_its_programs_name(option: str) -> None:
    parse(
        ["run", *([option] if option == "--take-over" else [option, "text" if "log" in option else "pyproject.toml"])]
    )


@pytest.mark.parametrize("data_dir", [None, Path("kept")])
def test_a_broker_without_a_folder_says_that_all_is_lost(
    data_dir: Path | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = MagicMock()
    broker.return_value.__enter__.return_value.bootstrap_servers = "127.0.0.1:1"
    monkeypatch.setattr(embedded_broker, "EmbeddedBroker", broker)
    assert embedded_broker.run_broker_in_foreground(0, data_dir) == 0
    said = capsys.readouterr()
    assert said.out == "broker ready 127.0.0.1:1\n"
    assert ("are lost when this broker stops" in said.err) is (data_dir is None)
