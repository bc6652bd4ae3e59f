"""Names in command lines: a name becomes an argument of the configured program, never a program, option or script."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.programs import StartedProgram
from streaming.system import command_template
from streaming.system.command_template import UnsafeNameError
from tests.support.waiting import wait_until

NAMES = {"queue": "QUEUE_ACTIVATION_QUEUE", "procedure": "QUEUE_ACTIVATION_PROCEDURE"}

LEGITIMATE = (
    "queue-activation read {queue}",
    "queue-activation read {queue} --once {procedure}",
    "reader --queue={queue} -Dname={procedure}",
    "reader --file=/srv/queues/{queue} ./{procedure}",
    "/srv/read /srv/queues/{queue}",
    "sh script.sh {queue}",
    "/bin/bash -euo pipefail script.sh {queue}",
    """sh -c 'read "$0"' {queue}""",
    """sh -c 'read "$1"' sh {queue}""",
    """sh -ec -- 'Q=1 read "$1"' sh {queue}""",
    "bash --norc script.sh {queue}",
    "sh -c 'read $QUEUE_ACTIVATION_QUEUE' ",
    "python3 -m streaming read {queue}",
    "/venv/bin/python -Im streaming --wait 2s read {queue}",
    "python3.11 -X dev reader.py {queue}",
    "python3 -c 'import reader' {queue}",
    "perl -ne 'print' /srv/{queue}",
    "awk -F : '{print}' /srv/queues/{queue}",
    "awk -f count.awk -v a=b {queue}",
    "lua5.4 -l tools reader.lua {queue}",
    "java -Xmx1g -cp reader.jar Reader {queue}",
    "java -jar reader.jar --queue={queue}",
    "timeout 9 queue-activation read {queue}",
    "timeout -k 5 --signal=INT 9 reader {queue}",
    "nice -n 10 reader --queue={queue}",
    "nice -n -5 ionice -c3 stdbuf -oL nohup reader {queue}",
    "env A=b reader {queue}",
    "env -i -u HOME -- A=b B=c python3 reader.py {queue}",
    "flock /tmp/lock reader {queue}",
    "sudo -n -u reader /srv/read {queue}",
    "xargs -n 1 reader {queue}",
    "busybox timeout 9 reader {queue}",
    "find /srv/{queue} -exec reader {queue} ;",
    "sh -c 'echo ${HOME} $${x}; awk {print}'",
)
REFUSED = (
    "bash -ce {queue}",
    "sh -c {queue}",
    "sh -cx {queue}",
    "sh -c -- {queue}",
    "sh - {queue}",
    "sh -s {queue}",
    "bash +x {queue}",
    "bash -o pipefail {queue}",
    "bash -oe pipefail {queue}",
    "bash --rcfile {queue}",
    "sh {queue}",
    "fish -c true -c {queue}",
    "env sh -c {queue}",
    "env {queue}",
    "env A=b {queue}",
    "env -i {queue}",
    "env -u {queue} reader",
    "env -S 'sh -c' reader {queue}",
    "env '--split-string=sh -o' errexit {queue}",
    "timeout 9 sh -c {queue}",
    "timeout 9 {queue}",
    "timeout {queue} reader",
    "timeout -k 5 {queue} reader",
    "timeout --unknown 9 reader {queue}",
    "nice -n 10 {queue}",
    "nice -n {queue} reader",
    "nohup setsid {queue}",
    "flock /tmp/lock {queue}",
    "flock /tmp/lock -c {queue}",
    "sudo -u root {queue}",
    "xargs sh {queue}",
    "xargs {queue}",
    "busybox sh -c {queue}",
    "busybox {queue}",
    "python3 {queue}",
    "python3 -c {queue}",
    "python3 -m {queue}",
    "python3.11 -Bm {queue}",
    "/usr/bin/pypy3.10 -W {queue}",
    "perl -e {queue}",
    "perl -ne {queue}",
    "perl -e 1 -I {queue}",
    "ruby -r {queue} x.rb",
    "node -e {queue}",
    "node -e 1 -r {queue}",
    "lua -e 1 {queue}",
    "awk {queue} file",
    "awk -f {queue}",
    "awk -f a.awk -f {queue}",
    "sed {queue} file",
    "sed -e p -e {queue}",
    "java {queue}",
    "java -cp {queue} Reader",
    "expect {queue}",
    "make {queue}",
    "make read {queue}",
    "su -c {queue}",
    "su - reader -c read {queue}",
    "ssh host read {queue}",
    "watch read {queue}",
    "find . -exec sh -c {queue} ;",
    "find . -exec {queue} ;",
    "find . -exec sh -c 'x' sh {queue} -execdir {queue} ;",
    "sh run.sh xargs {queue}",
    "bash --norc run.sh sh {queue}",
    "sh -c x sh xargs {queue}",
    "timeout 9 -x reader {queue}",
    "/srv/tools/sh {queue}",
)
ANOTHER_PLACE = (
    "read {queue}.log",
    "read {queue}{queue}",
    "read {queue}/{procedure}",
    "read /srv/{queue}/log",
    "read queue-{queue}",
    "read 'of {queue}'",
    "read 'cat /srv/{queue}'",
    "read '$(id)/{queue}'",
    "read QUEUE={queue}",
    "read --o=exec={queue}",
    "read -q{queue}",
    "read ${queue}",
    "env A={queue} read",
    "awk -v a={queue} x",
    "sh -c 'read {queue} | tee log'",
    "bash -euo pipefail -c 'read {queue}'",
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


def problem(command: str | list[str], names: Mapping[str, str] = NAMES) -> str | None:
    return command_template.problem(command_template.split(command), names)


@pytest.mark.parametrize("command", LEGITIMATE)
def test_a_name_as_an_argument_of_a_program_is_taken(command: str) -> None:
    assert problem(command) is None


@pytest.mark.parametrize("command", REFUSED)
def test_a_name_that_an_interpreter_or_a_wrapper_could_run_is_refused(command: str) -> None:
    found = problem(command)
    assert found is not None
    assert '"$QUEUE_ACTIVATION_QUEUE"' in found
    assert "script of your own" in found


@pytest.mark.parametrize("command", ANOTHER_PLACE)
def test_a_name_in_another_place_is_refused_with_what_to_write(command: str) -> None:
    found = problem(command)
    assert found is not None
    assert "follow `--option=` or a path that ends in `/`" in found
    assert '"$QUEUE_ACTIVATION_QUEUE"' in found


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("{queue}", "must not let {queue} choose the program"),
        ("/srv/{procedure}/run", "must not let {procedure} choose the program"),
        ("sh -x -q {procedure}", "has {procedure} after `-q`, an option that this check does not know"),
        ("sh -x {procedure}", "has {procedure} where sh expects an option or a program to run"),
        ("su x -c {procedure}", "has {procedure} after su, which might run it"),
        ([], "must not be empty"),
        (" ", "must not be empty"),
    ],
)
def test_what_is_refused_says_why(command: str | list[str], what: str) -> None:
    assert what in (problem(command) or "")


def test_only_known_names_are_placeholders() -> None:
    words = command_template.split("read ${HOME} {procedure} {} {{x} {queue}")
    names = {"queue": "QUEUE_ACTIVATION_QUEUE"}
    assert command_template.problem(words, names) is None
    assert command_template.fill(words, {"queue": "q"}) == ["read", "${HOME}", "{procedure}", "{}", "{{x}", "q"]


@pytest.mark.parametrize("name", SAFE_NAMES)
def test_a_safe_name_is_put_into_its_words(name: str) -> None:
    words = command_template.split("read {queue} --queue={queue} /srv/{queue} --file=/srv/{queue} {procedure}")
    filled = command_template.fill(words, {"queue": name, "procedure": "p"})
    assert filled == ["read", name, f"--queue={name}", f"/srv/{name}", f"--file=/srv/{name}", "p"]


@pytest.mark.parametrize("name", UNSAFE_NAMES)
@pytest.mark.parametrize("command", ["read {queue}", "read --queue={queue}", "read /srv/{queue}"])
def test_an_unsafe_name_stands_in_no_argument(command: str, name: str) -> None:
    words = command_template.split(command)
    with pytest.raises(UnsafeNameError) as refused:
        command_template.fill(words, {"queue": name, "procedure": "p"})
    assert f"{name!r} cannot replace {{queue}}" in str(refused.value)


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


@pytest.mark.parametrize("command", [*REFUSED, "./unlisted -c {queue}", "./unlisted -ec {queue}"])
def test_a_queues_name_runs_nothing(tmp_path: Path, command: str) -> None:
    (tmp_path / "unlisted").symlink_to("/bin/sh")
    run_for("x;touch pwned", command, tmp_path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", UNSAFE_NAMES)
def test_no_unsafe_name_runs_anything_by_an_interpreter_that_nobody_has_listed(tmp_path: Path, name: str) -> None:
    (tmp_path / "unlisted").symlink_to("/bin/sh")
    assert not run_for(name, "./unlisted -c {queue}", tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_a_script_has_any_name_from_its_environment_or_its_arguments(tmp_path: Path) -> None:
    assert run_for("orders", """sh -c 'echo "$0" > ran' {queue}""", tmp_path)
    assert (tmp_path / "ran").read_text() == "orders\n"
    assert run_for("x;touch pwned", "sh -c 'echo ran > ran'", tmp_path)
    assert (tmp_path / "ran").read_text() == "ran\n"
