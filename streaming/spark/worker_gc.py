"""Python's garbage collector in Spark's workers."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def spare_what_is_loaded(by: str) -> None:  # noqa: ARG001  (once for each)
    """Takes all there is now, modules above all, out of the collector's sight for good; does nothing the next time.

    Spark has a worker collect all generations after each task, which with pandas and pyarrow loaded takes longer than
    a small batch.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def no_collection() -> Iterator[None]:
    """A batch makes many objects and no cycles: the collector would look through all of them again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
