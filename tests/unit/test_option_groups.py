"""Dataclasses whose fields are options of a command."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from streaming.cli.option_groups import expand
from streaming.errors import UserError


@dataclass(frozen=True)
class Times:
    wait_s: Annotated[int, typer.Option("--wait", help="How long to wait.", min=1)] = 5
    names: Annotated[list[str] | None, typer.Option("--name")] = None

    def in_words(self) -> str:
        return f"{self.wait_s} s for {self.names}"


@dataclass(frozen=True)
class MoreTimes(Times):
    pause_s: Annotated[int, typer.Option("--pause")] = 1


def app_of(said: list[str]) -> typer.Typer:
    app, family = typer.Typer(), typer.Typer()
    app.add_typer(family, name="family")

    @app.command()
    def look(where: Annotated[str, typer.Argument()], often: bool = False, *, times: Times) -> None:
        said.append(f"{where}, {often}, {times.in_words()}")

    @family.callback(invoke_without_command=True)
    def begin(*, times: Times) -> None:
        said.append(f"begins: {times.in_words()}")

    @family.command()
    def stay(*, times: MoreTimes) -> None:
        said.append(f"stays {times.wait_s} s and {times.pause_s} s")
        if times.pause_s == 0:
            raise UserError("no pause")

    expand(app)
    return app


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("look here", ["here, False, 5 s for None"]),
        ("look here --often --wait 7 --name a --name b", ["here, True, 7 s for ['a', 'b']"]),
        ("family --wait 2", ["begins: 2 s for None"]),
        ("family stay --pause 3", ["begins: 5 s for None", "stays 5 s and 3 s"]),
    ],
)
def test_a_command_gets_the_values_of_its_options_as_a_group(line: str, expected: list[str]) -> None:
    said: list[str] = []
    app_of(said)(line.split(), standalone_mode=False)
    assert said == expected


def test_an_invalid_value_is_refused_by_the_name_of_the_option() -> None:
    with pytest.raises(typer.BadParameter) as refused:
        app_of([])(["look", "here", "--wait", "0"], standalone_mode=False)
    assert refused.value.param is not None
    assert refused.value.param.opts == ["--wait"]


def test_an_error_of_the_command_comes_through() -> None:
    with pytest.raises(UserError, match="no pause"):
        app_of([])(["family", "stay", "--pause", "0"], standalone_mode=False)
