"""How many records the workers write to each topic, told to the driver for its metrics.

The tasks that write are those of a batch's last stage. Spark takes over what such a task adds when it succeeds, and
once for each, so a task that is tried again counts once; what its failed try had already sent to Kafka is not counted.
"""

from collections import Counter
from collections.abc import Iterator

import pandas as pd
from pyspark import Accumulator, AccumulatorParam

# topic -> records
RowCounts = Counter[str]


class RowCountsParam(AccumulatorParam[RowCounts]):
    """Adds what workers tell."""

    def zero(self, value: RowCounts) -> RowCounts:  # noqa: ARG002  (Spark's signature)
        """Nothing written yet."""
        return Counter()

    def addInPlace(self, value1: RowCounts, value2: RowCounts) -> RowCounts:  # noqa: N802  (Spark's name)
        """A new counter: the driver reads the old one from another thread."""
        return value1 + value2


def counted(frames: Iterator[pd.DataFrame], written: "Accumulator[RowCounts]") -> Iterator[pd.DataFrame]:
    """The frames as they are, by shards.OUTPUT_SCHEMA, their rows counted."""
    for frame in frames:
        written.add(Counter(frame["topic"]))
        yield frame
