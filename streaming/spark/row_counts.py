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


class CounterParam(AccumulatorParam["Counter[str]"]):
    """Adds up what the workers count."""

    def zero(self, value: "Counter[str]") -> "Counter[str]":  # noqa: ARG002  (Spark's signature)
        """Returns an empty counter."""
        return Counter()

    def addInPlace(  # noqa: N802  (Spark's name)
        self, value1: "Counter[str]", value2: "Counter[str]"
    ) -> "Counter[str]":
        """Returns a new counter: the driver reads the old one in another thread."""
        return value1 + value2


def counted(frames: Iterator[pd.DataFrame], written: "Accumulator[RowCounts]") -> Iterator[pd.DataFrame]:
    """The frames as they are, by shards.OUTPUT_SCHEMA, their rows counted."""
    for frame in frames:
        written.add(Counter(frame["topic"]))
        yield frame
