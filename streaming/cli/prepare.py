"""The command `queue-activation prepare`: run once on a machine, it makes the first start as quick as later ones."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from streaming.cli.lines import say
from streaming.cli.monitor_process import monitor_process
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.java import find_java
from streaming.wire.topics import Topics

# Several times the duration of a first start on a slow machine.


def prepare() -> None:
    """Fetch the jars and archive Java's classes; each monitor then starts in two thirds of the time.

    Runs a broker and a monitor for a moment. A second call does nothing. The archive is for this Java and these jars,
    and takes 190 MB in the cache.
    """
    from streaming.spark import class_archive, session
    from streaming.system.jars import spark_jars

    java = find_java()
    archive = class_archive.path_of(java, session.local_jars(spark_jars()))
    if class_archive.is_trusted(archive):
        say("already prepared")
        return
    with tempfile.TemporaryDirectory(prefix="queue-activation-prepare-") as folder:
        class_list, log_file = Path(folder, "classes"), Path(folder, "java.log")
        with _progress("listing the classes that a monitor loads"):
            _list_classes(class_list)
        with _progress("archiving these classes"):
            class_archive.make(java, class_list, archive, log_file)
    say("prepared")


def _list_classes(class_list: Path) -> None:
    from streaming.spark.class_archive import CLASS_LIST_VARIABLE
    from streaming.system.embedded_broker import EmbeddedBroker

    with EmbeddedBroker() as broker:
        Admin(Cluster(broker.bootstrap_servers)).create_topics(Topics().specs(), partitions=2, replication_factor=1)
        environment = {CLASS_LIST_VARIABLE: str(class_list)}
        with monitor_process(broker.bootstrap_servers, class_list.parent, environment=environment):
            pass  # the list has the classes that the monitor needs to become ready


@contextmanager
def _progress(what: str) -> Iterator[None]:
    begin_s = time.monotonic()
    typer.echo(f"{what} ...", nl=False)
    yield
    typer.echo(f" done after {time.monotonic() - begin_s:.0f} s")
