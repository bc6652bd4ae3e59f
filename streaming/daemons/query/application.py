"""One Spark application in which the queries of several programs run, so that they share one JVM."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from streaming.daemons.query.query_run import QueryRun, returns
from streaming.daemons.query.sole_program import Kind
from streaming.spark import session
from streaming.system import hints, start_progress, stop_signals
from streaming.system.metrics_server import MetricsServer
from streaming.system.stop_signals import STOP_SIGNALS, StopSignals

# The address and the port of a server of metrics.
Address = tuple[str, int]
# Prepares a query: with the session, and the signals that stop it.
Prepare = Callable[[SparkSession, StopSignals], AbstractContextManager[QueryRun]]


@dataclass(frozen=True)
class QueryProgram:
    """A program that runs a query.

    Attributes:
        kind: The kind of program.
        location: The location of the checkpoint.
        driver_memory: The heap that the program needs, such as `2g`.
        placed: Checks the program's requirements, and keeps the program's place while the block runs. Takes the server
            of the metrics, and yields the function that prepares the query. Raises UserError if the user has to change
            something.
        metrics: The address and the port of the metrics; None: the metrics are not served.
    """

    kind: Kind
    location: str
    driver_memory: str
    placed: Callable[[MetricsServer | None], AbstractContextManager[Prepare]]
    metrics: Address | None


def run(program: QueryProgram) -> int:
    """Runs a program until SIGTERM, Ctrl-C or a failure; returns the exit code.

    Raises:
        UserError: A requirement is missing or wrong, and the user can correct it.
    """
    # Spark sets its own handler for SIGINT. It can raise KeyboardInterrupt in the instant before it is replaced.
    with suppress(KeyboardInterrupt), stop_signals.taken() as signals, prepared([program]) as [query]:
        signals.only_note()
        return query.run()
    return 0


@contextmanager
def prepared(programs: Sequence[QueryProgram]) -> Iterator[list[QueryRun]]:
    """Prepares the queries of programs in one Spark application. The application ends with the block.

    Raises:
        UserError: A requirement of a program is missing or wrong.
    """
    with ExitStack() as stack:
        addresses = {program.metrics for program in programs if program.metrics is not None}
        servers = {address: stack.enter_context(MetricsServer(*address)) for address in addresses}
        places = []
        for program in programs:
            name = program.kind.name
            with hints.about(name), start_progress.told(f"checking what the {name} needs"):
                places.append(stack.enter_context(program.placed(program.metrics and servers[program.metrics])))
        spark, signals = stack.enter_context(_spark_session(programs))
        queries = []
        for program, prepare in zip(programs, places, strict=True):
            name = program.kind.name
            with hints.about(name), start_progress.told(f"preparing the {name}"):
                queries.append(stack.enter_context(prepare(spark, signals)))
        yield queries


@contextmanager
def _spark_session(programs: Sequence[QueryProgram]) -> Iterator[tuple[SparkSession, StopSignals]]:
    """Starts Spark, and stops it at the end of the block. Yields the session and the stop signals.

    Raises:
        UserError: Java or the jars are missing, or a size of memory is invalid.
    """
    with start_progress.told("starting Spark"):
        spark = session.create([each.location for each in programs], [each.driver_memory for each in programs])
    with stop_signals.taken() as signals:
        if session.is_submitted():
            session.forward_signals(STOP_SIGNALS)
        try:
            yield spark, signals
        finally:
            _stop(spark, signals)


def _stop(spark: SparkSession, signals: StopSignals) -> None:
    """Stops Spark, or kills a JVM that does not stop in time."""

    def stop() -> None:
        session.silence()  # the program has said why it ends, and Spark logs its queries that still run as errors
        spark.stop()

    try:
        if not returns(stop, signals):
            session.kill()
    except Exception:
        if session.how_java_ended() is None:
            raise
