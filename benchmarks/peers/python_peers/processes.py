"""The processes of a peer, which run for the length of a block."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

_STOP_S = 6


@contextmanager
def running(processes: Sequence[BaseProcess]) -> Iterator[Callable[[], bool]]:
    """Starts the processes, yields a function that tells whether all are alive, and ends them with the block."""
    for process in processes:
        process.start()
    try:
        yield lambda: all(process.is_alive() for process in processes)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(_STOP_S)
            process.kill()
