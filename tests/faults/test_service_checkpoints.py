"""A router whose newest commit is deleted, or whose checkpoint is restored from an older copy, or lost.

No message comes twice or out of order. After a restore, no conversation waits in silence: it goes on, or both sides get
an Error.
"""

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Message

from streaming.core.conversations.decisions import ERROR
from streaming.core.conversations.suspects import REASON
from tests.support.fault_scene import KillableBroker, kill_with_java
from tests.support.killable_programs import Program
from tests.support.service_scene import ServiceScene, new_id
from tests.support.transporting import headers_of
from tests.support.waiting import wait_until

DEADLINE_S = 90.0


class Told:
    """The messages of a queue: bodies in order for each conversation, and who has got an Error."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.bodies: dict[str, list[bytes | None]] = defaultdict(list)
        self.errors: set[str] = set()
        for message in messages:
            headers = headers_of(message)
            if headers["message_type_name"] == ERROR:
                assert REASON.encode() in (message.value() or b"")
                self.errors.add(headers["conversation_id"])
            else:
                self.bodies[headers["conversation_id"]].append(message.value())


def talk(scene: ServiceScene, ids: Sequence[str], numbers: range) -> None:
    """Sends numbers in each of the conversations."""
    for number in numbers:
        for name in ids:
            scene.say("MESSAGE", name, b"%d" % number, begin=number == 0)
    scene.flush()


def restored(scene: ServiceScene, copy: str) -> Program:
    """Returns a router that begins a new checkpoint."""
    router = scene.program("router", "--restore", copy)
    at = router.options.index("--checkpoint-location") + 1
    router.options[at] = str(scene.folder / "checkpoint-restored")
    return router


@pytest.fixture
def scene(killable_broker: KillableBroker, tmp_path: Path) -> ServiceScene:
    scene = ServiceScene(killable_broker.bootstrap_servers, tmp_path)
    scene.define()
    return scene


def test_a_batch_whose_commit_was_deleted_is_done_again_and_delivers_nothing_twice(scene: ServiceScene) -> None:
    router, transport = scene.program("router"), scene.program("transport")
    ids = [new_id() for _ in range(30)]
    with scene.running(transport):
        with scene.running(router):
            talk(scene, ids, range(5))
            scene.read(scene.reserve, 150)
        commits = scene.folder / "checkpoint-router" / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in commits.glob(f"*{newest}*"):
            path.unlink()
        again = scene.program("router")
        again.environment = {"PYTHONHASHSEED": "4711"}
        with scene.running(again):
            talk(scene, ids, range(5, 7))
            told = Told(scene.read(scene.reserve, 210))
    assert told.bodies == {name: [b"%d" % number for number in range(7)] for name in ids}


def test_a_router_restored_from_a_copy_ends_what_has_gone_on_since_and_goes_on_with_the_rest(
    scene: ServiceScene,
) -> None:
    checkpoint, copy = scene.folder / "checkpoint-router", scene.folder / "copy"
    still, busy, new = ([new_id() for _ in range(10)] for _ in range(3))
    transport, router = scene.program("transport"), scene.program("router")
    with scene.running(transport):
        with scene.running(router):
            talk(scene, [*still, *busy], range(3))
            scene.read(scene.reserve, 60)
        shutil.copytree(checkpoint, copy)
        last = scene.program("router")
        last.start()
        last.wait_until_ready()
        talk(scene, busy, range(3, 5))
        talk(scene, new, range(2))
        scene.read(scene.reserve, 100)
        kill_with_java(last)
        shutil.rmtree(checkpoint)
        shutil.copytree(copy, checkpoint)

        older = scene.program("router")
        older.start()
        assert older.process is not None
        assert older.process.wait(DEADLINE_S) == 2
        assert f"--restore {checkpoint}" in older.log_file.read_text()

        with scene.running(restored(scene, str(copy))):
            talk(scene, still, range(3, 6))
            talk(scene, busy, range(5, 6))
            told = wait_for_errors(scene, scene.reserve, {*busy, *new})
            assert wait_for_errors(scene, scene.orders, {*busy, *new}).errors == {*busy, *new}
            wait_until(
                lambda: all(len(found) == 6 for found in of(Told(scene.read(scene.reserve, 0)), still)),
                DEADLINE_S,
                "messages of conversations that nothing has happened to",
            )
            told = Told(scene.read(scene.reserve, 0))
        with scene.running(restored(scene, str(copy))):
            talk(scene, still, range(6, 7))
            wait_until(lambda: len(scene.read(scene.reserve, 0)) >= 160, DEADLINE_S, "the next start goes on")
    assert told.errors == {*busy, *new}
    assert of(told, still) == [[b"%d" % number for number in range(6)]] * 10
    assert of(told, busy) == [[b"%d" % number for number in range(5)]] * 10
    assert of(told, new) == [[b"0", b"1"]] * 10


def test_without_a_copy_every_open_conversation_ends_with_an_error_to_both_sides(scene: ServiceScene) -> None:
    ids, later = [new_id() for _ in range(10)], [new_id() for _ in range(5)]
    with scene.running(scene.program("transport")):
        router = scene.program("router")
        router.start()
        router.wait_until_ready()
        talk(scene, ids, range(3))
        scene.read(scene.reserve, 30)
        kill_with_java(router)
        shutil.rmtree(scene.folder / "checkpoint-router")
        refused = scene.program("router")
        refused.start()
        assert refused.process is not None
        assert refused.process.wait(DEADLINE_S) == 2
        assert "--restore none" in refused.log_file.read_text()
        with scene.running(restored(scene, "none")):
            for queue in (scene.reserve, scene.orders):
                assert wait_for_errors(scene, queue, {*ids}).errors == {*ids}
            talk(scene, ids, range(3, 4))
            talk(scene, later, range(2))
            letters = wait_until(
                lambda: found if len(found := scene.read(scene.topics.service_dead_letters, 0)) == 10 else [],
                DEADLINE_S,
                "dead letters of what is said in ended conversations",
            )
            assert {headers_of(letter)["number"] for letter in letters} == {"8429"}
            wait_until(lambda: len(scene.read(scene.reserve, 0)) >= 50, DEADLINE_S, "new conversations")
    told = Told(scene.read(scene.reserve, 0))
    assert of(told, ids) == [[b"0", b"1", b"2"]] * 10
    assert of(told, later) == [[b"0", b"1"]] * 5


def of(told: Told, ids: Sequence[str]) -> list[list[bytes | None]]:
    return [told.bodies[name] for name in ids]


def wait_for_errors(scene: ServiceScene, queue: str, ids: set[str]) -> Told:
    """Waits until these conversations have an Error in a queue."""
    return wait_until(
        lambda: told if (told := Told(scene.read(queue, 0))).errors >= ids else None, DEADLINE_S, "errors"
    ) or Told([])
