"""The programs that carry the messages of a scene: a copy loop, MirrorMaker 2, and the router with the transport.

All read `service-messages`, and deliver once and in order, in transactions. The copy loop and MirrorMaker copy it into
one topic of as many partitions. The router decides about each message of each conversation, and the transport writes
the messages, with their numbers, into the queues of their services. Between two instances, a second router and a second
transport do the same once more, and acknowledge.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import copy_loop
from contestants import PEERS
from service_scene import PARTITIONS, Scene

from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment

_LOG_TAIL_LENGTH = 2_000
_MIRROR_MAKER = PEERS / "mirror-maker"

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
    """

    name: str
    programs: Callable[[Scene, Path], list[Program]]
    outputs: Callable[[Scene], list[str]]
    warm_up_s: int | None


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


def _queues(scene: Scene) -> list[str]:
    return scene.queues


COPY_LOOP = Contestant("copy loop", _copy_loop, _copy_topic, 5)
MIRROR_MAKER = Contestant(
    "MirrorMaker 2, exactly once", _mirror_maker(_MIRROR_MAKER_SETTINGS + _LARGE_BATCHES), _mirrored_topic, 30
)
MIRROR_MAKER_BY_DEFAULT = Contestant(
    "MirrorMaker 2, exactly once, batches by default", _mirror_maker(_MIRROR_MAKER_SETTINGS), _mirrored_topic, None
)
OURS = Contestant("router and transport", _router_and_transport, _queues, 60)
BETWEEN_INSTANCES = Contestant("routers and transports of two instances", _two_instances, _queues, 60)


@contextmanager
def running(programs: list[Program], folder: Path) -> Iterator[dict[str, ChildProcess]]:
    """Runs programs for the length of the block; yields the process of each by its name."""
    logs = [folder / f"{each.name}.log" for each in programs]
    with ExitStack() as stack:
        processes = {
            each.name: stack.enter_context(ChildProcess(each.command, log_file=log, env=own_environment()))
            for each, log in zip(programs, logs, strict=True)
        }
        try:
            yield processes
        except SystemExit:
            for log in logs:
                print(f"{log.stem}:\n{log.read_text()[-_LOG_TAIL_LENGTH:]}", file=sys.stderr)
            raise


def require_mirror_maker() -> None:
    """Raises SystemExit if MirrorMaker has not been set up."""
    if not (_MIRROR_MAKER / ".build" / "jars").is_dir():
        raise SystemExit("not set up: mirror-maker. `make bench` does so, or: benchmarks/peers/mirror-maker/setup")
