"""The command `queue-activation prepare`: run once on a machine, it makes the first start as quick as later starts."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from streaming.cli.lines import say
from streaming.cli.monitor_process import monitor_process
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import start_progress
from streaming.system.java import find_java
from streaming.wire.topics import Topics


def prepare() -> None:
    """Fetch the jars and archive Java's classes; each monitor then starts in two thirds of the time.

    Runs a broker and a monitor for a moment. A second call does nothing. The archive is for this Java and these jars,
    and takes 190 MB in the cache.
    """
    from streaming.spark import class_archive, session
    from streaming.system.jars import spark_jars

    with start_progress.in_files_too():
        start_progress.say_to_user("looking at Java and the jars")
        java = find_java()
        archive = class_archive.path_of(java, session.local_jars(spark_jars()))
        if class_archive.is_trusted(archive):
            say("already prepared")
            return
        with tempfile.TemporaryDirectory(prefix="queue-activation-prepare-") as folder:
            class_list, log_file = Path(folder, "classes"), Path(folder, "java.log")
            _list_classes(class_list)
            with start_progress.told("archiving these classes", "step 3 of 3, 190 MB"):
                class_archive.make(java, class_list, archive, log_file)
    say("prepared")


def _list_classes(class_list: Path) -> None:
    from streaming.spark.class_archive import CLASS_LIST_VARIABLE
    from streaming.system.embedded_broker import EmbeddedBroker

    with ExitStack() as stack:
        with start_progress.told("starting a broker", "step 1 of 3"):
            broker = stack.enter_context(EmbeddedBroker())
            Admin(Cluster(broker.bootstrap_servers)).create_topics(Topics().specs(), partitions=2, replication_factor=1)
        environment = {CLASS_LIST_VARIABLE: str(class_list)}
        with (
            start_progress.told("listing the classes that a monitor loads", "step 2 of 3"),
            monitor_process(broker.bootstrap_servers, class_list.parent, environment=environment),
        ):
            pass  # the list has the classes that the monitor needs to become ready
