"""A link between two instances that is away while messages are sent: memory, and the rate at which it catches up.

    .venv/bin/python benchmarks/link_away.py [--messages 1000000] [--minutes 10] [--plot FILE.png]

Two brokers, with a router and a transport each. The link is cut, all messages of 1 KB are sent, and the memory of the
sending programs is measured until the time is over. Then the link is mended, until a reader has every message once and
in order.
"""

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from contestants import resident_bytes
from machine import machine
from service_contestants import Program, own_program, running
from service_scene import Reader, Scene

from streaming.kafka.clients import Cluster
from streaming.system.embedded_broker import HOST, EmbeddedBroker
from streaming.system.processes import ChildProcess
from streaming.system.relay import Relay

SAMPLE_S = 10.0
PORTION = 20_000
WARM_UP = 20_000


def memory_mib(programs: dict[str, ChildProcess]) -> dict[str, int]:
    """Returns the memory of each program with its children, in MiB."""
    return {name: resident_bytes(program.pid) // 2**20 for name, program in programs.items()}


def sampled(programs: dict[str, ChildProcess], began_s: float, note: str) -> tuple[float, dict[str, int]]:
    """Prints and returns the memory now."""
    at_s, found = time.monotonic() - began_s, memory_mib(programs)
    print(f"{at_s:6.0f} s  {note:<8}" + "".join(f"  {name} {mib:,} MiB" for name, mib in found.items()), flush=True)
    return at_s, found


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages that wait")
    parser.add_argument("--minutes", type=float, default=10, help="minutes for which the link is away")
    parser.add_argument("--plot", type=Path, help="PNG file for a plot; needs the extra `bench`")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        to_near, to_far = (stack.enter_context(Relay()) for _ in range(2))
        near, far = (stack.enter_context(EmbeddedBroker(relay=relay)) for relay in (to_near, to_far))
        clusters = [Cluster(broker.bootstrap_servers) for broker in (near, far)]
        scene = Scene(clusters[0], "near-")
        topics = scene.move_services(clusters[1], f"{HOST}:{to_far.port}", f"{HOST}:{to_near.port}")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        there: list[Program] = [
            own_program(name, scene, folder, topics.prefix, far.bootstrap_servers) for name in ("router", "transport")
        ]
        own = [own_program(name, scene, folder) for name in ("router", "transport")]
        stack.enter_context(running(there, folder))
        programs = stack.enter_context(running(own, folder))
        for name in programs:
            programs[name].wait_until_said(f"{name} ready")
        reader = stack.enter_context(Reader(clusters[1], scene.queues).reading())
        scene.send_backlog(WARM_UP)
        reader.wait_for(scene.sent, programs.values())
        for relay in (to_near, to_far):
            relay.cut()
        began_s = time.monotonic()
        samples = [sampled(programs, began_s, "cut")]
        for sent in range(0, arguments.messages, PORTION):
            scene.send_backlog(min(PORTION, arguments.messages - sent))
        samples.append(sampled(programs, began_s, "all sent"))
        while (left_s := began_s + 60 * arguments.minutes - time.monotonic()) > 0:
            time.sleep(min(SAMPLE_S, left_s))
            samples.append(sampled(programs, began_s, "away"))
        mended_s = time.monotonic()
        for relay in (to_near, to_far):
            relay.mend()
        while reader.count < scene.sent:
            time.sleep(SAMPLE_S / 2)
            samples.append(sampled(programs, began_s, f"{reader.count:,}"))
        reader.take_latencies()
        seconds = reader.last_s - mended_s
        print(f"\n{machine()}\n{arguments.messages:,} messages waited for {arguments.minutes:g} minutes")
        print(f"drained in {seconds:.0f} s: {arguments.messages / seconds:,.0f} messages/s, each once and in order")
        if arguments.plot is not None:
            plot(samples, mended_s - began_s, arguments.plot)


def plot(samples: list[tuple[float, dict[str, int]]], mended_s: float, path: Path) -> None:
    """Draws the memory of the sending programs over time."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - needed for plots only

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    for name in samples[0][1]:
        axes.plot([at_s for at_s, _ in samples], [found[name] for _, found in samples], label=name)
    axes.axvline(mended_s, color="gray", linestyle="--", label="the link is mended")
    axes.set_xlabel("seconds since the link was cut")
    axes.set_ylabel("memory, MiB")
    axes.set_ylim(0)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
