"""The monitor with the most verbose output of itself and Spark: `python -m tests.support.verbose_monitor OPTIONS`.

The root logger has level DEBUG, without the project's filters. After the commit of the first batch, the program prints
Spark's configuration, the query's plans and its progress, and then TOLD.
"""

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from streaming.cli import main as command_line
from streaming.spark import session

TOLD = "all is told"
_LOG_CONFIG = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
# This logger prints the code that Spark generates: long texts, made from plans that are printed anyway.
logger.codegen.name = org.apache.spark.sql.catalyst.expressions.codegen
logger.codegen.level = warn
"""


def _tell(spark: SparkSession, query: StreamingQuery) -> None:
    while query.lastProgress is None:
        time.sleep(0.1)
    for name, value in spark.sparkContext.getConf().getAll():
        print(name, value)  # noqa: T201
    for row in spark.sql("SET -v").collect():
        print(*row)  # noqa: T201
    query.explain(extended=True)
    print(json.dumps(query.lastProgress, default=str))  # noqa: T201
    print(TOLD, flush=True)  # noqa: T201


def main() -> None:
    """Runs the command line of the monitor."""
    start = DataStreamWriter.start

    def start_and_tell(writer: DataStreamWriter) -> StreamingQuery:
        spark = SparkSession.active()
        spark.sparkContext.setLogLevel("DEBUG")  # PySpark would reset a level that was set at the start
        query = start(writer)
        threading.Thread(target=_tell, args=(spark, query), daemon=True).start()
        return query

    DataStreamWriter.start = start_and_tell  # type: ignore[method-assign, assignment]
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(_LOG_CONFIG)
        file.flush()
        session._LOG_CONFIG = Path(file.name)
        sys.argv[1:1] = ["monitor"]
        command_line.main()


if __name__ == "__main__":
    main()
