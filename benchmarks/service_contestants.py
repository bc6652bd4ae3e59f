"""The programs that carry the messages of a scene: the router with the transport, and what could be used instead.

All read `service-messages`, and deliver once and in order, in transactions. A copy loop and MirrorMaker 2 copy it into
one topic of as many partitions. An application of Kafka Streams writes the messages, with their numbers, into the
queues of their services. So do the router, which decides about each message of each conversation, and the transport.
Between two instances, a second router and a second transport do the same once more, and acknowledge. `run` has router,
transport and a monitor.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import copy_loop
from contestants import PEERS, not_set_up
from service_scene import PARTITIONS, Scene

from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment

_LOG_TAIL_LENGTH = 2_000
# `run` stops its programs one after the other.
_STOP_TIMEOUT_S = 30.0
_MIRROR_MAKER = PEERS / "mirror-maker"
_KAFKA_STREAMS = PEERS / "kafka-streams"

# MirrorMaker 2 of Kafka 4.3.1 in dedicated mode, with its replication policy by default, which puts the alias of the
# source before the topic's name. Both aliases are the same broker, as the other programs read and write one broker.
_MIRROR_MAKER_SETTINGS = """\
clusters={source}, target
{source}.bootstrap.servers={servers}
target.bootstrap.servers={servers}
{source}->target.enabled=true
{source}->target.topics={topic}
target->{source}.enabled=false
# Exactly-once. A dedicated cluster needs its REST service for it.
target.exactly.once.source.support=enabled
{source}->target.exactly.once.support=required
{source}->target.consumer.isolation.level=read_committed
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:0
# A single broker.
replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
# Work that the other programs do not have.
emit.heartbeats.enabled=false
emit.checkpoints.enabled=false
emit.offset-syncs.enabled=false
sync.group.offsets.enabled=false
sync.topic.acls.enabled=false
"""
# MirrorMaker commits a transaction for each poll, which has 500 records by default. These settings make it three times
# as fast. More tasks made it slower on two cores.
_LARGE_BATCHES = """\
{source}->target.consumer.max.poll.records=5000
{source}->target.consumer.max.partition.fetch.bytes=4194304
target.producer.linger.ms=5
target.producer.batch.size=262144
"""
# The reasons are in the peer's README.md.
_KAFKA_STREAMS_SETTINGS = """\
application.id={name}
bootstrap.servers={servers}
state.dir={state}
processing.guarantee=exactly_once_v2
num.stream.threads=2
producer.batch.size=131072
producer.retry.backoff.ms=10
"""


@dataclass(frozen=True)
class Program:
    """A process to start.

    Attributes:
        name: Its name.
        command: Its command line.
    """

    name: str
    command: list[str | Path]


@dataclass(frozen=True)
class Contestant:
    """One row of the table.

    Attributes:
        name: The name in the table.
        programs: Returns its programs, given the scene and a folder of its own; creates the topics that they need.
        outputs: Returns the topics into which they put messages.
        warm_up_s: The seconds of load before its latency is measured, for Java's compilers; None: it is not measured.
        built: What the set-up of its peer makes last; None: it needs no set-up.
    """

    name: str
    programs: Callable[[Scene, Path], list[Program]]
    outputs: Callable[[Scene], list[str]]
    warm_up_s: int | None
    built: Path | None = None


def _copy_loop(scene: Scene, _folder: Path) -> list[Program]:
    [target] = _copy_topic(scene)
    scene.create_topics([target], PARTITIONS)
    servers, source = scene.cluster.bootstrap_servers, scene.topics.service_messages
    return [Program("copy", [sys.executable, copy_loop.__file__, servers, source, target])]


def _copy_topic(scene: Scene) -> list[str]:
    return [f"{scene.topics.prefix}copy"]


def _mirror_maker(settings: str) -> Callable[[Scene, Path], list[Program]]:
    def programs(scene: Scene, folder: Path) -> list[Program]:
        scene.create_topics(_mirrored_topic(scene), PARTITIONS)
        file = folder / "mirror-maker.properties"
        topic, servers = scene.topics.service_messages, scene.cluster.bootstrap_servers
        file.write_text(settings.format(source=_alias(scene), servers=servers, topic=topic))
        return [Program("MirrorMaker", [_MIRROR_MAKER / "run", file])]

    return programs


def _alias(scene: Scene) -> str:
    # With an alias of its own, a run does not continue where another one ended.
    return f"of-{scene.topics.prefix.rstrip('-')}"


def _mirrored_topic(scene: Scene) -> list[str]:
    return [f"{_alias(scene)}.{scene.topics.service_messages}"]


def _kafka_streams(scene: Scene, folder: Path) -> list[Program]:
    settings, queues = folder / "streams.properties", folder / "queues.properties"
    name, servers = f"{scene.topics.prefix}router", scene.cluster.bootstrap_servers
    settings.write_text(_KAFKA_STREAMS_SETTINGS.format(name=name, servers=servers, state=folder / "state"))
    queues.write_text("".join(f"{service}={queue}\n" for service, queue in scene.queue_of_service.items()))
    command: list[str | Path] = [_KAFKA_STREAMS / "route", settings, queues, scene.topics.service_messages]
    return [Program("Kafka Streams", command)]


def _router_and_transport(scene: Scene, folder: Path) -> list[Program]:
    return [own_program(name, scene, folder) for name in ("router", "transport")]


def _two_instances(scene: Scene, folder: Path) -> list[Program]:
    servers = scene.cluster.bootstrap_servers
    far = scene.move_services(scene.cluster, servers, servers)
    own = _router_and_transport(scene, folder)
    return own + [own_program(name, scene, folder, far.prefix) for name in ("router", "transport")]


def own_program(name: str, scene: Scene, folder: Path, prefix: str = "", servers: str = "") -> Program:
    """Returns a program of this project; `prefix` and `servers`: of another instance than the scene's."""
    place = [servers or scene.cluster.bootstrap_servers, "--topic-prefix", prefix or scene.topics.prefix]
    connection = ["--bootstrap-servers", *place]
    title = f"far {name}" if prefix else name
    if name != "transport":
        connection += ["--checkpoint-location", str(folder / f"checkpoint {title}")]
    return Program(title, [*THIS_COMMAND, name, *connection])


