"""Compiles most of the code that a worker runs for each record; pyproject.toml has the rest of the package's settings.

An editable installation runs the source, because a compiled module would hide edits. Without a C compiler the
installation succeeds too, and runs the source.
"""

import sys

from mypyc.build import mypycify
from setuptools import Extension, setup

# Most of the code that a worker runs for each event, each queue and each record it writes, and that the transport runs
# for each message. Settings are not compiled: they are pickled for the workers, and a frozen dataclass that mypyc has
# compiled cannot be pickled. Nor are msgspec's classes, whose keywords mypyc drops. The constructor of a compiled
# dataclass or named tuple stays Python, so classes of which each message makes an object have an own `__init__`.
COMPILED = (
    "core/activation/definition",
    "core/activation/events",
    "core/activation/notification",
    "core/activation/observation",
    "core/activation/poison",
    "core/activation/queue",
    "core/activation/queue_monitor",
    "core/activation/room",
    "core/activation/session_ids",
    "core/activation/sessions",
    "core/activation/shard",
    "core/activation/snapshot",
    "core/activation/task_starts",
    "core/activation/tasks",
    "core/activation/transaction_marks",
    "core/conversations/context",
    "core/conversations/conversation",
    "core/conversations/delivery",
    "core/conversations/dispatcher",
    "core/conversations/due_work",
    "core/conversations/endpoint_states",
    "core/conversations/held_messages",
    "core/conversations/kinds",
    "core/conversations/mirrors",
    "core/conversations/questions",
    "core/conversations/snapshot",
    "core/conversations/statements",
    "core/conversations/step",
    "core/conversations/transmission",
    "core/routing/addresses",
    "core/routing/databases",
    "core/routing/definition_rules",
    "core/routing/definitions",
    "core/routing/matching_routes",
    "core/routing/resolution",
    "core/routing/route_order",
    "core/routing/routing_table",
    "core/routing/stable_hash",
    "core/routing/target_service",
    "core/times",
    "spark/activation/input_batch",
    "spark/activation/output_rows",
    "spark/activation/step_shard",
    "spark/routing/clean_up",
    "spark/routing/conversation_store",
    "spark/routing/decision_rows",
    "spark/routing/shard_records",
    "spark/routing/step_shard",
    "spark/routing/view_rows",
    "wire/dead_letters",
)


# Options of mypy, which reads the types. `make lint` checks them where the package's dependencies are installed. Where
# a wheel is built they are not, and other installed packages must make no difference.
_OPTIONS = ("--config-file=", "--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent")


def extensions() -> list[Extension]:
    """Returns the compiled modules. Only a wheel has some; an editable installation and metadata need none."""
    if "bdist_wheel" not in sys.argv:
        return []
    files = [f"streaming/{name}.py" for name in COMPILED]
    found = mypycify([*_OPTIONS, *files], group_name="queue_activation")
    for extension in found:
        extension.optional = True
    return found


setup(ext_modules=extensions())
