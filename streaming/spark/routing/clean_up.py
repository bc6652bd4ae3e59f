"""Decides which records of a partition may be deleted: old records to which no conversation refers."""

from dataclasses import dataclass, field

from streaming.core.conversations.decisions import CleanUp
from streaming.core.times import Clock

# A query that starts again may read the batches again whose records Spark's metadata still names.
KEPT_BATCHES = 20
# Samples of the offsets over the time for which records are kept.
_SAMPLES = 24


@dataclass(slots=True)
class CleanUpState:
    """The offsets of a partition over time.

    Attributes:
        batches: The number of batches of the shard.
        samples: Instant, number of batches so far, offsets of service-messages and service-incoming, and the batch's
            timestamp. Older routers wrote no timestamp.
        done: The offsets below which records were to be deleted.
    """

    batches: int = 0
    samples: list[list[int]] = field(default_factory=list)
    done: list[int] = field(default_factory=lambda: [0, 0])


def clean_up(
    state: CleanUpState, clock: Clock, keep_ms: int, ends: tuple[int, int], lowest: tuple[int, int]
) -> CleanUp | None:
    """Notes the offsets of a batch. Returns the decision if records may be deleted.

    Args:
        state: The state, which is changed.
        clock: The shard's clock.
        keep_ms: The time for which all records are kept.
        ends: The offsets up to which the shard has read.
        lowest: The lowest offsets of service-messages and service-incoming to which a conversation refers.
    """
    state.batches += 1
    now_ms = clock.now_ms
    if state.samples and now_ms < state.samples[-1][0] + keep_ms // _SAMPLES:
        return None
    state.samples.append([now_ms, state.batches, *ends, clock.batch_ms])
    old = [
        sample
        for sample in state.samples
        if sample[0] + keep_ms <= now_ms and sample[1] + KEPT_BATCHES <= state.batches
    ]
    if not old:
        return None
    messages, incoming = min(old[-1][2], lowest[0]), min(old[-1][3], lowest[1])
    state.samples = state.samples[len(old) - 1 :]
    if messages <= state.done[0] and incoming <= state.done[1]:
        return None
    state.done = [max(messages, state.done[0]), max(incoming, state.done[1])]
    decided_ms = old[-1][4] if len(old[-1]) > 4 else 0
    return CleanUp(state.done[0], state.done[1], decided_ms)
