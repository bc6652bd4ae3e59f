"""Counts the work of the workers for the driver, such as the records that they write to each topic.

The tasks of a batch's last stage write the records. Spark adds the count of such a task once, when the task succeeds.
So a task that is tried again counts once. The records that its failed attempt had already sent to Kafka do not count.
"""

from collections import Counter
from collections.abc import Iterator

import pandas as pd
from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession


class CounterParam(AccumulatorParam[Counter[str]]):
    """Adds up the counters of the workers."""

    def zero(self, value: Counter[str]) -> Counter[str]:  # noqa: ARG002  (Spark's signature)
        """Returns an empty counter."""
        return Counter()

    def addInPlace(self, value1: Counter[str], value2: Counter[str]) -> Counter[str]:  # noqa: N802  (Spark's name)
        """Returns a new counter, because another thread of the driver reads the old counter."""
        return value1 + value2


def counter(spark: SparkSession) -> "Accumulator[Counter[str]]":
    """Returns an accumulator of counts, with which the workers can report to the driver."""
    return spark.sparkContext.accumulator(Counter(), CounterParam())


def counted(frames: Iterator[pd.DataFrame], written: "Accumulator[Counter[str]]") -> Iterator[pd.DataFrame]:
    """Yields the frames unchanged, with the schema shard_worker.OUTPUT_SCHEMA, and counts their rows."""
    for frame in frames:
        written.add(Counter(frame["topic"]))
        yield frame
