"""A Kafka broker that the workers of a test run share: the first worker that needs the broker starts it."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from streaming.system.embedded_broker import EmbeddedBroker

_POLL_INTERVAL_S = 0.5


@dataclass(frozen=True)
class SharedBroker:
    """A broker that other tests use too: each test has topics and groups of its own, and none stops the broker."""

    bootstrap_servers: str


@contextmanager
def shared_broker(folder: Path) -> Iterator[SharedBroker]:
    """Gives the run's broker to a worker. The worker that has started it keeps it until no other worker uses it.

    Args:
        folder: The folder of the run. One file in it says where the broker is, and is empty while there is none. Each
            worker that uses the broker holds a lock on another file.
    """
    with ExitStack() as stack:
        place, users = (stack.enter_context((folder / name).open("a+")) for name in ("broker.json", "broker-users"))
        with _locked(place):
            place.seek(0)
            found = place.read()
            if found:
                broker = SharedBroker(**json.loads(found))
            else:
                broker = SharedBroker(stack.enter_context(EmbeddedBroker()).bootstrap_servers)
                stack.callback(_wait_for_others, place, users)
                place.write(json.dumps(asdict(broker)))
                place.flush()
            fcntl.flock(users, fcntl.LOCK_SH)
        yield broker


def _wait_for_others(place: TextIO, users: TextIO) -> None:
    while not _is_forgotten(place, users):
        time.sleep(_POLL_INTERVAL_S)


def _is_forgotten(place: TextIO, users: TextIO) -> bool:
    """Forgets where the broker is, unless another worker uses the broker. Returns whether it was forgotten."""
    with _locked(place):
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(users, fcntl.LOCK_SH)  # the attempt may have released the shared lock
            return False
        place.truncate(0)
        return True


@contextmanager
def _locked(file: TextIO) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
