"""Hears from Spark when a query begins, when a batch of it is committed, and when it ends."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from py4j.java_gateway import JavaObject
from pyspark import SparkContext
from pyspark.sql.streaming import StreamingQueryListener


class QueryObserver(Protocol):
    """Who is told; in threads of Spark's listener, so that nothing waits for it but further news."""

    def query_is_active(self, is_active: bool) -> None:
        """The query begins, or has ended, however it did."""

    def batch_is_committed(self, progress: Mapping[str, Any]) -> None:
        """A batch is committed; Spark's StreamingQueryProgress, from its JSON."""


class Listener(StreamingQueryListener):
    """A StreamingQueryListener that takes Spark's events as they are.

    PySpark would make a Python object of each figure of a batch, and ask the JVM for each: 100 ms, 25 of them CPU time
    in Python. The JSON of all figures is one question, and takes 1.5 ms.
    """

    def __init__(self, query_name: str, observer: QueryObserver) -> None:
        """Prepares it; it is deaf to queries of other names."""
        self._query_name = query_name
        self._observer = observer
        self._run_id: str | None = None

    @property
    def _jlistener(self) -> JavaObject:
        return SparkContext._jvm.PythonStreamingQueryListenerWrapper(self)  # type: ignore[union-attr]

    def onQueryStarted(self, event: JavaObject) -> None:  # noqa: N802  (Spark's name)
        """Before the query's first batch."""
        if event.name() == self._query_name:
            self._run_id = event.runId().toString()
            self._observer.query_is_active(True)

    def onQueryProgress(self, event: JavaObject) -> None:  # noqa: N802
        """After each batch."""
        progress = json.loads(event.progress().json())
        if progress["runId"] == self._run_id:
            self._observer.batch_is_committed(progress)

    def onQueryIdle(self, event: JavaObject) -> None:  # noqa: N802
        """Now and then while there is nothing to read."""

    def onQueryTerminated(self, event: JavaObject) -> None:  # noqa: N802
        """When the query has ended."""
        if event.runId().toString() == self._run_id:
            self._observer.query_is_active(False)

    class Java:
        """What py4j asks a Python object that the JVM calls for."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