def _run(scene: Scene, folder: Path) -> list[Program]:
    place = ["--bootstrap-servers", scene.cluster.bootstrap_servers, "--topic-prefix", scene.topics.prefix]
    return [Program("run", [*THIS_COMMAND, "run", *place, "--checkpoints", folder / "checkpoints"])]


def _queues(scene: Scene) -> list[str]:
    return scene.queues


COPY_LOOP = Contestant("copy loop", _copy_loop, _copy_topic, 5)
MIRROR_MAKER = Contestant(
    "MirrorMaker 2, exactly once",
    _mirror_maker(_MIRROR_MAKER_SETTINGS + _LARGE_BATCHES),
    _mirrored_topic,
    30,
    _MIRROR_MAKER / ".build" / "jars",
)
MIRROR_MAKER_BY_DEFAULT = Contestant(
    "MirrorMaker 2, exactly once, batches by default",
    _mirror_maker(_MIRROR_MAKER_SETTINGS),
    _mirrored_topic,
    None,
    _MIRROR_MAKER / ".build" / "jars",
)
KAFKA_STREAMS = Contestant(
    "Kafka Streams, exactly once", _kafka_streams, _queues, 30, _KAFKA_STREAMS / ".build" / "classes"
)
OURS = Contestant("router and transport", _router_and_transport, _queues, 60)
BETWEEN_INSTANCES = Contestant("routers and transports of two instances", _two_instances, _queues, 60)
# The other programs have carried backlogs before.
EVERYTHING = Contestant("run: monitor, router, transport", _run, _queues, 120)


@contextmanager
def running(programs: list[Program], folder: Path) -> Iterator[dict[str, ChildProcess]]:
    """Runs programs for the length of the block; yields the process of each by its name."""
    logs = [folder / f"{each.name}.log" for each in programs]
    with ExitStack() as stack:
        processes = {}
        for each, log in zip(programs, logs, strict=True):
            process = stack.enter_context(ChildProcess(each.command, log_file=log, env=own_environment()))
            stack.callback(process.stop, _STOP_TIMEOUT_S)
            processes[each.name] = process
        try:
            yield processes
        except SystemExit:
            for log in logs:
                print(f"{log.stem}:\n{log.read_text()[-_LOG_TAIL_LENGTH:]}", file=sys.stderr)
            raise


def require_set_up(chosen: Iterable[Contestant]) -> None:
    """Raises SystemExit if the peer of one of these contestants has not been set up."""
    missing = [each.built for each in chosen if each.built is not None and not each.built.exists()]
    if missing:
        raise not_set_up(built.parent.parent.name for built in missing)
