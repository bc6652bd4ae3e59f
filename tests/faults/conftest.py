"""The fixtures of the fault tests: a broker that can be killed, and the table at the end."""

from collections.abc import Callable, Iterator

import pytest
from _pytest.terminal import TerminalReporter

from tests.support.differential import Outcome
from tests.support.fault_scene import KillableBroker, Report


@pytest.fixture(scope="session")
def killable_broker(java_and_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillableBroker]:  # noqa: ARG001
    """Runs one broker for all faults. Each fault has its own topics."""
    with KillableBroker(tmp_path_factory.mktemp("faults")) as broker:
        yield broker


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Report:
    """Returns a function that adds a row to the table."""

    def add(fault: str, moments: int, found: Outcome) -> None:
        record_property("fault", (fault, moments, found.due, found.lost, found.invented, found.repeated))

    return add


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Prints the table of all faults."""
    rows = [
        value
        for outcome in ("passed", "failed")
        for test in terminalreporter.getreports(outcome)
        for name, value in test.user_properties
        if name == "fault"
    ]
    if not rows:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(
        f"{'fault':<44}{'moments':>8}{'notifications due':>19}{'lost':>6}{'invented':>10}{'repeated':>10}"
    )
    for fault, moments, due, lost, invented, repeated in rows:
        terminalreporter.write_line(f"{fault:<44}{moments:>8}{due:>19}{lost:>6}{invented:>10}{repeated:>10}")
