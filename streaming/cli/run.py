"""The command `queue-activation run`: runs the programs of one machine together."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from streaming.cli.launch import program_of, value_for
from streaming.cli.lines import say
from streaming.cli.options import LogFormatOption, MetricsOptions, Place
from streaming.cli.topics import create_missing
from streaming.core.numbers import plural
from streaming.daemons.query.options import TakeOver
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.system import hints, logs, paths, runs, start_progress, stop_signals, toml_file
from streaming.system.logs import LogFormat
from streaming.system.options import option
from streaming.system.processes import THIS_COMMAND
from streaming.system.runs import Run
from streaming.system.stop_signals import StopSignals
from streaming.system.together import OnReady, Part, Program, Together

if TYPE_CHECKING:
    from streaming.daemons.query.query_run import QueryRun
    from streaming.system.together import Program

# The variables of options that two of the programs of services have, and that must differ.
_DIFFERENT = ("QUEUE_ACTIVATION_CHECKPOINT_LOCATION", "QUEUE_ACTIVATION_GROUP_ID")
# The option of `run` that is not for the other programs, which would take the same port.
_METRICS_PORT = "QUEUE_ACTIVATION_METRICS_PORT"
# The activator of a `run` that was killed has ended by then: its watchdog gives it 5 s.
_ACTIVATOR_PATIENCE_S = 6.0


@dataclass(frozen=True)
class _Query:
    """A program that runs a query, in this process: its command and the arguments."""

    name: str
    arguments: Sequence[str]


@dataclass(frozen=True)
class _Programs:
    """The command lines of the programs.

    Attributes:
        first: The beginning of each command line.
        shared: The options of all programs.
        of_queries: The further options of monitor and router.
        checkpoints: The folder of --checkpoints.
    """

    first: Sequence[str]
    shared: Sequence[str]
    of_queries: Sequence[str]
    checkpoints: Path | None

    def process(self, name: str, *options: str, command: str = "", after: Sequence[str] = ()) -> Program:
        """Returns a program that is a separate process. Without `command`, the program's name is its command."""
        line = [*self.first, command or name, *self.shared, *options]
        return Program(name, line, f"{name} ready", frozenset(after))

    def place(self, name: str, option_name: str) -> list[str]:
        """Returns the option with the folder of a program."""
        return [] if self.checkpoints is None else [option_name, str(self.checkpoints.absolute() / name)]

    def query(self, name: str) -> _Query:
        """Returns a program that runs a query."""
        return _Query(name, [*self.shared, *self.place(name, "--checkpoint-location"), *self.of_queries])

    # `run` stops the programs in the order of these lists, so that the last decisions still take effect. Programs that
    # share their work with others of their kind start last. Otherwise they would take work from another `run`.

    def of_services(self) -> list[Program | _Query]:
        """Returns the programs that services need."""
        return [self.query("router"), self.process("transport", after=("router", "monitor")), self.query("monitor")]

    def of_file(self, file: Path, stops: Sequence[str], *, services: bool) -> list[Program | _Query]:
        """Returns the programs that the activator's file needs, and with `services` also the programs of services."""
        *first, monitor = self.of_services()
        config = ["--config", str(file.absolute())]
        state = self.place("activator", "--state-directory")
        return [
            *(first if services else []),
            # Needed also if the file names no consumer group, because a group may be added later.
            self.process("observer", *config, command="observe"),
            monitor,
            self.process("activator", *config, *state, *stops, after=("monitor",)),
        ]


