"""The command `queue-activation run`: the programs of one machine, as one."""

import os
from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    KafkaConfig,
    LogFormatOption,
    TakeOver,
    TopicPrefix,
    option,
)
from streaming.errors import UserError
from streaming.system import hints, stop_signals
from streaming.system.logs import LogFormat

# The variables of options that two of the programs have, and that must differ.
_DIFFERENT = ("QUEUE_ACTIVATION_CHECKPOINT_LOCATION", "QUEUE_ACTIVATION_METRICS_PORT", "QUEUE_ACTIVATION_GROUP_ID")


@stop_signals.orderly("run")
def run(
    context: typer.Context,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    topic_prefix: TopicPrefix = "",
    checkpoints: Annotated[
        Path | None,
        option(
            "--checkpoints",
            "Folder for the checkpoints of monitor and router. Without it, they are where the tables [monitor] and "
            "[router] in the file of --config say.",
            file_okay=False,
        ),
    ] = None,
    take_over: TakeOver = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    kafka_config: KafkaConfig = None,
) -> None:
    """Run monitor, router and transport on this machine, until Ctrl-C or SIGTERM.

    Each is a process of its own, and its name comes before each of its lines. The transport starts when the other two
    are ready. Prints `run ready` when all three are. If one of them ends, the others are stopped, and `run` ends with
    its exit code.

    Their other options come from the tables [monitor], [router] and [transport] in the file of --config, or from the
    environment. The topics must exist: run `queue-activation topics` first.
    """
    from streaming.system.processes import THIS_COMMAND
    from streaming.system.together import Program, Together

    file = context.parent.params.get("config") if context.parent is not None else None
    first = [*THIS_COMMAND, *(["--config", str(Path(file).absolute())] if file is not None else [])]
    shared = ["--bootstrap-servers", bootstrap_servers, "--topic-prefix", topic_prefix]
    shared += ["--log-format", log_format.value]
    if kafka_config is not None:
        shared += ["--kafka-config", str(kafka_config.absolute())]

    def program(name: str, *options: str, after: frozenset[str] = frozenset()) -> Program:
        return Program(name, [*first, name, *shared, *options], f"{name} ready", after)

    def place(name: str) -> list[str]:
        location = [] if checkpoints is None else ["--checkpoint-location", str(checkpoints.absolute() / name)]
        return [*location, *(["--take-over"] if take_over else [])]

    # They are stopped in this order: what the router has decided last can still be delivered and activate a reader.
    programs = [
        program("router", *place("router")),
        # Several transports share the work, so one would take some from another `run` before that `run` refuses this.
        program("transport", after=frozenset(("router", "monitor"))),
        program("monitor", *place("monitor")),
    ]
    with stop_signals.taken() as signals:
        signals.only_note()
        raise typer.Exit(Together(programs, _environment(checkpoints), "run ready").run(signals))


def _environment(checkpoints: Path | None) -> dict[str, str]:
    """Returns the environment of the programs, whose sentences name the options of `run`.

    Raises:
        UserError: A variable would give two of them the same value of an option in which they must differ.
    """
    for variable in _DIFFERENT:
        if variable in os.environ:
            raise UserError(
                f"{variable} would apply to several programs. Write the option into the table of each in the file of "
                "--config."
            )
    return {**os.environ, hints.UNDER_RUN_VARIABLE: "" if checkpoints is None else "--checkpoints"}


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(run)
