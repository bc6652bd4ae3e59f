"""The benchmarks' command lines."""

import dataclasses
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


def test_the_peers_of_services_that_are_not_set_up_are_named_before_a_broker_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    contestants, services = (importlib.import_module(name) for name in ("service_contestants", "services"))
    mirror_maker, kafka_streams = tmp_path / "mirror-maker", tmp_path / "kafka-streams"
    (kafka_streams / ".build" / "jars").mkdir(parents=True)  # as an interrupted setup leaves it
    monkeypatch.setattr(
        services,
        "CONTESTANTS",
        (
            dataclasses.replace(contestants.MIRROR_MAKER, built=mirror_maker / ".build" / "jars"),
            dataclasses.replace(contestants.KAFKA_STREAMS, built=kafka_streams / ".build" / "classes"),
        ),
    )
    monkeypatch.setattr(sys, "argv", ["services.py"])
    with pytest.raises(SystemExit, match=r"not set up: kafka-streams, mirror-maker\. .*peers/kafka-streams/setup"):
        services.main()
