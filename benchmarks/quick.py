"""Detects a slower monitor: compares its speed with that of code that does not change, in under 3 minutes.

    .venv/bin/python benchmarks/quick.py [--write]

In a ratio of two speeds, the machine's own speed and most of its other load cancel out. The best run counts. Ends with
exit code 1 if a ratio is less than half of the committed one (quick.json), because these machines are too noisy to show
smaller differences. Also ends with exit code 1 if the monitor and the bare loop give different answers.
"""

import argparse
import json
import time
from pathlib import Path

import shard
from contestants import Contestant
from generate import SETS, InputSet, fill
from machine import machine
from running_monitor import prepare
from throughput import OURS, answer, measure

from streaming.kafka.clients import Cluster
from streaming.system.embedded_broker import EmbeddedBroker

COMMITTED = Path(__file__).with_suffix(".json")
BARE_LOOP = Contestant("bare loop", "bare-loop")
RUNS = 2
WORKER_TURNS = 4
WORST = 0.5


def main() -> None:
    """Measures the ratios, writes them if asked to, and compares them with the committed ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the new ratios to quick.json")
    arguments = parser.parse_args()
    prepare()
    found = {"monitor / bare loop": pipeline_ratio(SETS["quick"]), "worker / json.loads": worker_ratio()}
    if arguments.write:
        COMMITTED.write_text(json.dumps({name: round(ratio, 3) for name, ratio in found.items()}, indent=2) + "\n")
    committed = json.loads(COMMITTED.read_text())
    print(machine())
    print(f"{'':<24}{'now':>8}{'committed':>12}{'now / committed':>18}")
    for name, ratio in found.items():
        print(f"{name:<24}{ratio:>8.3f}{committed[name]:>12.3f}{ratio / committed[name]:>18.2f}")
    slower = [name for name, ratio in found.items() if ratio < WORST * committed[name]]
    if slower:
        raise SystemExit(f"Less than {WORST} of the committed ratio: {', '.join(slower)}")


def pipeline_ratio(of: InputSet) -> float:
    """Returns the monitor's warm events per second, divided by those of a plain consumer loop with the same rules."""
    with EmbeddedBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers, {})
        fill(cluster, of)
        results = {
            contestant: [measure(contestant, cluster, of) for _ in range(RUNS)] for contestant in (OURS, BARE_LOOP)
        }
    answer(results)
    best = {contestant: max(result.warm for result in found) for contestant, found in results.items()}
    return best[OURS] / best[BARE_LOOP]


def worker_ratio() -> float:
    """Returns a worker's events per second, divided by those of the standard library's JSON decoder on its values."""
    batch = argparse.Namespace(events=40_000, queues=1_250, batches=5)
    values = [record["value"] for record in next(shard.batches(batch))]
    stepped: list[float] = []
    decoded: list[float] = []
    # In turns, so that other load on the machine affects both.
    for _ in range(WORKER_TURNS):
        stepped += shard.measure(batch)[1]
        for _ in range(batch.batches):
            begin_s = time.perf_counter()
            for value in values:
                json.loads(value)
            decoded.append(len(values) / (time.perf_counter() - begin_s))
    return max(stepped) / max(decoded)


if __name__ == "__main__":
    main()
