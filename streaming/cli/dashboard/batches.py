"""The batches of a monitor or a router: when it committed the last batch, and whether the next batch is late."""

import time
from dataclasses import dataclass, replace

from streaming.cli import presence
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka import own_programs
from streaming.kafka.clients import Cluster
from streaming.system import wall_clock
from streaming.system.ages import age
from streaming.wire.signs_of_life import SignOfLife
from streaming.wire.topics import Topics

# A program without a sign of life counts as just started for this time.
_BEGINNING_S = 60.0


@dataclass(frozen=True)
class Batches:
    """The batches of a monitor or a router.

    Attributes:
        program: The program.
        committed: The time of its last commit; None: not known.
        every: The time within which the next batch comes; empty: not known.
        late_after: The age of the last batch at which the next batch counts as late; empty: not known.
        problem: The sentence about a program that is late, does not run, or is invisible; empty if all is well.
        beginning: The sentence that replaces `problem` for a program that is starting or has probably just started;
            empty otherwise.
        is_unknown: Whether this user cannot see whether the program runs.
    """

    program: str
    committed: str | None = None
    every: str = ""
    late_after: str = ""
    problem: str = ""
    beginning: str = ""
    is_unknown: bool = False

    @property
    def is_current(self) -> bool:
        """Returns whether the program keeps what it writes up to date, or whether this is not known."""
        return self.is_unknown or not (self.problem or self.beginning)

    def told(self, for_s: float) -> tuple[str, bool]:
        """Returns the sentence for the pages, and whether the sentence describes a normal state.

        Args:
            for_s: The time for which `beginning` has had a sentence.
        """
        is_told = self.beginning and (for_s < _BEGINNING_S or not self.problem)
        return (self.beginning, True) if is_told else (self.problem, False)


class Beginning:
    """The time for which a program has been starting, from one look to the next."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def told(self, found: Batches) -> tuple[str, bool]:
        """Takes the batches of a look. Returns the result of `Batches.told`."""
        now_s = time.monotonic()
        self._since_s = (self._since_s or now_s) if found.beginning else None
        return found.told(0.0 if self._since_s is None else now_s - self._since_s)


def batches(kafka: Cluster, topics: Topics, program: str) -> Batches:
    """Returns the known facts about the batches of a program."""
    try:
        sign = presence.last_sign(kafka, topics, program)
        problem = own_programs.absence(kafka, topics, program)
    except UserError as error:
        return Batches(program, problem=str(error), is_unknown=True)
    found = of_sign(program, sign, wall_clock.now_ms(), problem)
    begins = presence.beginning(kafka, topics, program, sign)
    return replace(found, beginning=begins) if begins else found


def of_sign(program: str, sign: SignOfLife | None, now_ms: int, absence: str | None) -> Batches:
    """Returns the batches that a sign of life reports.

    Args:
        program: The program.
        sign: The program's last sign of life.
        now_ms: The time.
        absence: The sentence about a program that does not run; None if it runs.
    """
    problem = presence.lateness(program, sign, now_ms) if absence is None else absence
    if sign is None:
        beginning = f"The {program} runs, and has not written anything yet" if absence is None else ""
        return Batches(program, problem=problem or "", beginning=beginning)
    late_after = age(0, presence.late_after_ms(sign))
    return Batches(program, iso_time(sign.committed_ms), age(0, sign.next_within_ms), late_after, problem or "")
