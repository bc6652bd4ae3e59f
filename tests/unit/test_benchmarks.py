"""The benchmarks' command lines."""

import importlib
import sys
from pathlib import Path

import pytest

from tests.support.command_lines import ROOT


def test_a_peer_that_is_not_set_up_is_named_with_what_sets_it_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    contestants, throughput = (importlib.import_module(name) for name in ("contestants", "throughput"))
    monkeypatch.setattr(contestants, "PEERS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["throughput.py", "--only", "Quix", "Flink"])
    (tmp_path / "flink" / ".build" / "classes").mkdir(parents=True)
    (tmp_path / "quix" / ".build").mkdir(parents=True)  # as an interrupted setup leaves it
    with pytest.raises(SystemExit, match=r"not set up: pyflink, quix\. `make bench` does so.*peers/quix/setup"):
        throughput.main()
