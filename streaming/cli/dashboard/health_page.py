"""The page Health: the faults that `diagnose` finds, signs of life, and the records that wait for the programs."""

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
from streaming.core.times import iso_time, readable_time
from streaming.kafka.bootstrap_servers import own_addresses

_SIGNS_EVERY_S = 5.0
# Faults take some seconds to find. The search runs only while this page is open in a browser.
_FAULTS_EVERY_S, _FAULTS_FRESH_S = 15.0, 120.0
# Then the page says that it looks, because the first search may take 15 s on a busy machine.
_LONGEST_S = 1.0


class HealthPage:
    """Builds the page."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        silent_since_ms = view.contact.silent_since_ms
        self._signs = Kept(_SIGNS_EVERY_S, silent_since_ms=silent_since_ms, longest_s=_LONGEST_S)
        self._faults = Kept(_FAULTS_EVERY_S, _FAULTS_FRESH_S, silent_since_ms, _LONGEST_S)

    def health(self, _: QueryParams) -> Page:
        """Returns the page."""
        faults, signs = self._faults.get("faults", self._find_faults), self._signs.get("signs", self._find_signs)
        found, waiting = signs.found
        parts = [
            Part("faults", "faults.html", {"answer": faults}),
            Part("warnings", "warnings.html", {"warnings": faults.warnings}),
            Part("signs", "signs.html", {"batches": found, "backlogs": waiting}),
        ]
        return Page("Health", parts, faults=len(faults.found))

    def fault_count(self) -> tuple[int, str]:
        """Returns the number of faults that this page found lately, and the sentence that says when.

        If this page has not looked lately, the number is 1 if no monitor runs, and 0 otherwise.

        Other pages do not search. Otherwise, a search would run in each outage of Kafka, and its time-outs may make
        librdkafka abort the process.
        """
        if (answer := self._faults.last("faults")) is not None:
            return len(answer.found), f"As of {readable_time(iso_time(answer.at_ms))}."
        contact = self._view.contact
        return int(bool(contact.monitor) and not contact.is_normal), "Only the monitor was looked at."

    def _find_faults(self) -> list[Fault]:
        kafka, topics = self._view.cluster, self._view.topics
        place = diagnosis.Place(own_addresses(kafka.bootstrap_servers, topics.prefix))
        warn = partial(say, err=True)  # `Kept` shows the lines on the page
        return [fault for part in diagnosis.parts(kafka, topics, place, warn) for fault in part.faults]

    def _find_signs(self) -> tuple[list[Batches], list[Backlog]]:
        kafka, topics = self._view.cluster, self._view.topics
        programs = ["monitor", "router"] if diagnosis.needs_router(kafka, topics) else ["monitor"]
        return [batches(kafka, topics, each) for each in programs], backlogs.find(kafka, topics)
