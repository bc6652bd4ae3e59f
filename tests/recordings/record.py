"""Records random histories of the simulations, for `python -m tests.recordings.replay`.

    python -m tests.recordings.record FOLDER [--worlds 10] [--seed 1] [--only KIND]
    python -m tests.recordings.record

The second command makes the recordings anew that tests/unit/test_recordings.py does again. Each world becomes a file
that is named after its kind and its seed: one instance with crashes, three instances, three instances over days, the
scenes of the unit tests, a backlog, and a shard under random records. Now and then a copy of a shard is restored.
"""

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path
from random import Random
from unittest.mock import patch

import msgspec
import pytest

from streaming.core.conversations.decisions import Decision
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.conversations.suspects import Suspect
from streaming.core.routing.conversation import Instance
from streaming.spark.routing import run_shard
from streaming.spark.routing.shard_state import RestoredShard
from streaming.wire.service_commands import ServiceCommand
from tests.recordings.backlog import Backlog
from tests.recordings.recorder import recorded
from tests.recordings.recording import SUFFIX, Step, write
from tests.simulation import test_bad_service_input, test_conversations
from tests.support import conversation_scene, instances_scene
from tests.support.checked_shard import QueryShard
from tests.support.command_lines import ROOT
from tests.support.instances_outages import Outages
from tests.support.instances_simulation import Simulation
from tests.support.plain_shard import PARTITIONS, Batch
from tests.support.seeds import fresh_seed

# Of the batches before which a copy of a shard is restored.
_RESTORED = 0.03
_LATER_MS = 61_000
BAD_INPUT = test_bad_service_input.test_every_message_is_delivered_held_or_a_dead_letter_and_its_neighbours_go_on
# Of a test that takes shards through batches.
_SCENE = re.compile(r"^from .*(conversation_scene|instances_scene|run_shard) import", re.MULTILINE)
_TOO_LONG = "test_far_sides_that_are_gone.py"
# Tests with more batches let weeks pass, mostly with ticks alone.
_MOST_OF_A_TEST = 200


class RecordedShard(QueryShard):
    """A shard of which a copy is restored now and then, beside its history."""

    def __init__(
        self, number: int, settings: ConversationSettings, instance: Instance, partitions: int = PARTITIONS
    ) -> None:
        super().__init__(number, settings, instance, partitions)
        self._random = Random(number)  # noqa: S311  (no secret)
        self._commands: list[tuple[ServiceCommand, int]] = []
        self._ends = [0, 0]

    def step(self, batch: Batch) -> list[Decision]:
        """Takes both shards through a batch; returns the decisions of the plain one."""
        self._commands += batch.commands
        if self._random.random() < _RESTORED:
            self._restore_copy(batch)
        for end, said in enumerate((batch.messages, batch.incoming)):
            self._ends[end] = max([self._ends[end], *(offset + 1 for offset, _, _ in said)])
        return super().step(batch)

    def _restore_copy(self, batch: Batch) -> None:
        """Takes a restored copy through the batch, with all commands of the past, and through another one later."""
        settings = replace(self.shard_settings, generation=2)
        names = self._random.sample(sorted(self.conversations), self._random.randint(0, len(self.conversations)))
        state = self._random.choice((None, self.row, self.row))
        restored = RestoredShard(state, (self._ends[0], self._ends[1]), [self._suspect(name) for name in names])
        whole = self.table(replace(batch, commands=self._commands))
        state = run_shard.run_shard(None, whole, batch.at_ms, settings, self.number, restored).state
        later = Batch(batch.at_ms + _LATER_MS, ahead_ms=batch.ahead_ms)
        run_shard.run_shard(state, self.table(later), later.at_ms, settings, self.number)

    def _suspect(self, name: str) -> Suspect:
        conversation = self.conversation(name)
        services, (initiator, target) = conversation.services, conversation.endpoints
        return Suspect(
            name,
            (services[0], services[1]),
            (None if initiator is None else initiator.database, None if target is None else target.database),
            (name if initiator is None else initiator.group_id, name if target is None else target.group_id),
        )


