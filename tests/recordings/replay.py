"""Does recorded batches again with the code at hand, and compares what they write with what was recorded.

    python -m tests.recordings.replay FILE_OR_FOLDER ...

Each recording runs twice: once with the states that this code makes from the beginning, and once more from the states
that were recorded, which may be of an older format. Exit code 0: all is the same. 1: something differs.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from streaming.core.conversations.suspects import Suspect
from streaming.spark.blocks import RECORDS
from streaming.spark.routing.run_shard import run_shard
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.shard_state import RestoredShard, StateRow
from streaming.spark.shard_worker import TakenShard
from tests.recordings.recorder import TOPICS
from tests.recordings.recording import Row, Step, Taken, files_in, plain_result, read

_SOURCES = {topic: source.value for source, topic in TOPICS.items()}
# Of the text that differs.
_SHOWN_BEFORE, _SHOWN = 200, 600


class DifferenceError(Exception):
    """A batch has another result than the recorded one."""


def replay(steps: Sequence[Step], *, is_from_states: bool = False) -> None:
    """Does the steps of a recording again.

    Args:
        steps: The steps.
        is_from_states: Whether a shard begins with the recorded state where there is one.

    Raises:
        DifferenceError: A result differs. The message says where.
    """
    last_uses = {step.after: number for number, step in enumerate(steps) if step.after is not None}
    states: dict[int, StateRow | None] = {}
    for number, step in enumerate(steps):
        is_own = step.after is not None and not (is_from_states and step.state is not None)
        kept = states[step.after] if is_own and step.after is not None else step.state
        taken = take(step, kept)
        if difference := difference_of(step.taken, plain_result(taken)):
            where = f"batch {number} of {len(steps)}, at {step.batch_ms} in partition {step.partition}"
            raise DifferenceError(f"{where}: {difference}")
        if step.after is not None and last_uses[step.after] == number:
            del states[step.after]
        if number in last_uses:
            states[number] = kept if taken.state is None else msgspec.convert(taken.state, StateRow)


def take(step: Step, kept: StateRow | None) -> TakenShard:
    """Takes a shard through a recorded batch, from a state."""
    rows = [(_SOURCES[topic], *more) for topic, *more in step.records]
    columns = [*zip(*rows, strict=True)] or [()] * len(RECORDS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORDS, strict=True)]
    settings = {name: value for name, value in step.settings.items() if name != "rules_version"}
    restored = None
    if step.restored is not None:
        suspects = msgspec.convert(step.restored.suspects, list[Suspect])
        restored = RestoredShard(step.restored.state, step.restored.ends, suspects)
    return run_shard(
        kept,
        pa.Table.from_arrays(arrays, schema=RECORDS),
        step.batch_ms,
        msgspec.convert(settings, RouterShardSettings),
        step.partition,
        restored,
    )


def difference_of(recorded: Taken, found: Taken) -> str:
    """Returns the first difference between two results, as a text; empty if there is none."""
    for number, (one, other) in enumerate(zip(recorded.rows, found.rows, strict=False)):
        if one != other:
            return _shown(f"row {number}, of {one[0]},", _text(one), _text(other))
    if len(recorded.rows) != len(found.rows):
        common = min(len(recorded.rows), len(found.rows))
        more = [_text(row) for row in (*recorded.rows[common:], *found.rows[common:])]
        return f"{len(recorded.rows)} rows were recorded, {len(found.rows)} are written now. The first more: {more[0]}"
    if recorded.wake_delay_ms != found.wake_delay_ms:
        return f"the shard woke up after {recorded.wake_delay_ms} ms, and does after {found.wake_delay_ms} ms now"
    if recorded.done != found.done:
        return f"periodic tasks: {recorded.done} was recorded, {found.done} is done now"
    return ""


def _text(row: Row) -> str:
    topic, key, value, headers, partition = row
    return f"{topic}/{partition} {key!r} {headers or ''} {value!r}"


def _shown(what: str, one: str, other: str) -> str:
    """Returns where two texts differ."""
    same = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    begin = max(0, same - _SHOWN_BEFORE)
    was, is_now = (f"{'...' if begin else ''}{text[begin : begin + _SHOWN]}" for text in (one, other))
    return f"{what} differs\n  was: {was}\n  is:  {is_now}"


def main() -> int:
    """Replays recordings, and prints the first difference of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.recordings.replay")
    parser.add_argument("places", nargs="+", type=Path, metavar="FILE_OR_FOLDER")
    files, different = files_in(parser.parse_args().places), 0
    for file in files:
        steps = [*read(file)]
        try:
            for is_from_states in (False, True):
                replay(steps, is_from_states=is_from_states)
        except DifferenceError as error:
            different += 1
            print(f"{file.name}: DIFFERS: {'from recorded states, ' if is_from_states else ''}{error}")
        else:
            print(f"{file.name}: {len(steps)} batches are the same")
    print(f"{len(files)} recordings, of which {different} differ")
    return 1 if different or not files else 0


if __name__ == "__main__":
    sys.exit(main())
