"""The state diagram in docs/ agrees with the table in the code."""

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from streaming.core.activation.queue_monitor import TRANSITIONS
from tests.support.command_lines import ROOT


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("state_diagram", ROOT / "docs" / "generate_state_diagram.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_state_diagram_is_that_of_the_table(generator: ModuleType) -> None:
    document = generator.DOCUMENT.read_text()

    assert document == generator.with_block(document), "run: python -m docs.generate_state_diagram"


def test_the_diagram_follows_the_table(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    document = generator.DOCUMENT.read_text()
    for pair in TRANSITIONS:
        fewer = {other: effect for other, effect in TRANSITIONS.items() if other != pair}
        monkeypatch.setattr(generator, "TRANSITIONS", fewer)

        assert generator.with_block(document) != document, pair


def test_a_document_without_its_markers_is_an_error(generator: ModuleType) -> None:
    with pytest.raises(ValueError, match="markers"):
        generator.with_block("# Architecture\n")


def test_the_check_runs_as_a_command() -> None:
    command = [sys.executable, "-B", "-m", "docs.generate_state_diagram"]

    assert subprocess.run([*command, "--check"], cwd=ROOT, check=False).returncode == 0
    assert subprocess.run([*command, "--no"], cwd=ROOT, capture_output=True, check=False).returncode == 2
