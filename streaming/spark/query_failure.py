"""The reason for a query's failure in a few lines: Spark's message, and the first cause, which often explains more."""

import re

from pyspark import SparkContext
from pyspark.sql.streaming import StreamingQuery

from streaming.system.documents import document

_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
# The message of a failed worker contains its whole traceback.
_LINES = 5
_CONCURRENT_WRITE = "CONCURRENT_STREAM_LOG_UPDATE"
# Spark advises an option that only its own users can set.
_DATA_LOSS = re.compile(r"If you don't want your streaming query to fail.*?failOnDataLoss to false\.", re.DOTALL)
_RESTORE = f"{document('router.md')} says how to go on without what is lost (the runbook of a lost checkpoint)."
_UNREACHABLE = "org.apache.kafka.common.errors.TimeoutException"


def reason_of(query: StreamingQuery) -> str | None:
    """Returns why the query has ended by itself; None if the query has not failed. The log has the full text."""
    found = query._jsq.exception()
    if not found.isDefined():
        return None
    jvm = SparkContext._jvm
    text = jvm.org.apache.spark.util.Utils.exceptionString(found.get())  # type: ignore[union-attr]
    # After the message Spark appends the offsets and the plan.
    message = _DATA_LOSS.sub(_RESTORE, str(found.get().getMessage()).partition("=== Streaming Query ===")[0].strip())
    message = "\n".join(message.splitlines()[:_LINES])
    if _UNREACHABLE in text:
        message = f"Kafka has not answered for minutes. When it does, start again from the checkpoint. {message}"
    causes = [cause.strip() for cause in _CAUSE.findall(text)]
    return f"{message}. First cause: {causes[-1]}" if causes and causes[-1] not in message else message


def is_concurrent_write(query: StreamingQuery) -> bool:
    """Returns whether the query has ended because another program wrote to its checkpoint."""
    found = query._jsq.exception()
    return found.isDefined() and _CONCURRENT_WRITE in str(found.get().getMessage())