@stop_signals.orderly("run")
def run(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The activator's TOML file, which says what to start for which queues and consumer groups.",
            show_default=False,
        ),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        option(
            "--checkpoints",
            "Folder for the checkpoints of monitor and router, and for the activator's state. Without it, they are "
            "where the tables of these programs in the file of --config say, or in the folder `checkpoints`.",
            file_okay=False,
        ),
    ] = None,
    take_over: TakeOver = False,
    services: Annotated[
        bool, option("--services", "With FILE: run the router and a transport too, which services need.")
    ] = False,
    stop_programs: Annotated[
        bool | None,
        typer.Option(
            "--stop-programs/--no-stop-programs",
            help="With FILE: stop the programs that the activator has started too; otherwise they keep running.",
            show_default=False,
        ),
    ] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    *,
    metrics: MetricsOptions,
    place: Place,
) -> None:
    """Run all that queues need on this machine, until Ctrl-C or SIGTERM.

    With FILE: runs monitor, observer and activator, so that the programs in FILE are started when one more would have
    work, and with --services also router and transport. FILE is the activator's TOML file; its changes are picked up.
    Creates the topics of queues that are missing, and with --services those of services, with the cluster's default
    replication factor, and leaves those that exist as they are.

    Without FILE: runs monitor, router and transport, which services need. Their topics must exist: run
    `queue-activation topics` first.

    Monitor and router run in this process, in one Spark application, and the others are processes of their own. Once
    one of them runs, its name comes before its lines. The activator starts when the monitor is ready, and the
    transport when monitor and router are. Prints `run ready` when all are ready. If one of them ends, the others are
    stopped, and `run` ends with its exit code.

    --metrics-port serves the metrics of monitor and router; those of the others have ports of their own.

    Their other options come from the tables [monitor], [observe], [activator], [router] and [transport] in the file of
    --config, or from the environment.
    """
    from streaming.daemons.activator.config import Config
    from streaming.daemons.activator.store import await_free
    from streaming.daemons.monitor.sole_monitor import MONITOR
    from streaming.daemons.query import others_here
    from streaming.daemons.router.sole_router import ROUTER

    if file is None and stop_programs is not None:
        raise UserError("--stop-programs needs a FILE: without one, no activator runs")
    if services or file is None:
        _require_different()
    options_file = _absolute(context.parent.params.get("config") if context.parent is not None else None)
    shared = ["--bootstrap-servers", place.bootstrap_servers, "--topic-prefix", place.topic_prefix]
    shared += ["--log-format", log_format.value]
    if place.kafka_config is not None:
        shared += ["--kafka-config", str(place.kafka_config.absolute())]
    served = ["--metrics-port", str(metrics.metrics_port), "--metrics-host", metrics.metrics_host]
    of_metrics = [] if metrics.metrics_port is None else served
    stops = [] if stop_programs is None else ["--stop-programs" if stop_programs else "--no-stop-programs"]
    programs = _Programs(
        first=[*THIS_COMMAND, *([] if options_file is None else ["--config", options_file])],
        shared=shared,
        of_queries=[*(["--take-over"] if take_over else []), *of_metrics],
        checkpoints=checkpoints,
    )
    if file is None:
        together = programs.of_services()
    else:
        toml_file.load(file, Config)  # an error in it ends this program before it starts others
        together = programs.of_file(file, stops, services=services)
    kafka = place.cluster()
    of_activator = [*shared, *programs.place("activator", "--state-directory")]
    state_directory = cast("Path", value_for(context, "activator", of_activator, "state_directory"))
    folder = [] if checkpoints is None else ["--checkpoints", str(checkpoints.absolute())]
    note = Run(
        process=runs.of_this_process(),
        namespace=runs.namespace(),
        servers=place.bootstrap_servers,
        prefix=place.topic_prefix,
        programs=[each.name for each in together],
        file=_absolute(file),
        directory=paths.working_directory(),
        services=services,
        options=[*folder, *stops, *of_metrics],
        config=options_file,
        place=hints.place(),
        state_directory=str(state_directory.absolute()),
    )
    # Lines of JSON are for programs.
    is_told = log_format is LogFormat.TEXT
    with start_progress.in_files_too(is_told), ExitStack() as noted:
        with start_progress.told("looking at Kafka"):
            if not take_over:
                kinds = [ROUTER, MONITOR] if services or file is None else [MONITOR]
                others_here.await_ends(Admin(kafka), place.topic_prefix, kinds, say, note.file)
                # Another `run` may have started since the look.
                others_here.refuse_beside_start(place.bootstrap_servers, place.topic_prefix, note.programs, note.file)
            hints.begin_run(has_checkpoints=checkpoints is not None)
            if file is not None and not (take_over and _ends_activator(note)):
                with hints.about("activator"):
                    await_free(state_directory, _ACTIVATOR_PATIENCE_S)
            note_ready = noted.enter_context(runs.noted(note))
            if file is not None and (created := create_missing(kafka, place.topics(), with_services=services)):
                say(f"created {plural(len(created), 'topic')}: {', '.join(created)}")
        code = _run_together(context, together, note_ready)
    raise typer.Exit(code)


def _ends_activator(note: Run) -> bool:
    """Returns whether the `run` whose place is taken has the activator on the state directory, which then ends too."""
    other = runs.last(note.servers, note.prefix)
    if other is None or not other.is_running or "activator" not in other.programs:
        return False
    return other.state_directory == note.state_directory


def _absolute(file: Path | None) -> str | None:
    return None if file is None else str(Path(file).absolute())


def _run_together(context: typer.Context, wanted: Sequence[Program | _Query], on_ready: OnReady) -> int:
    """Runs the programs until a stop signal arrives or one of them ends; returns the exit code."""
    with start_progress.told("loading the programs"):
        from streaming.daemons.query.application import prepared

        # The router is prepared last: it may complete a batch, which a signal does not interrupt.
        queries = [each for each in reversed(wanted) if isinstance(each, _Query)]
        programs = [program_of(context, each.name, each.arguments) for each in queries]
    with stop_signals.taken() as signals, prepared(programs) as prepared_runs:
        signals.only_note()
        parts = {run.kind.name: Part(run.kind.name, partial(_run_query, run), run.kind.ready) for run in prepared_runs}
        together = [parts[each.name] if isinstance(each, _Query) else each for each in wanted]
        environment = {name: value for name, value in os.environ.items() if name != _METRICS_PORT}
        return Together(together, environment, "run ready", on_ready).run(signals)


def _run_query(query: "QueryRun", signals: StopSignals, say_line: Callable[[str], None]) -> int:
    """Runs a query in this thread; returns the exit code of the query's program."""
    name = query.kind.name
    with hints.about(name):
        try:
            code = replace(query, signals=signals, say=say_line).run()
        except UserError as error:
            logs.report(f"{name}: {error}")
            return 2
    if code == 0 and signals.stop.is_set():
        say_line(f"{name} stopped")
    return code


def _require_different() -> None:
    """Raises UserError if the environment sets an option whose value must differ between the programs."""
    for variable in _DIFFERENT:
        if variable in os.environ:
            raise UserError(
                f"{variable} would apply to several programs. Write the option into the table of each in the file of "
                "--config."
            )
