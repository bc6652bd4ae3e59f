"""The state diagrams in docs/ agree with the tables in the code."""

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from tests.support.command_lines import ROOT


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("state_diagram", ROOT / "docs" / "generate_state_diagram.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_state_diagrams_are_those_of_the_tables(generator: ModuleType) -> None:
    for machine in generator.MACHINES:
        document = machine.document.read_text()

        assert document == machine.with_block(document), "run: python -m docs.generate_state_diagram"


def test_the_diagrams_follow_the_tables(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in generator.MACHINES:
        document = machine.document.read_text()
        transitions = machine.module.TRANSITIONS
        for pair in transitions:
            fewer = {other: effect for other, effect in transitions.items() if other != pair}
            with monkeypatch.context() as patched:
                patched.setattr(machine.module, "TRANSITIONS", fewer)

                assert machine.with_block(document) != document, pair


def test_a_document_without_its_markers_is_an_error(generator: ModuleType) -> None:
    with pytest.raises(ValueError, match="markers"):
        generator.MACHINES[0].with_block("# Architecture\n")


def test_the_check_runs_as_a_command() -> None:
    command = [sys.executable, "-B", "-m", "docs.generate_state_diagram"]

    assert subprocess.run([*command, "--check"], cwd=ROOT, check=False).returncode == 0
    assert subprocess.run([*command, "--no"], cwd=ROOT, capture_output=True, check=False).returncode == 2
