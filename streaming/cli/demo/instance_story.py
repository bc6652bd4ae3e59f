"""The output of the demo of instances: its timeline and its summary."""

import time
from collections import Counter
from collections.abc import Iterable
from functools import partial

from rich.console import Console

from streaming.cli.demo.conversation_story import ConversationStory
from streaming.cli.demo.instance_plan import QUEUES, queues_of
from streaming.cli.demo.service_plan import STOCK
from streaming.cli.demo.service_records import Delivery
from streaming.cli.demo.timeline import TOPICS, latencies
from streaming.core.numbers import plural
from streaming.wire.service_views import TransmissionRow

# Deliveries of this time become one line.
_WINDOW_S = 2.5


class InstanceStory(ConversationStory):
    """Prints events. `held` counts north's messages to the stock that are not acknowledged.

    Attributes:
        facts: Rows of the summary.
        is_moved: Whether the mirror has got all new conversations.
        awaited: The event for which the plot waits.
    """

    name_width = 6
    queues = QUEUES
    topics = (
        [TOPICS.service_messages, TOPICS.service_transmissions, *queues_of("north")],
        queues_of("south", "west"),
    )

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.facts: list[tuple[str, str]] = []
        self.is_moved = False
        self.awaited = "the first order"
        self._styles = {"": "", "north": "cyan", "south": "magenta", "west": "green"}
        self._new: Counter[str] = Counter()
        self._printed_s = time.monotonic()

    def note(self, place: str, text: str, style: str = "") -> None:
        """Makes the next step print a line about a place. An actor calls this method."""
        self.tell(partial(self._line, place, "", text, style))

    def step(self) -> None:
        """Prints the lines of the plot, and deliveries."""
        super().step()
        if time.monotonic() >= self._printed_s + _WINDOW_S:
            self._print_deliveries()

    def _saw_delivery(self, delivery: Delivery) -> None:
        if delivery.kind == "MESSAGE" or delivery.is_answer:  # the shop ends its side, too
            super()._saw_delivery(delivery)
            self._new[delivery.queue] += 1

    def _held_rows(self) -> Iterable[TransmissionRow]:
        return (row for row in self._transmissions.values() if row.to_service == STOCK)

    def _line(self, queue: str, mark: str, text: str, style: str = "") -> None:
        self._print_deliveries()
        super()._line(queue, mark, text, style)

    def _print_deliveries(self) -> None:
        self._printed_s = time.monotonic()
        for queue, count in sorted(self._new.items()):
            super()._line(QUEUES[queue], "", f"-> {plural(count, 'message')} in queue {queue}")
        self._new.clear()

    def _missing(self) -> str:
        return f"{self.awaited} did not come in time"

    def summarize(self) -> bool:
        """Prints the summary; returns whether everything was as expected."""
        self._print_deliveries()
        latency = latencies(self.records.latencies_s(), "messages, also late ones")
        return self._account(*self.facts, ("send -> delivery", latency)) and self.is_moved
