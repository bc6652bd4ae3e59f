"""Runs a monitor as a separate process, for the demo, `prepare` and the benchmarks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment


@contextmanager
def monitor_process(
    bootstrap_servers: str,
    folder: Path,
    ready_timeout_s: float,
    *options: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[ChildProcess]:
    """Starts a monitor, which is ready when the block begins, and stops it at the end of the block.

    Args:
        bootstrap_servers: Kafka's bootstrap servers.
        folder: The folder for the monitor's checkpoint, `checkpoint`, and its log, `monitor.log`.
        ready_timeout_s: The longest time until it is ready.
        options: Further options of the command.
        environment: Further environment variables.

    Raises:
        UserError: The monitor does not become ready.
    """
    command = [*THIS_COMMAND, "monitor", "--bootstrap-servers", bootstrap_servers]
    command += ["--checkpoint-location", str(folder / "checkpoint"), *options]
    variables = own_environment() | dict(environment or {})
    with ChildProcess(command, log_file=folder / "monitor.log", env=variables) as process:
        process.wait_until_said("monitor ready", ready_timeout_s)
        yield process
