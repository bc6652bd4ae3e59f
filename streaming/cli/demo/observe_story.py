"""The output of the demo of plain consumers: its timeline and its summary.

The consumers report nothing to Kafka. Each line of their output has the process, the partition and the message.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from streaming.cli.demo.observe_plan import ABORTED, EXPIRED, GROUPS
from streaming.cli.demo.timeline import TOPICS, Timeline, latencies
from streaming.core.numbers import plural
from streaming.core.observer.pictures import Place

_READ = re.compile(r"(\d+) (\S+)-\d+ (.+)")
_PARTITIONS = {group.name: group.partitions for group in GROUPS}


class ReaderLog:
    """The output of the readers, as it grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0

    def new_lines(self) -> list[str]:
        """Returns the lines that have been completed since the last call."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return whole.decode(errors="replace").splitlines()


class ObserveStory(Timeline):
    """Prints events, and accounts for messages and readers.

    Actors call `sending`, `cannot_be_read`, `unread` and `is_at_rest`. The other methods are for the main thread.

    Attributes:
        receiving: Group -> the number of readers that have received a message.
    """

    topics = ((TOPICS.activations,),)

    def __init__(self, console: Console, log: ReaderLog, lag_rule: Callable[[str], int]) -> None:
        """Stores the arguments.

        Args:
            console: The demo's output.
            log: The output of the readers.
            lag_rule: Group -> the number of readers that a lag rule would want now.
        """
        super().__init__(console)
        self.receiving: Counter[str] = Counter()
        self._log = log
        self._lag_rule = lag_rule
        self._places: dict[str, Place] = {}
        self._sent: Counter[Place] = Counter()
        self._read: Counter[Place] = Counter()
        self._seen: set[str] = set()
        self._read_by_process: dict[int | None, set[str]] = defaultdict(set)
        self._there: Counter[str] = Counter()
        self._most_there: Counter[str] = Counter()
        self._most_wanted: Counter[str] = Counter()
        self._useless = 0

    @contextmanager
    def sending(self, group: str, messages: Mapping[str, int]) -> Iterator[None]:
        """Notes messages that are sent in the block, each with its partition."""
        is_first = self.is_at_rest(group)
        for message, partition in messages.items():
            self._places[message] = group, partition
            self._sent[group, partition] += 1
        yield
        self.tell(partial(self._have_arrived, group, len(messages), time.time(), is_first))

    def cannot_be_read(self, group: str, what: str) -> None:
        """Notes offsets that no consumer can read."""
        self.tell(partial(self._note_unreadable, group, what))

    def unread(self, group: str, *partitions: int) -> int:
        """Returns how many messages in these partitions, or in all partitions, no consumer has read."""
        places = [(group, partition) for partition in partitions or range(_PARTITIONS[group])]
        return sum(self._sent[place] - self._read[place] for place in places)

    def is_at_rest(self, group: str) -> bool:
        """Returns whether a group has neither unread messages nor readers."""
        return not self._there[group] and not self.unread(group)

    def is_complete(self) -> bool:
        """Returns whether all messages have been read."""
        return len(self._places) == self.read

    def step(self) -> None:
        """Prints the lines of the actors, and takes in new output of the readers."""
        super().step()
        for line in self._log.new_lines():
            if (found := _READ.fullmatch(line)) is not None:
                self._was_read(int(found[1]), found[2], found[3])

    def _have_arrived(self, group: str, count: int, at_s: float, is_first: bool) -> None:
        if is_first:
            self._waiting_since_s[group] = at_s
        self.arrived += count
        self._line(group, "->", f"{plural(count, 'message')} arrived")

    def _note_unreadable(self, group: str, what: str) -> None:
        self._line(group, "--", what)
        self._show_lag_rule(group, ", for nothing")

    def _was_read(self, process_id: int, group: str, message: str) -> None:
        messages = self._read_by_process[process_id]
        self.receiving[group] += not messages
        messages.add(message)
        if message not in self._seen:
            self._seen.add(message)
            if (place := self._places.get(message)) is not None:
                self._read[place] += 1
                self.read += 1

    def _saw_activation(self, queue: str, sequence: int, why: str, unread: int) -> None:
        self.step()
        super()._saw_activation(queue, sequence, why, unread)
        self._show_lag_rule(queue, "")

    def _show_lag_rule(self, group: str, remark: str) -> None:
        wanted = self._lag_rule(group)
        self._most_wanted[group] = max(self._most_wanted[group], wanted)
        self._line(group, "~~", f"a lag rule would want {plural(wanted, 'reader')}{remark}", "dim")

    def reader_started(self, queue: str, program_id: str, process_id: int | None, by: str) -> None:
        """Prints the start of a reader program, and counts it."""
        super().reader_started(queue, program_id, process_id, by)
        self._there[queue] += 1
        self._most_there[queue] = max(self._most_there[queue], self._there[queue])

    def reader_left(self, process_id: int | None) -> None:
        """Prints the exit of a reader program, whose output is complete now."""
        self.step()
        _, queue, program_id = self._numbers[process_id]
        messages = self._read_by_process.pop(process_id, set())
        self._read_by_program[program_id] = len(messages)
        self._useless += not messages
        self._there[queue] -= 1
        super().reader_left(process_id)

    def _missing(self) -> str:
        return f"not everything happened in time: {len(self._places)} sent, {self.read} read"

    def summarize(self) -> bool:
        """Prints the summary; returns whether everything was read, and each reader has received a message."""
        strangers = len(self._seen - self._places.keys())
        useful = "each has" if not self._useless else f"{self._useless} of them have not"
        self._print_summary(
            ("messages sent, read", f"{len(self._places)}, {self.read}"),
            ("aborted or expired", f"{ABORTED + EXPIRED}; {strangers} of them read"),
            ("readers started", f"{self.readers}; {useful} received messages"),
            ("arrival -> activation", latencies(self._latencies_s, "on empty groups")),
            ("most readers at a time", _by_group(self._most_there)),
            ("a lag rule wanted", _by_group(self._most_wanted)),
        )
        return self.is_complete() and not strangers and not self._useless


def _by_group(counts: Counter[str]) -> str:
    return ", ".join(f"{group.name} {counts[group.name]}" for group in GROUPS)
