"""The options that the runner gives every peer."""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """What to read, where to write, what for.

    Attributes:
        bootstrap_servers: Kafka's.
        topics: The two input topics.
        output_topic: Where activations go.
        events: Number of records in the input topics.
        folder: New and empty: for state and counters.
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
        """A name that no other run has, so that nothing is resumed."""
        return f"{self.output_topic}-{self.folder.name}"


def parse(variants: Sequence[str] = ("",)) -> Options:
    """Parses the command line; the first variant is the default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--prefix", default="", help="of the input topics")
    parser.add_argument("--output-topic", required=True)
    parser.add_argument("--events", type=int, required=True, help="records in the input topics")
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
