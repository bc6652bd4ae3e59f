"""Compiles most of what a worker runs for each record; everything else about the package stands in pyproject.toml.

An editable installation runs the source as it is: a compiled module would hide what is edited. Without a C compiler
the installation goes on, and the source is run too.
"""

import sys

from mypyc.build import mypycify
from setuptools import Extension, setup

# Most of what a worker runs for each event, each queue and each record it writes. Settings are not among them: they
# travel to the workers, and what mypyc makes of a frozen dataclass cannot be pickled. Nor are the classes of msgspec,
# whose keywords mypyc drops.
COMPILED = (
    "core/activation/definition",
    "core/activation/events",
    "core/activation/notification",
    "core/activation/queue",
    "core/activation/queue_monitor",
    "core/activation/room",
    "core/activation/sessions",
    "core/activation/shard",
    "core/activation/snapshot",
    "core/activation/tasks",
    "core/times",
    "spark/activation/input_batch",
    "spark/activation/output_rows",
    "spark/activation/step_shard",
)


# For mypy, which reads the types. They were checked before (make lint), with what the package needs at hand; where a
# wheel is built that is not installed, and what is should make no difference.
_OPTIONS = ("--config-file=", "--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent")


def extensions() -> list[Extension]:
    """The compiled modules; none unless a wheel is built, which neither an editable installation nor metadata needs."""
    if "bdist_wheel" not in sys.argv:
        return []
    files = [f"streaming/{name}.py" for name in COMPILED]
    found = mypycify([*_OPTIONS, *files], group_name="queue_activation")
    for extension in found:
        extension.optional = True
    return found


setup(ext_modules=extensions())
