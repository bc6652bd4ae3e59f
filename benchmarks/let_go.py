"""Held messages: no route matches them, until one CREATE ROUTE lets all of them go.

    .venv/bin/python benchmarks/let_go.py [--messages 100000]

Prints the time until all are in the queues, and the memory of router and transport.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from contestants import resident_bytes
from machine import machine
from service_contestants import OURS, running
from service_scene import Reader, Scene

from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import ChildProcess

_ALL_HELD_S = 300.0


def let_go(scene: Scene, folder: Path, count: int) -> None:
    """Measures, and prints the figures."""
    scene.command("DROP_ROUTE", route="AutoCreatedLocal")
    scene.producer.flush()
    with (
        running(OURS.programs(scene, folder), folder) as processes,
        Reader(scene.cluster, OURS.outputs(scene)).reading() as reader,
    ):
        for name, process in processes.items():
            process.wait_until_said(f"{name} ready")
        before = memory(processes)
        scene.send_backlog(count)
        wait_until_held(scene, count)
        held = memory(processes)
        began_s = time.monotonic()
        scene.command("CREATE_ROUTE", route="local", address="LOCAL")
        scene.producer.flush()
        reader.wait_for(count, processes.values())
        after = memory(processes)
    elapsed_s = reader.last_s - began_s
    reader.take_latencies()  # checks the order
    print(f"{count:,} held messages let go in {elapsed_s:.1f} s, all once and in order")
    print(f"memory in MiB: at the start {before}, held {held}, let go {after}")


def memory(processes: dict[str, ChildProcess]) -> dict[str, int]:
    """Returns the resident memory of each program, in MiB."""
    return {name: resident_bytes(process.pid) // 2**20 for name, process in processes.items()}


def wait_until_held(scene: Scene, count: int) -> None:
    """Waits until the view says that so many messages are held."""
    held: dict[bytes, int] = {}
    deadline_s = time.monotonic() + _ALL_HELD_S
    with TopicFollower(scene.cluster, [scene.topics.service_transmissions], Start.BEGINNING) as follower:
        while sum(held.values()) < count:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"only {sum(held.values()):,} of {count:,} messages are held")
            message = follower.poll(0.1)
            if message is not None:
                held[message.key() or b""] = json.loads(message.value() or b'{"messages": 0}')["messages"]


def main() -> None:
    """Runs the benchmark on a broker of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        let_go(Scene(Cluster(broker.bootstrap_servers, {}), ""), Path(folder), arguments.messages)


if __name__ == "__main__":
    main()
