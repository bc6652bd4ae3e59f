"""The file of --config: options for all commands or for one. The environment and the command line override it."""

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from typer.core import TyperGroup

from streaming.cli import options_file
from streaming.cli.main import app
from streaming.errors import UserError
from streaming.system.processes import own_environment

COMMANDS = cast(TyperGroup, typer.main.get_command(app))


def defaults(tmp_path: Path, text: str) -> dict[str, Any]:
    file = tmp_path / "options.toml"
    file.write_text(text)
    return options_file.defaults(COMMANDS, file)


def test_an_option_outside_of_tables_is_for_every_command_that_has_it(tmp_path: Path) -> None:
    found = defaults(tmp_path, 'bootstrap-servers = "kafka:9092"\nquiet-window = "2s"\n')
    for command in ("monitor", "queues", "activator"):
        assert found[command]["bootstrap_servers"] == "kafka:9092"
    assert found["queue"]["create"]["bootstrap_servers"] == "kafka:9092"
    assert [name for name, options in found.items() if "quiet_window" in options] == ["monitor"]


def test_a_table_is_for_one_command_and_overrides_the_top_of_the_file(tmp_path: Path) -> None:
    text = (
        'partitions = 2\n[topics]\npartitions = 3\n[queue.create]\nnotification = ["a", "b"]\n[workload]\nqueues = 7\n'
    )
    found = defaults(tmp_path, text)
    assert found["topics"] == {"partitions": 3}
    assert found["queue"]["create"] == {"partitions": 2, "notification": ["a", "b"]}
    assert found["workload"] == {"queue_count": 7}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('quiet-windo = "2s"', "quiet-windo: unknown option or command. Did you mean `quiet-window`?"),
        ('[moniter]\nquiet-window = "2s"', "moniter: unknown option or command. Did you mean `monitor`?"),
        ('[monitor]\nquite-window = "2s"', "monitor.quite-window: unknown option. Did you mean `quiet-window`?"),
        ("[queue.create]\npartition = 2", "queue.create.partition: unknown option. Did you mean `partitions`?"),
        ("monitor = 3", "monitor: a command is not an option. Write its options into a table, [monitor]"),
        ('bootstrap-servers = ["a:1", "b:2"]', 'bootstrap-servers: write a text, such as "text"'),
        ("[queues]\nbootstrap-servers = 9092", 'queues.bootstrap-servers: write a text, such as "text"'),
        ("[monitor]\nquiet-window = 5", 'monitor.quiet-window: write a text, such as "text"'),
        ("partitions = 2.5", "partitions: write a whole number"),
        ("partitions = true", "partitions: write a whole number"),
        ("[monitor]\nshards = [1]", "monitor.shards: write a whole number"),
        ("rate = false", "rate: write a number"),
        ("[monitor]\nlog-batches = 1", "monitor.log-batches: write true or false"),
        ("[queue.create]\nnotification = 3", 'notification: write a text, such as "text", or a list of these'),
        ('[queue.create]\nnotification = ["a", 3]', "notification: write a list, each of its values a text"),
        ("[monitor]\nlog-format = {a = 1}", "monitor.log-format: write a text"),
        ("= 3", "is not valid TOML"),
        ("a = " + "[" * 5000, "is not valid TOML"),
    ],
)
def test_what_is_not_known_is_refused_with_its_place(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(UserError, match=r"options\.toml") as refused:
        defaults(tmp_path, text)
    assert part in str(refused.value)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nix\.toml cannot be read: No such file"):
        options_file.defaults(COMMANDS, tmp_path / "nix.toml")


def run(folder: Path, *words: str, **environment: str) -> str:
    """Returns the standard error of a command line that is refused."""
    result = subprocess.run(
        [sys.executable, "-m", "streaming", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=own_environment() | environment,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2, result
    return result.stderr


def test_an_error_names_the_source_of_the_value_and_the_command_line_overrides_the_others(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('[monitor]\nquiet-window = "5f"\n')
    said = run(tmp_path, "--config", str(file), "monitor")
    assert "quiet-window in the file of --config: '5f' is not a duration" in said
    variable = {"QUEUE_ACTIVATION_QUIET_WINDOW": "5e"}
    said = run(tmp_path, "--config", str(file), "monitor", **variable)
    assert "the environment variable QUEUE_ACTIVATION_QUIET_WINDOW: '5e' is not a duration" in said
    said = run(tmp_path, "--config", str(file), "monitor", "--quiet-window", "5c", **variable)
    assert "Invalid value for '--quiet-window': '5c' is not a duration" in said
    assert "Value error" not in said


def test_a_value_of_the_right_type_is_taken(tmp_path: Path) -> None:
    text = (
        'partitions = "3"\nrate = 2\n[monitor]\nlog-batches = true\n[host]\nlog-format = "json"\n'
        '[queue.create]\nnotification = "audit"\n'
    )
    found = defaults(tmp_path, text)
    assert found["topics"] == {"partitions": "3"}
    assert found["workload"] == {"rate": 2}
    assert found["monitor"] == {"log_batches": True}
    assert found["host"] == {"log_format": "json"}
    assert found["queue"]["create"] == {"partitions": "3", "notification": ["audit"]}, "no letter is a notification"


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    assert defaults(tmp_path, "\ufeffpartitions = 2\n")["topics"] == {"partitions": 2}
