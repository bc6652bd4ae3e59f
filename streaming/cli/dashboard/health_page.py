"""The page that says whether all is well: what `diagnose` finds, signs of life, and what waits for the programs."""

from dataclasses import dataclass
from functools import partial

from starlette.datastructures import QueryParams

from streaming.cli import presence
from streaming.cli.dashboard import backlogs
from streaming.cli.dashboard.backlogs import Backlog
from streaming.cli.dashboard.kept import Kept
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.server import Page, Part
from streaming.cli.diagnosis import diagnosis
from streaming.cli.lines import say
from streaming.cli.routing.diagnosing import Fault
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka.bootstrap_servers import own_addresses
from streaming.kafka.clients import Cluster
from streaming.system import wall_clock
from streaming.system.ages import age
from streaming.wire.signs_of_life import SignOfLife
from streaming.wire.topics import Topics

# Signs of life are looked at this often. Faults take some seconds to find.
_EVERY_S, _FRESH_S = 5.0, 20.0
_FAULTS_EVERY_S, _FAULTS_FRESH_S = 15.0, 60.0


@dataclass(frozen=True)
class Batches:
    """The batches of a monitor or a router.

    Attributes:
        program: The program.
        committed: When it last committed one; None: not known.
        every: The time within which the next one comes; empty: not known.
        problem: The sentence about one that is late, does not run, or may not be looked at; empty if all is well.
    """

    program: str
    committed: str | None = None
    every: str = ""
    problem: str = ""


def batches(kafka: Cluster, topics: Topics, program: str) -> Batches:
    """Returns what is known about the batches of a program."""
    try:
        sign = presence.last_sign(kafka, topics, program)
        problem = presence.absence(kafka, topics, program)
    except UserError as error:
        return Batches(program, problem=str(error))
    return of_sign(program, sign, wall_clock.now_ms(), problem)


def of_sign(program: str, sign: SignOfLife | None, now_ms: int, absence: str | None) -> Batches:
    """Returns what a sign of life says.

    Args:
        program: The program.
        sign: Its last sign of life.
        now_ms: The time.
        absence: The sentence about one that does not run; None if it runs.
    """
    problem = presence.lateness(program, sign, now_ms) if absence is None else absence
    if sign is None:
        return Batches(program, problem=problem or "")
    return Batches(program, iso_time(sign.committed_ms), age(0, sign.next_within_ms), problem or "")


class HealthPage:
    """Builds the page."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._signs = Kept(_EVERY_S, _FRESH_S)
        self._faults = Kept(_FAULTS_EVERY_S, _FAULTS_FRESH_S)

    def health(self, _: QueryParams) -> Page:
        """Returns the page."""
        faults, signs = self._faults.get("faults", self._find_faults), self._signs.get("signs", self._find_signs)
        parts = [
            Part("faults", "looking.html") if faults is None else Part("faults", "faults.html", {"answer": faults})
        ]
        if faults is not None:
            parts.append(Part("warnings", "warnings.html", {"warnings": faults.warnings}))
        if signs is None:
            parts.append(Part("signs", "looking.html"))
        else:
            found, waiting = signs.found
            parts.append(Part("signs", "signs.html", {"batches": found, "backlogs": waiting}))
        return Page("Health", parts)

    def _find_faults(self) -> list[Fault]:
        kafka, topics = self._view.cluster, self._view.topics
        place = diagnosis.Place(own_addresses(kafka.bootstrap_servers, topics.prefix))
        warn = partial(say, err=True)  # taken by `Kept`
        return [fault for part in diagnosis.parts(kafka, topics, place, warn) for fault in part.faults]

    def _find_signs(self) -> tuple[list[Batches], list[Backlog]]:
        kafka, topics = self._view.cluster, self._view.topics
        programs = ["monitor", "router"] if diagnosis.needs_router(kafka, topics) else ["monitor"]
        return [batches(kafka, topics, each) for each in programs], backlogs.find(kafka, topics)
