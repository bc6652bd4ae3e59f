"""The scenarios that every level of tests runs: timelines of one queue, and the records that must be written."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "activation.json"

# The type of an expected start of a task, as of its record in queue-tasks.
TASK = "START_ACTIVATED_TASK"


@dataclass(frozen=True)
class Scenario:
    """One timeline; `about` in the file explains its fields."""

    name: str
    settings: dict[str, Any]
    until_ms: int
    events: list[dict[str, Any]]
    expect: list[dict[str, Any]]

    @property
    def id(self) -> str:
        return f"{self.name} ({self.settings['semantics']})".replace(" ", "-")


def load() -> list[Scenario]:
    """Returns all scenarios, in the file's order."""
    return [
        Scenario(entry["name"], entry["settings"], entry["until_ms"], entry["events"], entry["expect"])
        for entry in json.loads(PATH.read_text())["scenarios"]
    ]
