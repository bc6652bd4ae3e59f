"""Processes of a peer, for as long as a block runs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

_STOP_S = 6


@contextmanager
def running(processes: Sequence[BaseProcess]) -> Iterator[Callable[[], bool]]:
    """Starts them and ends them with the block, which is given whether all of them are alive."""
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
