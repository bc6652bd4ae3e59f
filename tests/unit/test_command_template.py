"""Names in command lines: a name becomes one argument of the configured program, and no option or script."""

import os
from pathlib import Path

import pytest

from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.programs import StartedProgram
from streaming.system import command_template
from streaming.system.command_template import UnsafeNameError
from tests.support.waiting import wait_until

NAMES = ("queue", "procedure")

LEGITIMATE = (
    "queue-activation read {queue}",
    "reader --queue {queue} --procedure {procedure}",
    """sh -c 'read "$0"' {queue}""",
    "python3 -m streaming read {queue}",
    "timeout -k 5 9 reader {queue}",
    "sh -c 'read $QUEUE_ACTIVATION_QUEUE'",
    "sh -c 'echo ${HOME} $${x}; awk {print}'",
)
ANOTHER_PLACE = (
    "read --queue={queue}",
    "read /srv/{queue}",
    "read {queue}.log",
    "read {queue}{queue}",
    "read {queue}/{procedure}",
    "read 'of {queue}'",
    "read '$(id)/{queue}'",
    "read -q{queue}",
    "read ${queue}",
    "env A={queue} read",
    "sh -c 'read {queue} | tee log'",
    "read {queue} --log=/srv/{queue}",
)
SAFE_NAMES = ("orders", "dbo.orders", "queue-1", "a_b", "orders/eu", "https://example.com/x", "a@b", "7", "..a", "a..b")
UNSAFE_NAMES = (
    "",
    "-",
    "-x",
    "--bootstrap-servers=elsewhere",
    "@/etc/passwd",
    "..",
    "../x",
    "a/../b",
    "a/..",
    "x;touch pwned",
    "x&touch pwned",
    "x|touch pwned",
    "x\ntouch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "x>pwned",
    "touch${IFS}pwned",
    "touch pwned",
    "{touch,pwned}",
    "system('touch_pwned')",
    'BEGIN{system("touch pwned")}',
    "a'b",
    'a"b',
    "a\\b",
    "*",
    "~",
    "!x",
    "#x",
    "a=b",
    "%s",
    "a,b",
    "{procedure}",
    "\N{LATIN SMALL LETTER A WITH DIAERESIS}",
    "a\N{NO-BREAK SPACE}b",
    "orders\n",
    "\x00",
)


def problem(command: str | list[str]) -> str | None:
    return command_template.problem(command, NAMES)


@pytest.mark.parametrize("command", LEGITIMATE)
def test_a_name_as_an_argument_of_a_program_is_taken(command: str) -> None:
    assert problem(command) is None


@pytest.mark.parametrize("command", ["sh {queue}", "sh -c {queue}", "env {queue}", "xargs {queue}"])
def test_a_config_is_not_checked_for_what_a_program_does_with_a_name(command: str) -> None:
    assert problem(command) is None


@pytest.mark.parametrize("command", ANOTHER_PLACE)
def test_a_name_in_another_place_is_refused_with_what_to_write(command: str) -> None:
    found = problem(command)
    assert found is not None
    assert "It must be a word of its own, as in `--option {queue}`" in found
    assert 'take the name from the environment: "$QUEUE_ACTIVATION_QUEUE" in a script' in found


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("{queue}", "must not let {queue} choose the program"),
        ("/srv/{procedure}/run", "must not let {procedure} choose the program"),
        ("run --name={procedure}", "has {procedure} inside '--name={procedure}'"),
        ([], "must not be empty"),
        (" ", "must not be empty"),
    ],
)
def test_what_is_refused_says_why(command: str | list[str], what: str) -> None:
    assert what in (problem(command) or "")


def test_only_known_names_are_placeholders() -> None:
    words = command_template.split("read ${HOME} {procedure} {} {{x} {queue}")
    assert command_template.problem(words, ["queue"]) is None
    assert command_template.fill(words, {"queue": "q"}) == ["read", "${HOME}", "{procedure}", "{}", "{{x}", "q"]


@pytest.mark.parametrize("name", SAFE_NAMES)
def test_a_safe_name_is_put_into_its_words(name: str) -> None:
    words = command_template.split("read {queue} --queue {queue} {procedure}")
    filled = command_template.fill(words, {"queue": name, "procedure": "p"})
    assert filled == ["read", name, "--queue", name, "p"]


@pytest.mark.parametrize("name", UNSAFE_NAMES)
def test_an_unsafe_name_stands_in_no_argument(name: str) -> None:
    with pytest.raises(UnsafeNameError) as refused:
        command_template.fill(["read", "{queue}"], {"queue": name, "procedure": "p"})
    assert f"{name!r} cannot replace {{queue}}" in str(refused.value)
    assert str(refused.value).endswith("has the name in its environment, as QUEUE_ACTIVATION_QUEUE")


def test_a_command_without_placeholders_is_for_any_name() -> None:
    for name in UNSAFE_NAMES:
        assert command_template.fill(["read", "{procedure}"], {"queue": name}) == ["read", "{procedure}"]


def run_for(queue: str, command: str, folder: Path) -> bool:
    """Starts a program as the activator does, and waits for its end; returns whether one was started."""
    try:
        words = ProgramEntry("*", command).command_for(queue)
    except ValueError:
        return False
    program = StartedProgram(words, {"PATH": os.environ["PATH"]}, folder, folder / "log")
    program.open_gate()
    wait_until(program.poll, 10, "the program's end")
    return True


@pytest.mark.parametrize("name", UNSAFE_NAMES)
@pytest.mark.parametrize("command", ["sh -c {queue}", "bash -ec {queue}", "env sh -c {queue}", "xargs sh -c {queue}"])
def test_an_unsafe_name_runs_nothing_whatever_program_gets_it(tmp_path: Path, command: str, name: str) -> None:
    assert not run_for(name, command, tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_a_script_has_any_name_from_its_environment_or_its_arguments(tmp_path: Path) -> None:
    assert run_for("orders", """sh -c 'echo "$0" > ran' {queue}""", tmp_path)
    assert (tmp_path / "ran").read_text() == "orders\n"
    assert run_for("x;touch pwned", "sh -c 'echo ran > ran'", tmp_path)
    assert (tmp_path / "ran").read_text() == "ran\n"
