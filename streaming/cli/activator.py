"""The command `queue-activation activator`, and `activator status`, which shows what the activator does."""

import json
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli import tables
from streaming.cli.lines import say as say_line
from streaming.cli.options import Json, LogFormatOption, Place, is_given
from streaming.errors import UserError
from streaming.system import hints, logs, runs, stop_signals, wall_clock
from streaming.system.logs import LogFormat
from streaming.system.options import option
from streaming.system.runs import Run

if TYPE_CHECKING:
    from streaming.daemons.activator.settings import ActivatorEvent

_DEFAULT_STATE_DIRECTORY = Path("checkpoints/activator")
StateDirectory = Annotated[
    Path, option("--state-directory", "Folder for the state: running programs, held notifications.", file_okay=False)
]

_log = logging.getLogger(__name__)

app = typer.Typer()


@app.callback(invoke_without_command=True)
@stop_signals.orderly("activator")
def activator(
    context: typer.Context,
    config: Annotated[
        Path | None, option("--config", "TOML file with the programs for each queue. The activator picks up changes.")
    ] = None,
    state_directory: StateDirectory = _DEFAULT_STATE_DIRECTORY,
    group_id: Annotated[str, option("--group-id", "Consumer group. Default: PREFIXqueue-activation-activator.")] = "",
    stop_programs: Annotated[
        bool,
        option(
            "--stop-programs/--no-stop-programs",
            "Stop the programs too when the activator stops; otherwise they keep running.",
        ),
    ] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    *,
    place: Place,
) -> None:
    """Start reader programs for notifications, as a config file says. Prints each decision with its reason.

    Prints `activator ready` first. SIGHUP reloads the config. Ctrl-C or SIGTERM stops the activator. With
    --stop-programs, a second signal kills the programs that have not ended yet.
    """
    if context.invoked_subcommand is not None:
        return
    if config is None:
        raise UserError("--config FILE is missing: a TOML file that says which program to start for which queues")
    logs.configure(log_format)
    _refuse_beside_start(state_directory)
    from streaming.daemons.activator.service import Activator
    from streaming.daemons.activator.settings import DEFAULT_GROUP_ID, READY, ActivatorSettings

    settings = ActivatorSettings(
        cluster=place.cluster(),
        config_file=config,
        state_directory=state_directory,
        topic_prefix=place.topic_prefix,
        group_id=group_id,
        kafka_config_file=place.kafka_config,
        stop_programs=stop_programs,
    )

    def say(event: "ActivatorEvent") -> None:
        if event.what == READY:
            say_line("activator ready")
        elif log_format is LogFormat.JSON:
            _log.info("%s: %s", event.what, event.why, extra={"fields": asdict(event)})
        else:
            typer.echo(logs.beside_its_time(event.line(), sys.stdout))

    # SIGHUP is ignored until its handler is set, because the default action would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_signals.taken() as signals, Activator(settings, say) as running:
        signals.only_note()
        runs.note_state_directory(state_directory)
        if group_id in ("", place.topics().prefix + DEFAULT_GROUP_ID):  # otherwise it is a further activator
            runs.note_activator(place.bootstrap_servers, place.topic_prefix, config)
        signal.signal(signal.SIGHUP, lambda _number, _frame: running.look_at_config())
        running.run(signals.stop)


def _refuse_beside_start(state_directory: Path) -> None:
    """Refuses an activator whose state directory the activator of a `run` is about to use. That `run` would fail.

    Raises:
        UserError: A `run` is starting, and this process is not its child.
    """
    run = runs.last_with_state(state_directory)
    if run is not None and run.is_starting and "activator" in run.programs and os.getppid() != run.process.pid:
        raise UserError(
            f"{run.doing()}, and its activator uses the state directory {state_directory} too. To run both, give this "
            "one another --state-directory and --group-id"
        )


@app.command()
def status(
    context: typer.Context, state_directory: StateDirectory = _DEFAULT_STATE_DIRECTORY, as_json: Json = False
) -> None:
    """Show what the activator does and why.

    Lists running programs, held notifications and crashes, and says whether a changed config was refused. In a folder
    in which no activator has run, shows the activator that was started last on this machine.
    """
    from streaming.daemons.activator.status import options_of, read_status, show

    state_directory = _state_directory(context, state_directory)
    now_ms, run = wall_clock.now_ms(), runs.last_with_state(state_directory)
    try:
        found = read_status(state_directory, now_ms)
    except UserError:
        if run is None or not run.is_starting or "activator" not in run.programs:
            raise
        raise UserError(f"{run.doing()}: no activator has run with {state_directory.absolute()} yet") from None
    if as_json:
        typer.echo(json.dumps(found))
    else:
        start = _how_to_start(state_directory, found["config_file"], options_of(state_directory), run)
        tables.print_view(show(found, now_ms, start))


def _state_directory(context: typer.Context, given: Path) -> Path:
    """Returns the state directory to show: by default, this folder's, or the last activator's on this machine."""
    from streaming.daemons.activator.store import has_state

    last = runs.last_state_directory()
    if is_given(context, "state_directory") or last is None or runs.last_with_state(given) is not None:
        return given
    with suppress(OSError):  # `read_status` says so
        if not has_state(given) and has_state(last):
            say_line(f"no activator has run in this folder: this is the last one, with the state in {last}", err=True)
            return last
    return given


def _how_to_start(state_directory: Path, file: str, options: list[str] | None, run: Run | None) -> str:
    """Returns advice on starting an activator again.

    Args:
        state_directory: The activator's state directory.
        file: The activator's config file; empty if the activator ended before it had read the file.
        options: The activator's options that say where Kafka is and name its consumer group; None if they are not
            known.
        run: The last `run` with this state directory; None if it is not known.
    """
    if run is not None and run.is_running and "activator" in run.programs:
        return run.doing()
    last = None if run is None else runs.advised(run.servers, run.prefix)
    if last is not None and last.state_directory != str(state_directory.absolute()):
        last = run
    if last is not None and last.file is not None and file in ("", last.file):
        words, _ = last.again()
        again = last.line_with_place(words)
        usual = Path(last.directory) / _DEFAULT_STATE_DIRECTORY
        state = [] if Path(last.state_directory) == usual else ["--state-directory", last.state_directory]
        alone = last.line_with_place(["activator", "--config", last.shown_file() or "FILE", *state])
        return f"Start all again: `{again}`. If the other programs run, start it alone: `{alone}`"
    file, is_default = file or "FILE", state_directory == _DEFAULT_STATE_DIRECTORY
    state = [] if is_default else ["--state-directory", str(state_directory)]
    alone = hints.plain("activator", "--config", file, *state, *(options or []))
    # `run` has the state directory in the folder of its checkpoints. A second `run` would be refused.
    folder = [] if is_default else ["--checkpoints", str(state_directory.parent)]
    together = f"`{hints.plain('run', file, *folder, *(options or []))}` with all that it needs, or alone: "
    is_possible = state_directory.name == _DEFAULT_STATE_DIRECTORY.name and (run is None or not run.is_running)
    is_possible &= "--group-id" not in (options or [])  # `run` starts no such activator
    where = ", at the same Kafka" if options is None else ""
    return f"Start it again{where}: {together if is_possible else ''}`{alone}`"
