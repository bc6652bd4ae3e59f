"""Recorded batches of the router's shards: the code writes what was recorded, and a difference is noticed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from streaming.core.conversations.decisions import Decision
from streaming.core.routing.conversation import Instance
from streaming.spark.blocks import RECORDS
from streaming.spark.routing import run_shard
from streaming.spark.routing.checkpoint_layout import RULES_VERSION
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.shard_state import RestoredShard, StateRow
from streaming.spark.routing.sources import RouterSource
from tests.recordings.record import WORLDS, kinds_of
from tests.recordings.recorder import recorded
from tests.recordings.recording import SUFFIX, Step, files_in, read, write
from tests.recordings.replay import DifferenceError, replay

FOLDER = Path(__file__).parents[1] / "recordings"
FILES = files_in([FOLDER])
VIEWS = {"service-definitions", "service-conversations", "service-transmissions", "service-dead-letters"}
ADVICE = (
    "A batch that is done again must write the same. If other decisions are wanted, raise RULES_VERSION in "
    "streaming/spark/routing/checkpoint_layout.py, and record anew: python -m tests.recordings.record"
)
SETTINGS = RouterShardSettings("", 1, 1, Instance(frozenset()))
CREATE = b'{"type": "CREATE_DATABASE", "database": "shop", "broker_instance": "in shop"}'


@pytest.mark.parametrize("is_from_states", [False, True], ids=["from the beginning", "from recorded states"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix(SUFFIX))
def test_the_batches_of_the_recordings_write_the_same_again(file: Path, is_from_states: bool) -> None:
    try:
        replay([*read(file)], is_from_states=is_from_states)
    except DifferenceError as error:
        pytest.fail(f"{file.name}: {error}\n{ADVICE}", pytrace=False)


def test_the_recordings_have_every_kind_of_decision_and_view_and_are_of_the_current_rules() -> None:
    steps = [step for file in FILES for step in read(file)]
    known = {each.__name__.upper() for each in Decision.__args__}
    assert {kind.replace("_", "") for kind in kinds_of(steps)} == known
    assert {row[0] for step in steps for row in step.taken.rows} >= VIEWS
    assert {step.settings["rules_version"] for step in steps} == {RULES_VERSION}, ADVICE
    assert any(step.restored is not None and step.restored.state is not None for step in steps)
    assert sum(step.state is not None for step in steps) > len(FILES)


def batch(*records: tuple[RouterSource, int, bytes, bytes]) -> pa.Table:
    """Returns records with these sources, offsets, keys and values."""
    rows = [(source.value, 0, offset, offset, key, value, len(value)) for source, offset, key, value in records]
    return pa.Table.from_pylist([dict(zip(RECORDS.names, row, strict=True)) for row in rows], RECORDS)


def history() -> list[Step]:
    """Returns the record of a few batches: two with commands, the second of them twice, one without news, a restore."""
    first, second = (
        batch((RouterSource.COMMANDS, number, name, CREATE.replace(b"shop", name)))
        for number, name in enumerate((b"shop", b"stock"))
    )
    with recorded(snapshots_every=2) as steps:
        begun = run_shard.run_shard(None, first, 1_000, SETTINGS, 0).state
        for _ in range(2):
            state = run_shard.run_shard(begun, second, 2_000, SETTINGS, 0).state
        run_shard.run_shard(state, batch(), 3_000, SETTINGS, 0)
        restored = RestoredShard(msgspec.convert(state, StateRow), (5, 0), [])
        run_shard.run_shard(None, first, 4_000, replace(SETTINGS, generation=2), 0, restored)
    return steps


def test_a_recording_knows_with_which_state_a_batch_began(tmp_path: Path) -> None:
    steps = history()
    assert [step.after for step in steps] == [None, 0, 0, 2, None]
    assert [step.state is None for step in steps] == [True, True, False, True, True]
    assert [step.restored is None for step in steps] == [True, True, True, True, False]
    assert steps[0].records == [("service-commands", 0, 0, 0, b"shop", CREATE, len(CREATE))]
    write(tmp_path / "one.xz", steps)
    assert [*read(tmp_path / "one.xz")] == steps


def test_a_shard_that_begins_with_an_unknown_state_is_recorded_with_it() -> None:
    state = run_shard.run_shard(None, batch(), 1_000, SETTINGS, 0).state
    with recorded() as steps:
        run_shard.run_shard(state, batch((RouterSource.COMMANDS, 0, b"shop", CREATE)), 2_000, SETTINGS, 0)
    assert (steps[0].after, steps[0].state) == (None, state)
    replay(steps)


@pytest.mark.parametrize("is_from_states", [False, True])
def test_what_was_recorded_is_done_again(is_from_states: bool) -> None:
    replay(history(), is_from_states=is_from_states)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda taken: {"rows": [(*taken.rows[0][:4], 7), *taken.rows[1:]]}, "row 0, of service-definitions, differs"),
        (lambda taken: {"rows": taken.rows[:-1]}, "The first more: service-definitions"),
        (lambda taken: {"wake_delay_ms": taken.wake_delay_ms + 1}, "woke up after"),
        (lambda taken: {"done": {**taken.done, "RESUME_CLEAN_UP": 1}}, "periodic tasks"),
    ],
    ids=["another row", "more rows", "another wake-up", "other work"],
)
def test_a_batch_with_another_result_is_named(change: Any, expected: str) -> None:
    steps = history()
    steps[1].taken = msgspec.structs.replace(steps[1].taken, **change(steps[1].taken))
    with pytest.raises(DifferenceError, match=f"^batch 1 of 5, at 2000 in partition 0: .*{expected}"):
        replay(steps)


def test_a_shard_goes_on_from_the_recorded_state_and_not_from_its_own() -> None:
    steps = history()
    assert steps[2].state is not None
    steps[2].state = (*steps[2].state[:5], b"", b"")  # no definitions
    replay(steps)
    with pytest.raises(DifferenceError, match="batch 2"):
        replay(steps, is_from_states=True)


def test_a_world_is_recorded_with_restored_copies_and_done_again() -> None:
    with recorded(snapshots_every=10) as steps:
        WORLDS["conversations"](1, steps)
    assert any(step.restored is not None for step in steps)
    replay(steps)
    replay(steps, is_from_states=True)
