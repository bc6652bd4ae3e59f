"""Python's garbage collector in Spark's workers."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def spare_what_is_loaded(by: str) -> None:  # noqa: ARG001  (called once for each)
    """Exempts all present objects, mostly modules, from collection forever. Later calls do nothing.

    Spark has a worker collect all generations after each task. With pandas and pyarrow loaded, that takes longer than a
    small batch.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def no_collection() -> Iterator[None]:
    """Turns the collector off while the block runs, because a batch makes many objects but no cycles."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
