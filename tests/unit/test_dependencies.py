"""Each package that the code imports is declared, pinned in one place, and explained."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.support.command_lines import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
)
OWN = {"streaming", "producers"}


def normal(name: str) -> str:
    """Returns a distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


LOCKED = {normal(name): version for name, version in CONSTRAINTS.items()}


def declared(requirements: list[str]) -> dict[str, str]:
    """Returns distribution -> version; the version is empty if none is given."""
    parts = (requirement.partition("==") for requirement in requirements)
    return {normal(name): version for name, _, version in parts}


def imported(except_in: str | None = None) -> set[str]:
    """Returns the top-level modules that the packages import, those of one folder left out."""
    modules = set()
    for package in sorted(OWN):
        for path in (ROOT / package).rglob("*.py"):
            if except_in is not None and path.is_relative_to(ROOT / package / except_in):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    modules |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    modules.add(node.module.partition(".")[0])
    return modules - OWN - sys.stdlib_module_names


def test_what_is_imported_is_declared() -> None:
    distributions = packages_distributions()
    needed = {normal(distributions[module][0]) for module in imported("cli/dashboard")}
    assert needed <= declared(PROJECT["project"]["dependencies"]).keys()


def test_what_the_dashboard_imports_is_declared() -> None:
    distributions = packages_distributions()
    needed = {normal(distributions[module][0]) for module in imported()}
    extras = PROJECT["project"]["optional-dependencies"]
    assert needed <= declared(PROJECT["project"]["dependencies"] + extras["dashboard"]).keys()


def test_each_version_is_that_of_the_lock() -> None:
    requirements = PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        requirements += extra
    versions = {name: version for name, version in declared(requirements).items() if name != "setuptools"}
    assert {name: version or LOCKED[name] for name, version in versions.items()} == {
        name: LOCKED[name] for name in versions
    }


def test_mypy_has_one_version_here() -> None:
    assert (ROOT / "pyproject.toml").read_text().count(LOCKED["mypy"]) == 1


def test_each_dependency_has_its_reason() -> None:
    document = (ROOT / "docs" / "dependencies.md").read_text()
    everything = dict(declared(PROJECT["project"]["dependencies"]))
    for extra in ("dashboard", "dev"):
        everything |= declared(PROJECT["project"]["optional-dependencies"][extra])
    missing = [name for name in everything if f"| `{name}` {LOCKED[name]} |" not in document]
    assert missing == []


def test_the_locks_header_names_the_document_that_tells_how_to_renew_it() -> None:
    [document] = re.findall(r"see (\S+\.md)", (ROOT / "constraints.txt").read_text())
    assert "constraints.txt" in (ROOT / document).read_text()
    assert "How to renew constraints.txt" in (ROOT / document).read_text()
