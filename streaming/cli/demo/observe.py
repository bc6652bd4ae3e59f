"""The demo of plain consumers: the activator starts programs that report nothing, on demand.

Monitor and observer run as a user starts them. The consumers need only Kafka.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from streaming.cli.demo import consumers
from streaming.cli.demo.observe_plan import ARCHIVE, EXPIRED, GROUPS, Client, DemoGroup
from streaming.cli.demo.observe_senders import prepare, senders
from streaming.cli.demo.observe_story import ObserveStory, ReaderLog
from streaming.cli.demo.stage import Stage, play, set_up
from streaming.cli.demo.starters import READERS_LOG, Reader, write_configs
from streaming.cli.group_survey import KEDA_LAG_THRESHOLD, lag_rule_readers
from streaming.cli.monitor_process import monitor_process
from streaming.core.numbers import plural
from streaming.core.observer.logs import Logs
from streaming.kafka.group_looks import GroupKind, GroupLooks
from streaming.system import java
from streaming.system.jars import broker_jars
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment

_FOLDER = Path(consumers.__file__).parent
# As small as a program that lives for seconds should be.
_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")


def run(console: Console) -> int:
    """Runs the demo; returns 0 if every message was read, and each consumer that was started has received a message.

    Raises:
        UserError: Java or the jars are missing, or a part of the demo does not start.
    """
    with set_up(
        console, "[bold]queue-activation demo observe[/]: plain consumers start when one more has work"
    ) as stage:
        with stage.progress("creating topics and consumer groups"):
            prepare(stage.cluster)
        with stage.progress("starting the monitor (Spark)"):
            servers = stage.cluster.bootstrap_servers
            monitor = stage.parts.enter_context(monitor_process(servers, stage.folder))
        groups = _with_clients(console)
        readers = [_reader(group, servers) for group in groups]
        log = stage.folder / "observer.log"
        with stage.progress("starting the observer"):
            config, _ = write_configs(readers, stage.folder)
            observer = stage.parts.enter_context(_observer(servers, config, log))
        _introduce(console, groups)
        story = ObserveStory(console, ReaderLog(stage.folder / READERS_LOG), _lag_rule(stage))
        actors = senders(stage.cluster, story, log)
        story.cannot_be_read(ARCHIVE.name, f"{EXPIRED} messages expired before anybody read them")
        return play(stage, story, actors, [monitor, observer], readers)


@contextmanager
def _observer(bootstrap_servers: str, config: Path, log: Path) -> Iterator[ChildProcess]:
    """Starts an observer, which is ready when the block begins."""
    command = [*THIS_COMMAND, "observe", "--config", str(config), "--bootstrap-servers", bootstrap_servers]
    with ChildProcess(command, log_file=log, env=own_environment()) as process:
        process.wait_until_said("observer ready")
        yield process


def _introduce(console: Console, groups: Sequence[DemoGroup]) -> None:
    console.print()
    for group in groups:
        partitions = plural(group.partitions, "partition")
        console.print(f"  group {group.name:<10}{partitions:<14}{group.client.value:<17}{group.what}")
    console.print(f"  a lag rule (KEDA's defaults): a reader for each {KEDA_LAG_THRESHOLD} offsets that are not")
    console.print("  committed, but no more than partitions")


def _with_clients(console: Console) -> Sequence[DemoGroup]:
    """Returns the groups. Without a Java compiler, another client replaces Java's."""
    if java.can_compile(java.find_java()):
        return GROUPS
    other = Client.CONFLUENT_KAFKA
    console.print(f"  This Java has no compiler, so {other.value} replaces {Client.JAVA.value}.")
    return [replace(group, client=other) if group.client is Client.JAVA else group for group in GROUPS]


def _reader(group: DemoGroup, bootstrap_servers: str) -> Reader:
    words = [*_program(group.client), bootstrap_servers, "{queue}", "{queue}", str(group.work_s)]
    return Reader(group.name, words, group.partitions, is_plain=True)


def _program(client: Client) -> list[str]:
    """Returns the command line of a consumer, without its arguments."""
    if client is Client.JAVA:
        jars_of_client = f"{broker_jars()[0].parent}/*"
        return [str(java.find_java()), *_JVM_OPTIONS, "-cp", jars_of_client, str(_FOLDER / "JavaConsumer.java")]
    file = f"{client.value.replace('-', '_')}_consumer.py"
    return [sys.executable, str(_FOLDER / file)]


def _lag_rule(stage: Stage) -> Callable[[str], int]:
    """Returns a function: group -> the number of readers that KEDA's rule, with its defaults, would want now."""
    looks = GroupLooks(stage.cluster)
    stage.parts.callback(looks.close)

    def readers(group: str) -> int:
        logs = Logs()
        looks.see_topics([group], logs)
        looks.see_logs([group], logs)
        return lag_rule_readers(looks.pictures({group: GroupKind.CLASSIC})[group], logs)

    return readers
