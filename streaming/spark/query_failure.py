"""Why a query has failed, in a few lines: what Spark says, and the first cause, which is often the telling one."""

import re

from pyspark import SparkContext
from pyspark.sql.streaming import StreamingQuery

_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
# A failed worker's message has its whole traceback.
_LINES = 5
_CONCURRENT_WRITE = "CONCURRENT_STREAM_LOG_UPDATE"
_UNREACHABLE = "org.apache.kafka.common.errors.TimeoutException"


def reason_of(query: StreamingQuery) -> str | None:
    """Why the query has ended by itself; None if it has not. The whole of it is in the log."""
    found = query._jsq.exception()
    if not found.isDefined():
        return None
    jvm = SparkContext._jvm
    text = jvm.org.apache.spark.util.Utils.exceptionString(found.get())  # type: ignore[union-attr]
    # Behind it Spark writes the offsets and the plan.
    message = str(found.get().getMessage()).partition("=== Streaming Query ===")[0].strip()
    message = "\n".join(message.splitlines()[:_LINES])
    if _UNREACHABLE in text:
        message = f"Kafka has not answered for minutes; when it does, start again from the checkpoint. {message}"
    causes = [cause.strip() for cause in _CAUSE.findall(text)]
    return f"{message}. First cause: {causes[-1]}" if causes and causes[-1] not in message else message


def is_concurrent_write(query: StreamingQuery) -> bool:
    """Returns whether the query has ended because somebody else wrote to its checkpoint."""
    found = query._jsq.exception()
    return found.isDefined() and _CONCURRENT_WRITE in str(found.get().getMessage())
