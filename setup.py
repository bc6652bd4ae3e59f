"""Compiles the queue monitors to machine code; everything else about the package stands in pyproject.toml.

An editable installation runs the source as it is: a compiled module would hide what is edited. Without a C compiler
the installation goes on, and the source is run too.
"""

import sys

from mypyc.build import mypycify
from setuptools import Extension, setup

# What a worker runs for each event and each queue. Settings are not among them: they travel to the workers, and what
# mypyc makes of a frozen dataclass cannot be pickled.
COMPILED = (
    "definition",
    "events",
    "notification",
    "queue",
    "queue_monitor",
    "sessions",
    "shard",
    "snapshot",
    "tasks",
    "times",
)


def extensions() -> list[Extension]:
    """The compiled modules; none unless a wheel is built, which neither an editable installation nor metadata needs."""
    if "bdist_wheel" not in sys.argv:
        return []
    found = mypycify([f"streaming/core/{name}.py" for name in COMPILED], group_name="queue_activation_core")
    for extension in found:
        extension.optional = True
    return found


setup(ext_modules=extensions())
