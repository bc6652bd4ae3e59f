"""The packages of docs/architecture.md: imports go one way, and the core needs nothing but Python."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import streaming.core

ROOT = Path(streaming.core.__file__).parents[2]

# Room -> the rooms it may import from. A room is a folder of `streaming`, or `producers`.
ROOMS = {
    "core": (),
    "system": ("core",),
    "wire": ("core", "system"),
    "kafka": ("core", "system", "wire"),
    "producers": ("system", "wire", "kafka"),
    "spark": ("core", "system", "wire", "kafka"),
    "daemons": ("core", "system", "wire", "kafka", "spark", "producers"),
    "cli": ("core", "system", "wire", "kafka", "spark", "producers", "daemons"),
}
# The modules directly in `streaming`. Every room may use the errors.
OUTSIDE_ROOMS = {"streaming", "streaming.__main__", "streaming.errors"}
# The parts that programs which run a query have in common. It is the only folder of `daemons` that others may use.
SHARED = "query"
# The observer and the activator read the same file.
SHARED_FILE = "streaming.daemons.activator.config"
# The programs that start this project's readers.
READERS_ARE_KNOWN_BY = {"streaming.daemons.activator"}

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("streaming", "producers")
    for path in (ROOT / package).rglob("*.py")
}
CORE = sorted(name for name in FILES if name.startswith("streaming.core"))

LOADED = """
import json, sys
before = set(sys.modules)
__import__(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imports_of(name: str) -> Iterator[str]:
    """Yields the modules of this project that a module imports, at its top or anywhere below."""
    for node in ast.walk(ast.parse(FILES[name].read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (found if found in FILES else str(node.module) for found in names if str(node.module) in FILES)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)


def room_of(name: str) -> str:
    first, _, rest = name.partition(".")
    return first if first == "producers" else rest.partition(".")[0]


@pytest.mark.parametrize("name", sorted(FILES.keys() - OUTSIDE_ROOMS))
def test_a_module_imports_only_from_the_rooms_below(name: str) -> None:
    room = room_of(name)
    assert room in ROOMS, f"{name} is in no room"
    wrong = {
        imported
        for imported in imports_of(name)
        if imported != "streaming.errors" and room_of(imported) not in (room, *ROOMS[room])
    }
    assert not wrong


def test_what_a_query_needs_of_spark_knows_no_query() -> None:
    queries = tuple(f"streaming.spark.{path.parent.name}" for path in (ROOT / "streaming/spark").glob("*/__init__.py"))
    assert queries
    general = [name for name in FILES if name.startswith("streaming.spark") and not name.startswith(queries)]
    assert not {name: found for name in general for found in imports_of(name) if found.startswith(queries)}


def test_a_program_that_runs_for_long_knows_no_other_one() -> None:
    daemons = [name for name in FILES if name.startswith("streaming.daemons.")]
    assert not {
        name: found
        for name in daemons
        for found in imports_of(name)
        if found.startswith("streaming.daemons")
        and found.split(".")[2] not in (name.split(".")[2], SHARED)
        and found != SHARED_FILE
    }


def test_readers_are_known_only_where_they_are_started() -> None:
    daemons = [name for name in FILES if name.startswith("streaming.daemons.")]
    knowing = {".".join(name.split(".")[:3]) for name in daemons for found in imports_of(name) if "producers" in found}
    assert knowing == READERS_ARE_KNOWN_BY


def test_no_module_imports_itself_by_way_of_others() -> None:
    TopologicalSorter({name: set(imports_of(name)) - {name} for name in FILES}).prepare()


@pytest.mark.parametrize("room", ["core", "spark", "daemons", "cli"])
def test_no_folder_of_a_room_imports_itself_by_way_of_others(room: str) -> None:
    inside = f"streaming.{room}."
    folders: dict[str, set[str]] = {}
    for name in FILES:
        if name.startswith(inside) and name.count(".") > 2:
            found = {each.split(".")[2] for each in imports_of(name) if each.startswith(inside) and each.count(".") > 2}
            folder = name.split(".")[2]
            folders.setdefault(folder, set()).update(found - {folder})
    assert folders
    TopologicalSorter(folders).prepare()


@pytest.mark.parametrize("module", ["streaming", *CORE])
def test_a_module_of_the_core_loads_nothing_foreign(module: str) -> None:
    command = [sys.executable, "-B", "-c", LOADED, module]
    loaded = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout)

    assert module in loaded
    foreign = [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names]
    # mypyc puts the compiled code into the second module.
    own = ("streaming", "queue_activation__mypyc")
    assert [name for name in foreign if name not in own and not name.startswith("streaming.core")] == []


def test_the_core_was_found() -> None:
    assert "streaming.core.activation.shard" in CORE
