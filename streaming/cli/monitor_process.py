"""Runs a monitor, or the programs of a machine, as a separate process: for the demos, `prepare` and the benchmarks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment

# `run` stops its programs one after the other.
_STOP_ALL_TIMEOUT_S = 30.0


@contextmanager
def monitor_process(
    bootstrap_servers: str,
    folder: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[ChildProcess]:
    """Starts a monitor, runs the block when the monitor is ready, and stops the monitor at the end of the block.

    Args:
        bootstrap_servers: Kafka's bootstrap servers.
        folder: The folder for the monitor's checkpoint, `checkpoint`, and its log, `monitor.log`.
        options: Further options of the command.
        environment: Further environment variables.

    Raises:
        UserError: The monitor does not become ready.
    """
    place = ["--bootstrap-servers", bootstrap_servers, "--checkpoint-location", str(folder / "checkpoint")]
    variables = own_environment() | dict(environment or {})
    command = [*THIS_COMMAND, "monitor", *place, *options]
    with ChildProcess(command, log_file=folder / "monitor.log", env=variables) as process:
        process.wait_until_said("monitor ready")
        yield process


@contextmanager
def all_programs(bootstrap_servers: str, folder: Path) -> Iterator[ChildProcess]:
    """Starts monitor, router and transport together; otherwise like `monitor_process`, with the log `run.log`."""
    place = ["--bootstrap-servers", bootstrap_servers, "--checkpoints", str(folder / "checkpoints")]
    with ChildProcess([*THIS_COMMAND, "run", *place], log_file=folder / "run.log", env=own_environment()) as process:
        try:
            process.wait_until_said("run ready")
            yield process
        finally:
            process.stop(_STOP_ALL_TIMEOUT_S)
