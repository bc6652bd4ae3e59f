"""Invalid TOML files: the message names the entry that the user must change."""

import re
from enum import Enum
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from streaming.daemons.activator.config import Config
from streaming.daemons.host.config import HostConfig
from streaming.errors import UserError
from streaming.system import toml_file


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Program(msgspec.Struct, forbid_unknown_fields=True):
    queue: str
    max: int = 1
    words: list[str] = []
    environment: dict[str, str] = {}
    start: Literal["now", "later"] = "now"
    ends: list[Literal["soon", "late"] | None] = []
    levels: dict[str, Level] = {}

    def __post_init__(self) -> None:
        if self.max < 1:
            raise ValueError("`max` must be at least 1")


class Server(msgspec.Struct, forbid_unknown_fields=True):
    port: int = 1
    level: Level | None = None
    speed: Literal[1, 2] = 1


class Content(msgspec.Struct, forbid_unknown_fields=True):
    programs: list[Program] = []
    server: Server = msgspec.field(default_factory=Server)
    title: str = ""


def load(folder: Path, text: str) -> Content:
    path = folder / "file.toml"
    path.write_text(text, encoding="utf-8")
    return toml_file.load(path, Content)


@pytest.mark.parametrize(
    ("key", "content", "whose", "other"),
    [
        ("programs", HostConfig, "the activator's file, for `activator`", "[[procedures]]"),
        ("procedures", Config, "the host's file, for `host`", "[[programs]]"),
    ],
)
def test_the_file_of_another_program_is_called_so(
    tmp_path: Path, key: str, content: type[msgspec.Struct], whose: str, other: str
) -> None:
    path = tmp_path / "file.toml"
    path.write_text(f'[[{key}]]\nname = "a"\ncommand = "b"\n')
    with pytest.raises(UserError) as refused:
        toml_file.load(path, content)
    assert f"{path}: This is {whose}" in str(refused.value)
    assert other in str(refused.value)


def test_a_right_file(tmp_path: Path) -> None:
    assert load(tmp_path, '[[programs]]\nqueue = "a"\n[server]\nport = 2\n') == Content([Program("a")], Server(2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("other = 1\n", "Object contains unknown field `other`"),
        ("title = 1\n", "title: Expected `str`, got `int`"),
        ("server.port = true\n", "server.port: Expected `int`, got `bool`"),
        ("[server]\nport = 1\nprot = 1\n", "server: Object contains unknown field `prot`. Did you mean `port`?"),
        (
            '[[programs]]\nqueue = "a"\n[[programs]]\nmax = 2\n',
            "[[programs]] number 2: Object missing required field `queue`",
        ),
        ('[[programs]]\nqueue = "a"\nmax = "2"\n', "[[programs]] number 1, queue 'a', max: Expected `int`, got `str`"),
        ('[[programs]]\nqueue = "a"\nmax = 0\n', "[[programs]] number 1, queue 'a': `max` must be at least 1"),
        (
            '[[programs]]\nqueue = "a"\nwords = ["x", 1]\n',
            "[[programs]] number 1, queue 'a', words[1]: Expected `str`, got `int`",
        ),
        (
            '[[programs]]\nqueue = "a"\nenvironment = { A = 1 }\n',
            "[[programs]] number 1, queue 'a', environment[...]: Expected `str`, got `int`",
        ),
        (
            '[[programs]]\nqueue = "a"\nword = ["x"]\n',
            "[[programs]] number 1, queue 'a': Object contains unknown field `word`. Did you mean `words`?",
        ),
        (
            '[[programs]]\nqueue = "a"\nstart = "never"\n',
            "[[programs]] number 1, queue 'a', start: Invalid enum value 'never'. It can be 'later' or 'now'",
        ),
        (
            '[[programs]]\nqueue = "a"\nends = ["late", "never"]\n',
            "[[programs]] number 1, queue 'a', ends[1]: Invalid enum value 'never'. It can be 'late' or 'soon'",
        ),
        (
            '[[programs]]\nqueue = "a"\nlevels = { A = "no" }\n',
            "[[programs]] number 1, queue 'a', levels[...]: Invalid enum value 'no'. It can be 'high' or 'low'",
        ),
        ('server.level = "no"\n', "server.level: Invalid enum value 'no'. It can be 'high' or 'low'"),
        ("server.speed = 3\n", "server.speed: Invalid enum value 3. It can be 1 or 2"),
        ("[[program]]\n", "Object contains unknown field `program`. Did you mean `programs`?"),
        ("programs = [1]\n", "[[programs]] number 1: Expected `object`, got `int`"),
        ("programs = 1\n", "programs: Expected `array`, got `int`"),
        (
            '[programs]\nqueue = "a"\n',
            "programs: Expected `array`, got `object`. Did you mean [[programs]], with two brackets?",
        ),
        (
            '[[programs]]\nqueue = "a"\n[programs.words]\nx = 1\n',
            "[[programs]] number 1, queue 'a', words: Expected `array`, got `object`",
        ),
    ],
)
def test_a_wrong_value_is_reported_with_its_entry(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"file\.toml: {re.escape(message)}$"):
        load(tmp_path, text)


class NeedsTitle(msgspec.Struct):
    title: str


def test_what_is_missing_in_the_whole_file_has_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text("other = 1\n")
    with pytest.raises(UserError, match=r"file\.toml: Object missing required field `title`$"):
        toml_file.load(path, NeedsTitle)


def test_a_syntax_error_has_its_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"file\.toml is not valid TOML: .*line 2"):
        load(tmp_path, 'title = "x"\nother\n')


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("[" * 1_200 + "]" * 1_200, "nested too deeply"),
        ("{a=" * 1_200 + "1" + "}" * 1_200, "nested too deeply"),
        (".".join(["a"] * 3_000) + " = 1", ""),
        ("1" * 5_000, "Exceeds the limit"),
    ],
    ids=["lists", "tables", "keys", "digits"],
)
def test_too_deep_and_too_long_values_are_reported_too(tmp_path: Path, value: str, reason: str) -> None:
    with pytest.raises(UserError, match=rf"file\.toml.*{reason}"):
        load(tmp_path, f"title = {value}\n")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"file\.toml cannot be read: No such file"):
        toml_file.load(tmp_path / "file.toml", Content)
    (tmp_path / "file.toml").write_bytes(b'title = "\xff"')
    with pytest.raises(UserError, match=r"file\.toml is not UTF-8"):
        toml_file.load(tmp_path / "file.toml", Content)


def test_a_changed_file_is_noticed_and_a_wrong_one_leaves_the_content(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text("server.port = 1\n")
    file = toml_file.TomlFile(path, Content)
    assert not file.has_changed()
    path.write_text("server.port = 'x'\n")
    assert file.has_changed()
    with pytest.raises(UserError, match="Expected `int`"):
        file.reload()
    assert not file.has_changed(), "an error is reported once"
    assert file.current.server.port == 1

    path.unlink()
    assert file.has_changed()
    with pytest.raises(UserError, match="cannot be read"):
        file.reload()
    path.write_text("server.port = 2\n")
    assert file.has_changed()
    file.reload()
    assert file.current.server.port == 2


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text("\ufefftitle = 'x'\nserver.port = 1\n", encoding="utf-8")
    assert toml_file.load(tmp_path / "file.toml", Content).server.port == 1
