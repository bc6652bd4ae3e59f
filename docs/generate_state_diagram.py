"""Writes the state diagram of docs/architecture.md from the table of transitions that the monitor uses.

    .venv/bin/python -m docs.generate_state_diagram [--check]

With --check it writes nothing, and ends with exit code 1 if the document differs from the table.
"""

import sys
from pathlib import Path

from streaming.core.activation.queue_monitor import TRANSITIONS, Anchor, State, Trigger

DOCUMENT = Path(__file__).with_name("architecture.md")
BEGIN = "<!-- state diagram: written by docs/generate_state_diagram.py -->"
END = "<!-- end of the state diagram -->"

_ANCHOR_TEXTS = {
    Anchor.KEEP: "",
    Anchor.NOW: " (anchor = now)",
    Anchor.NEVER: " (anchor = never)",
    Anchor.ALL_NEVER: " (all times = never)",
}


def block() -> str:
    """Returns the text between the markers: a diagram of the transitions that change something, and a table of all."""
    return f"```mermaid\n{_diagram()}\n```\n\n{_table()}"


def with_block(document: str) -> str:
    """Returns the document with the block between its markers.

    Raises:
        ValueError: A marker is missing.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"The document does not have both markers: {BEGIN} and {END}")
    return f"{before}{begin}\n\n{block()}\n\n{end}{after}"


def _diagram() -> str:
    labels: dict[tuple[State, State], list[str]] = {}
    for (state, trigger), (next_state, anchor) in TRANSITIONS.items():
        if next_state is not state or anchor is not Anchor.KEEP:
            labels.setdefault((state, next_state), []).append(trigger.name + _ANCHOR_TEXTS[anchor])
    arrows = [f"    {a.name} --> {b.name} : {', '.join(texts)}" for (a, b), texts in labels.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {State.ABSENT.name}", *arrows])


def _table() -> str:
    rows = [["trigger", *(f"in `{state.name}`" for state in State)], ["---"] * (1 + len(State))]
    rows += [[f"`{trigger.name}`", *(_cell(state, trigger) for state in State)] for trigger in Trigger]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(state: State, trigger: Trigger) -> str:
    if (state, trigger) not in TRANSITIONS:
        return "cannot happen"
    next_state, anchor = TRANSITIONS[state, trigger]
    name = "stays" if next_state is state else f"`{next_state.name}`"
    return name + _ANCHOR_TEXTS[anchor]


def main(arguments: list[str]) -> int:
    """Writes or checks the block; returns the exit code."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m docs.generate_state_diagram [--check]\n")
        return 2
    document = DOCUMENT.read_text(encoding="utf-8")
    wanted = with_block(document)
    if document == wanted:
        return 0
    if arguments:
        sys.stderr.write(f"{DOCUMENT} is out of date. Run: python -m docs.generate_state_diagram\n")
        return 1
    DOCUMENT.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
