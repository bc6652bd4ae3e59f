"""The layout of a checkpoint: the errors about a damaged file, and the id that no other checkpoint has."""

from typing import Any

import msgspec
import pytest

from streaming.errors import UserError
from streaming.spark import checkpoint_files, layout_file
from streaming.spark.activation import checkpoint_layout
from streaming.spark.activation.checkpoint_layout import Layout, Wanted

LAYOUT = Layout(3, 2, "p-", [0, 1], {"p-queue-arrivals": "an id"}, None, id="its own id")
# As 0.1.0 wrote it.
OLDER = b'{"format_version":2,"shards":8,"topic_prefix":"fixture-","shard_keys":[0,1,11,2,6,12,3,13]}'
LOCATION = "file:///checkpoints/monitor"
WANTED = Wanted(2, "p-", {}, None)


class Files:
    """A fake of Hadoop's file system and of its paths."""

    def __init__(self, content: dict[str, bytes], *, renames: bool = True) -> None:
        self.content = content
        self._renames = renames

    def open_path(self, _spark: Any, *parts: str) -> tuple["FakePath", "Files"]:
        return FakePath("/".join(parts)), self

    def read(self, _spark: Any, _file_system: Any, path: "FakePath") -> bytes:
        return self.content[path]

    def exists(self, path: "FakePath") -> bool:
        return path in self.content

    def create(self, path: "FakePath", _overwrites: bool) -> "FakeStream":
        return FakeStream(self.content, path)

    def rename(self, source: "FakePath", target: "FakePath") -> bool:
        if self._renames:
            self.content[target] = self.content.pop(source)
        return self._renames


class FakePath(str):
    """A fake of Java's path."""

    __slots__ = ()

    def suffix(self, text: str) -> "FakePath":
        return FakePath(self + text)


class FakeStream:
    """A fake of the stream that writes a file."""

    def __init__(self, content: dict[str, bytes], path: str) -> None:
        self._content = content
        self._path = path

    def write(self, content: bytearray) -> None:
        self._content[self._path] = bytes(content)

    def close(self) -> None:
        pass


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    return use(Files({}), monkeypatch)


def use(files: Files, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(checkpoint_files, "open_path", files.open_path)
    monkeypatch.setattr(checkpoint_files, "read", files.read)
    monkeypatch.setattr(checkpoint_layout, "shuffle_partitions", lambda _spark: 2)
    return files


def settle() -> Layout:
    return checkpoint_layout.settle(None, LOCATION, WANTED)  # type: ignore[arg-type]


def keep(layout: Layout) -> None:
    checkpoint_layout.keep(None, LOCATION, layout)  # type: ignore[arg-type]


def id_of(layout: Layout, location: str = LOCATION) -> str:
    return checkpoint_layout.id_of(None, location, layout)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", msgspec.json.encode(LAYOUT)[:40], b"\0" * 100, b"{}", b'{"shards": "8"}'])
def test_a_torn_layout_says_what_to_do(content: bytes) -> None:
    with pytest.raises(UserError, match=r"queue-activation.json is corrupt. Restore the file from any backup"):
        layout_file.decode(content, LOCATION, Layout, "monitor")


def test_the_checkpoint_of_another_program_is_refused(files: Files) -> None:
    files.content[f"{LOCATION}/queue-activation.json"] = b'{"program": "router", "format_version": 1}'
    with pytest.raises(UserError, match="belongs to a router, not to a monitor"):
        settle()


def test_a_new_checkpoint_is_written_only_when_it_is_kept_and_has_an_id_of_its_own(files: Files) -> None:
    first, second = settle(), settle()
    assert files.content == {}, "a monitor that is refused leaves nothing behind"
    assert id_of(first) != id_of(second)
    keep(first)
    assert list(files.content) == [f"{LOCATION}/queue-activation.json"]
    found = settle()
    assert found == first
    keep(found)
    assert id_of(settle()) == id_of(first)


def test_a_checkpoint_that_another_monitor_has_begun_meanwhile_is_left_as_it_is(files: Files) -> None:
    mine, others = settle(), settle()
    keep(others)
    with pytest.raises(UserError, match="Another monitor has just begun the checkpoint"):
        keep(mine)
    assert settle() == others
    assert len(files.content) == 1


def test_a_layout_that_cannot_be_put_into_its_place_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    use(Files({}, renames=False), monkeypatch)
    with pytest.raises(UserError, match="cannot be written"):
        keep(LAYOUT)


def test_an_older_checkpoint_has_the_id_of_its_query(files: Files) -> None:
    older = layout_file.decode(OLDER, LOCATION, Layout, "monitor")
    assert id_of(older) == id_of(older) != id_of(older, LOCATION + "-2")
    files.content[f"{LOCATION}/metadata"] = b'{"id":"Sparks own"}'
    assert id_of(older) == "Sparks own"
    assert id_of(LAYOUT) == "its own id"


@pytest.mark.parametrize("content", [b"", b'{"id":', b"{}"])
def test_a_torn_file_of_the_query_says_what_to_do(files: Files, content: bytes) -> None:
    files.content[f"{LOCATION}/metadata"] = content
    with pytest.raises(UserError, match=r"metadata is missing or corrupt\. Restore the file"):
        checkpoint_files.query_id(None, LOCATION)  # type: ignore[arg-type]
