"""The options that `throughput.py` passes to every peer."""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """The settings of a run.

    Attributes:
        bootstrap_servers: Kafka's bootstrap servers.
        topics: The two input topics.
        output_topic: The topic for activations.
        events: Number of records in the input topics.
        folder: A new and empty folder for state and counters.
        variant: One of the peer's variants, or empty.
    """

    bootstrap_servers: str
    topics: tuple[str, str]
    output_topic: str
    events: int
    folder: Path
    variant: str

    @property
    def group(self) -> str:
        """Returns a group id that no other run has, so that nothing is resumed."""
        return f"{self.output_topic}-{self.folder.name}"


def parse(variants: Sequence[str] = ("",)) -> Options:
    """Parses the command line; the first variant is the default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--prefix", default="", help="prefix of the input topics")
    parser.add_argument("--output-topic", required=True)
    parser.add_argument("--events", type=int, required=True, help="number of records in the input topics")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--variant", choices=variants, default=variants[0])
    arguments = parser.parse_args()
    arguments.state_dir.mkdir(parents=True, exist_ok=True)
    return Options(
        arguments.bootstrap_servers,
        (f"{arguments.prefix}queue-arrivals", f"{arguments.prefix}queue-receives"),
        arguments.output_topic,
        arguments.events,
        Path(tempfile.mkdtemp(prefix="run-", dir=arguments.state_dir)).absolute(),
        arguments.variant,
    )