def _alone(settings: ConversationSettings, instance: Instance) -> RecordedShard:
    """Returns the only shard of an instance."""
    return RecordedShard(0, settings, instance, partitions=1)


class _Tests:
    """A plug-in of pytest that takes out what can't be done again, or is too long."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Iterator[None]:
        """Forgets the batches of a test that changes the code, or has too many."""
        begin = len(self._steps)
        result = yield
        # All unit tests have a fixture that needs monkeypatch; it does not change what shards do.
        is_patched = "monkeypatch" in signature(item.function).parameters
        if is_patched or len(self._steps) - begin > _MOST_OF_A_TEST:
            del self._steps[begin:]
        return result


def _scenes(steps: list[Step]) -> None:
    """Runs the unit tests of conversations, whose scenes give their batches to shards of the query, too."""
    texts = {file: file.read_text() for file in sorted((ROOT / "tests/unit/core").glob("test_*.py"))}
    files = [str(file) for file, text in texts.items() if _SCENE.search(text) and file.name != _TOO_LONG]
    shards = (
        patch.object(conversation_scene, "PlainShard", _alone),
        patch.object(instances_scene.Scene, "make", staticmethod(_alone)),
    )
    with shards[0], shards[1]:
        pytest.main(["-q", "-p", "no:cacheprovider", *files], [_Tests(steps)])


# Kind of a world -> what plays the world of a seed, while its batches are recorded into the list.
WORLDS: dict[str, Callable[[int, list[Step]], object]] = {
    "conversations": lambda seed, _steps: test_conversations.Simulation(seed, RecordedShard).run(),
    "instances": lambda seed, _steps: Simulation(seed, _alone).run(),
    "outages": lambda seed, _steps: Outages(seed, _alone).run(),
    "scenes": lambda _seed, steps: _scenes(steps),
    "backlog": lambda seed, _steps: Backlog(seed).run(),
    "bad-input": lambda seed, _steps: BAD_INPUT(seed),
}
# The recordings in this folder: kind -> the most batches. Together they have less than 300 kB.
KEPT = {"conversations": None, "instances": None, "outages": 240, "scenes": None, "backlog": None, "bad-input": 60}
KEPT_SEED = 14


def kinds_of(steps: Iterable[Step]) -> Counter[str]:
    """Counts the decisions of a recording, by kind."""
    values = [value for step in steps for topic, _, value, _, _ in step.taken.rows if topic == "service-decisions"]
    return Counter(each["decision"] for value in values for each in msgspec.json.decode(value or b"")["decisions"])


def record(folder: Path, kind: str, seed: int, most: int | None = None) -> None:
    """Plays a world, and writes its batches, or the first of them, into a file; prints what the file holds."""
    with recorded() as steps:
        WORLDS[kind](seed, steps)
    kept = steps[:most]
    file = folder / f"{kind}-{seed}{SUFFIX}"
    write(file, kept)
    size = f"{len(kept)} of {len(steps)} batches, {file.stat().st_size:,} bytes"
    found = ", ".join(f"{number} {name}" for name, number in sorted(kinds_of(kept).items()))
    print(f"{file.name}: {size}: {found}", flush=True)


def main() -> None:
    """Records worlds."""
    parser = argparse.ArgumentParser(prog="python -m tests.recordings.record")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--worlds", type=int, default=10, help="of each kind")
    parser.add_argument("--seed", type=int, help="of the first world; the others have the next ones")
    parser.add_argument("--only", choices=[*WORLDS], action="append", help="the kind of worlds; may be repeated")
    arguments = parser.parse_args()
    if arguments.folder is None:
        for kind, most in KEPT.items():
            record(Path(__file__).parent, kind, KEPT_SEED, most)
        return
    first = fresh_seed("RECORDING_SEED") if arguments.seed is None else arguments.seed
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + arguments.worlds):
        for kind in arguments.only or WORLDS:
            if kind != "scenes" or seed == first:  # they do not depend on a seed
                record(arguments.folder, kind, seed)


if __name__ == "__main__":
    main()
