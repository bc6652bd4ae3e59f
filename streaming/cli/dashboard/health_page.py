"""The page that says whether all is well: what `diagnose` finds, signs of life, and what waits for the programs."""

from functools import partial

from starlette.datastructures import QueryParams

from streaming.cli.dashboard import backlogs
from streaming.cli.dashboard.backlogs import Backlog
from streaming.cli.dashboard.batches import Batches, batches
from streaming.cli.dashboard.kept import Kept
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.server import Page, Part
from streaming.cli.diagnosis import diagnosis
from streaming.cli.lines import say
from streaming.cli.routing.definition_faults import Fault
from streaming.kafka.bootstrap_servers import own_addresses

# Signs of life are looked at this often. Faults take some seconds to find.
_EVERY_S, _FRESH_S = 5.0, 20.0
_FAULTS_EVERY_S, _FAULTS_FRESH_S = 15.0, 60.0


class HealthPage:
    """Builds the page."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._signs = Kept(_EVERY_S, _FRESH_S, view.contact.silent_since_ms)
        self._faults = Kept(_FAULTS_EVERY_S, _FAULTS_FRESH_S, view.contact.silent_since_ms)

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
