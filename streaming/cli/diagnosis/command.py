"""The command `queue-activation diagnose`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, NoReturn

import typer

from streaming.cli.lines import say, watched
from streaming.cli.options import InstanceOptions, Json, Place
from streaming.cli.presence import say_age
from streaming.cli.routing.routes import DefinitionsPath
from streaming.system.start_progress import say_to_user

if TYPE_CHECKING:
    from streaming.cli.routing import definition_faults

# A look that takes longer than this is told.
_LONG_S = 1.0


def diagnose(
    definitions: DefinitionsPath = None, as_json: Json = False, *, instance: InstanceOptions, place: Place
) -> None:
    """Find faults of the definitions and of the running instance. Exit code 1 if there are any.

    In definitions: routes to nowhere, services without a queue's topic, replies without a way back, expired routes that
    are still needed, disabled brokers, a database msdb without routes, and routes that CREATE ROUTE would refuse.

    In the instance: programs that do not run or do not get on, queues for which no program starts readers, programs and
    tasks that fail, queues that are OFF, messages that are held, and dead letters of the last hour. Where the topics of
    services are missing, as after `run FILE`, checks only queues.
    """
    from streaming.cli.diagnosis import diagnosis
    from streaming.cli.routing import definition_faults, explained_routes

    topics = place.topics()
    addresses = instance.addresses(place)
    is_forwarding = instance.is_forwarding
    if definitions is not None:
        source = explained_routes.source(definitions, place.cluster, topics, addresses, is_forwarding)
        _end(_tell(definition_faults.faults(source, None, topics, {}), as_json=as_json), as_json)
    kafka, is_faulty = place.cluster(), False
    with watched() as warned, _progress() as look:
        for part in diagnosis.parts(kafka, topics, diagnosis.Place(addresses, is_forwarding), _warn, look):
            for program in () if as_json else part.writers:
                say_age(kafka, topics, program)
            is_faulty |= _tell(part.faults, as_json=as_json)
    _end(is_faulty, as_json, is_all=not warned)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Yields a function for the name of the next object to look at. Shows the name on a terminal if a look is slow."""
    timers: list[Timer] = []

    def end() -> None:
        for timer in timers:
            timer.cancel()

    def look(at: str) -> None:
        end()
        timers[:] = [Timer(_LONG_S, say_to_user, [f"looking at {at}"])]
        timers[0].start()

    look("the topics")
    try:
        yield look
    finally:
        end()


def _warn(line: str) -> None:
    say(f"warning: {line}", err=True)


def _end(is_faulty: bool, as_json: bool, *, is_all: bool = True) -> NoReturn:
    if not is_faulty and not as_json:
        say(f"no faults found{'' if is_all else ' in what could be looked at'}")
    raise typer.Exit(1 if is_faulty else 0)


def _tell(faults: "Iterable[definition_faults.Fault]", *, as_json: bool) -> bool:
    """Prints faults; returns whether there are any."""
    told = [*faults]
    for fault in told:
        if as_json:
            typer.echo(fault.as_json())
        else:
            say(fault.as_text())
    return bool(told)
