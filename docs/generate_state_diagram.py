"""Writes the state diagrams of the documents from the tables of transitions that the programs use.

    .venv/bin/python -m docs.generate_state_diagram [--check]

With --check it writes nothing, and ends with exit code 1 if a document differs from its table.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from streaming.core.activation import queue_monitor
from streaming.core.conversations import endpoint_states

BEGIN = "<!-- state diagram: written by docs/generate_state_diagram.py -->"
END = "<!-- end of the state diagram -->"

_DOCS = Path(__file__).parent
_ANCHOR_TEXTS = {
    queue_monitor.Anchor.KEEP: "",
    queue_monitor.Anchor.NOW: " (anchor = now)",
    queue_monitor.Anchor.NEVER: " (anchor = never)",
    queue_monitor.Anchor.ALL_NEVER: " (no quiet window)",
}

# State and trigger -> next state, and what else changes.
Transitions = Mapping[tuple[Any, Any], tuple[Any, str]]


@dataclass(frozen=True)
class Machine:
    """A table of transitions, and the document that shows it.

    Attributes:
        document: The document.
        module: The module with the table `TRANSITIONS`, and with State and Trigger.
    """

    document: Path
    module: Any

    def transitions(self) -> Transitions:
        """Returns the table."""
        return {pair: _effect(effect) for pair, effect in self.module.TRANSITIONS.items()}

    def block(self) -> str:
        """Returns the text between the markers: a diagram of the changes of the state, and a table."""
        return f"```mermaid\n{self._diagram()}\n```\n\n{self._table()}"

    def with_block(self, document: str) -> str:
        """Returns the document with the block between its markers.

        Raises:
            ValueError: A marker is missing.
        """
        before, begin, rest = document.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (begin and end):
            raise ValueError(f"The document does not have both markers: {BEGIN} and {END}")
        return f"{before}{begin}\n\n{self.block()}\n\n{end}{after}"

    def _diagram(self) -> str:
        labels: dict[tuple[Any, Any], list[str]] = {}
        for (state, trigger), (next_state, _) in self.transitions().items():
            if next_state is not state:
                labels.setdefault((state, next_state), []).append(trigger.name)
        arrows = [f"    {a.name} --> {b.name} : {', '.join(texts)}" for (a, b), texts in labels.items()]
        return "\n".join(["stateDiagram-v2", f"    [*] --> {self.module.State.ABSENT.name}", *arrows])

    def _table(self) -> str:
        states = list(self.module.State)
        rows = [["trigger", *(f"in `{state.name}`" for state in states)], ["---"] * (1 + len(states))]
        rows += [[f"`{each.name}`", *(self._cell(state, each) for state in states)] for each in self.module.Trigger]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def _cell(self, state: Enum, trigger: Enum) -> str:
        found = self.transitions().get((state, trigger))
        if found is None:
            return "-"  # cannot happen
        next_state, text = found
        return ("stays" if next_state is state else f"`{next_state.name}`") + text


def _effect(effect: Any) -> tuple[Any, str]:
    """Returns the next state and what else changes; the table of endpoints has only the next state."""
    if isinstance(effect, tuple):
        next_state, anchor = effect
        return next_state, _ANCHOR_TEXTS[anchor]
    return effect, ""


MACHINES = (
    Machine(_DOCS / "architecture.md", queue_monitor),
    Machine(_DOCS / "conversations.md", endpoint_states),
)


def main(arguments: list[str]) -> int:
    """Writes or checks the blocks; returns the exit code."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m docs.generate_state_diagram [--check]\n")
        return 2
    code = 0
    for machine in MACHINES:
        document = machine.document.read_text(encoding="utf-8")
        wanted = machine.with_block(document)
        if document == wanted:
            continue
        if arguments:
            sys.stderr.write(f"{machine.document} is out of date. Run: python -m docs.generate_state_diagram\n")
            code = 1
        else:
            machine.document.write_text(wanted, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
