"""The task host's configuration file: the settings that it accepts, and the errors for invalid ones."""

import os
from pathlib import Path

import pytest

from streaming.daemons.host.config import HostConfig
from streaming.errors import UserError
from streaming.system import toml_file

SHORTEST = '[[procedures]]\nname = "p"\ncommand = "true"\n'


def config(folder: Path, text: str) -> HostConfig:
    path = folder / "host.toml"
    path.write_text(text)
    return toml_file.load(path, HostConfig)


def test_the_shortest_config(tmp_path: Path) -> None:
    read = config(tmp_path, SHORTEST)
    assert read.handlers == 2 * (os.cpu_count() or 1)
    assert read.stop_timeout_ms == 30_000
    (procedure,) = read.procedures
    assert procedure.words() == ["true"]
    assert (procedure.directory, procedure.environment, procedure.log_file) == (None, {}, None)


def test_all_settings(tmp_path: Path) -> None:
    read = config(
        tmp_path,
        """
        handlers = 3
        stop_timeout = "2m"
        [[procedures]]
        name = "pay"
        function = "payments.runs:Pay.run"
        directory = "/srv/payments"
        environment = { LOG_LEVEL = "info", EMPTY = "" }
        log_file = "pay.log"
        [[procedures]]
        name = "orders"
        command = ["python", "read orders.py", "{queue}"]
        """,
    )
    assert (read.handlers, read.stop_timeout_ms) == (3, 120_000)
    pay, orders = read.procedures
    assert (pay.function, pay.directory, pay.log_file) == ("payments.runs:Pay.run", "/srv/payments", "pay.log")
    assert pay.environment == {"LOG_LEVEL": "info", "EMPTY": ""}
    assert orders.words() == ["python", "read orders.py", "{queue}"]


def test_a_command_line_is_split_as_a_shell_would(tmp_path: Path) -> None:
    read = config(tmp_path, "[[procedures]]\nname = 'p'\ncommand = \"sh -c 'exit 3' {queue}\"\n")
    assert read.procedures[0].words() == ["sh", "-c", "exit 3", "{queue}"]


def test_the_first_procedure_that_fits_is_taken(tmp_path: Path) -> None:
    names = ["dbo.pay", "dbo.*", "[dbo].[pay]", "Pay?", "*"]
    read = config(tmp_path, "".join(f'[[procedures]]\nname = "{name}"\ncommand = "true"\n' for name in names))

    def taken(name: str | None) -> str:
        procedure = read.procedure(name)
        assert procedure is not None
        return procedure.name

    assert [taken(name) for name in ("dbo.pay", "dbo.order", "[dbo].[pay]", "Pay1")] == names[:4]
    assert [taken(name) for name in ("pay1", None)] == ["*", "*"]


def test_an_unknown_procedure(tmp_path: Path) -> None:
    read = config(tmp_path, SHORTEST)
    assert read.procedure("P") is None
    assert read.procedure(None) is None


FIRST = "[[procedures]] number 1"
NAMED = "[[procedures]]\nname = 'p'\n"


@pytest.mark.parametrize(
    ("text", "entry", "reason"),
    [
        ("procedures = []", "", "`procedures` must not be empty"),
        (f"handlers = 0\n{SHORTEST}", "", "`handlers` must be from 1 to 1000"),
        (f"\nstop_timeout = '5'\n{SHORTEST}", "", "`stop_timeout`: '5' is not a duration"),
        (f"{SHORTEST}max = 3\n", FIRST, "unknown field `max`"),
        (f"{SHORTEST}log_file = 3\n", "[[procedures]] number 1, name 'p', log_file: ", "Expected `str"),
        (f"{SHORTEST}function = 'a:b'\n", FIRST, "`function` and `command` exclude each other"),
        (
            f"{SHORTEST}environment = {{ 'A=B' = '' }}\n",
            FIRST,
            "`environment` has the invalid variable name 'A=B'",
        ),
        (
            f"{SHORTEST}[[procedures]]\nname = 'q'\n",
            "[[procedures]] number 2, name 'q': ",
            "neither `command` nor `function`",
        ),
        (f"{SHORTEST}[[procedures]]\nname = ''\n", "[[procedures]] number 2, name '': ", "`name` must not be empty"),
        (
            "[[procedures]]\nname = 'p'\nfunction = 'payments.run'\n",
            FIRST,
            "`function` must be written as module:function",
        ),
        (NAMED + "command = ' '\n", FIRST, "`command` must not be empty"),
        (
            "[[procedures]]\nname = 'p'\ncommand = '{procedure}'\n",
            FIRST,
            "must not let {procedure} choose the program",
        ),
        (
            "[[procedures]]\nname = 'p'\ncommand = ['sh', '-c', 'x {queue}']\n",
            FIRST,
            "has {queue} inside 'x {queue}'",
        ),
        (
            "[[procedures]]\nname = 'p'\ncommand = ['run', '--name={procedure}']\n",
            FIRST,
            "has {procedure} inside '--name={procedure}'",
        ),
        (
            "[[procedures]]\nname = 'a b'\ncommand = 'x {procedure}'\n",
            FIRST,
            "`name`: 'a b' cannot replace {procedure}",
        ),
        (NAMED + "command = []\n", FIRST, "`command` must not be empty"),
        (
            "[[procedures]]\nname = 'p'\ncommand = \"a 'b\"\n",
            FIRST,
            "`command` is not a valid command line: No closing quotation",
        ),
    ],
)
def test_an_error_names_its_entry(tmp_path: Path, text: str, entry: str, reason: str) -> None:
    with pytest.raises(UserError) as refused:
        config(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'host.toml'}: {entry}")
    assert reason in str(refused.value)


def test_a_name_that_is_in_no_argument_may_have_any_characters(tmp_path: Path) -> None:
    read = config(tmp_path, "[[procedures]]\nname = 'a b'\ncommand = 'run {queue} ${HOME}'\n")
    assert read.procedures[0].words() == ["run", "{queue}", "${HOME}"]


def test_a_config_without_procedures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="missing required field `procedures`"):
        config(tmp_path, "handlers = 3")
