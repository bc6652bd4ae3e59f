"""The observer's file while it runs: what is in a changed file counts at the next look."""

import os
from pathlib import Path
from typing import Any, cast

from streaming.daemons.activator.config import Config
from streaming.daemons.observer import observer
from streaming.daemons.observer.observer import Observer
from streaming.daemons.observer.settings import ObserverSettings
from streaming.kafka.clients import Cluster
from streaming.system.toml_file import TomlFile


class Looks:
    """Stands for the groups, the reporter and the place of an observer.

    Attributes:
        groups: The groups of the entries at each look, and whether the look was told of a change.
    """

    denied = None

    def __init__(self) -> None:
        self.groups: list[tuple[list[str | None], bool]] = []

    def look(self, config: Config, *, is_changed: bool) -> list[Any]:
        self.groups.append(([entry.group for entry in config.programs], is_changed))
        return []

    def check(self) -> None: ...

    def poll(self) -> None: ...


def test_a_group_that_is_new_in_the_file_is_looked_at_as_soon_as_the_file_is_read_again(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(observer, "_CONFIG_LOOK_INTERVAL_S", 0.0)
    file, looks, said = tmp_path / "activator.toml", Looks(), list[str]()

    def write(group: str) -> None:
        file.write_text(f'[[programs]]\ngroup = "{group}"\ncommand = "true"\n')

    write("one")
    watching = Observer(ObserverSettings(Cluster(""), file), said.append)
    watching._config = TomlFile(file, Config)
    watching._sole = watching._reporter = watching._groups = cast("Any", looks)
    watching._look()
    write("another")
    os.utime(file, ns=(1, 1))
    watching._look()
    watching._look()
    assert looks.groups == [(["one"], False), (["another"], True), (["another"], False)]
    assert said == ["observer ready", "config reloaded"]
