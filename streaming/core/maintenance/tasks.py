"""The periodic tasks of all programs, with their names, intervals and purposes.

The tasks are those of the document "Service Broker Periodic Tasks". docs/periodic-tasks.md describes each task.
"""

from typing import NamedTuple


class Task(NamedTuple):
    """A periodic task.

    Attributes:
        name: The task's name, as users see it.
        every: The task runs on each notification whose number is a multiple of `every`.
        purpose: The task's purpose, for users.
        is_counted: Whether the program does the work at once when an event makes it due. The task's turn then only
            counts the work.
    """

    name: str
    every: int
    purpose: str
    is_counted: bool = False


# The monitor
ADJUST_ACTIVATION_TASKS = Task(
    "ADJUST_ACTIVATION_TASKS", 1, "starts activation tasks where one more has useful work", is_counted=True
)

# The host
RESTART_TASK_HANDLERS = Task(
    "RESTART_TASK_HANDLERS", 1, "starts tasks that failed to start for lack of resources", is_counted=True
)

# The router
DELETE_STALE_MESSAGES = Task(
    "DELETE_STALE_MESSAGES", 1, "deletes messages ahead of sequence after 10 s", is_counted=True
)
RECLASSIFY_CONVERSATIONS = Task(
    "RECLASSIFY_CONVERSATIONS",
    2,
    "decides held messages again after changes of definitions, limits, or routes' expiry",
    is_counted=True,
)
RESTART_BROKERS = Task("RESTART_BROKERS", 5, "tries all deliveries again that could not be made", is_counted=True)
ASK_FOR_ROUTES = Task(
    "ASK_FOR_ROUTES", 5, "asks the configuration service for missing routes, also again when due", is_counted=True
)
RESUME_CLEAN_UP = Task(
    "RESUME_CLEAN_UP", 5, "lets the transport delete messages that nobody needs any more", is_counted=True
)

# The transport
CONNECT_TO_DESTINATIONS = Task(
    "CONNECT_TO_DESTINATIONS", 2, "connects to destinations with pending messages that are not suppressed"
)
CLOSE_IDLE_CONNECTIONS = Task("CLOSE_IDLE_CONNECTIONS", 5, "closes connections that have been idle")
DELETE_UNFORWARDED_MESSAGES = Task(
    "DELETE_UNFORWARDED_MESSAGES", 5, "deletes messages that were not forwarded within 60 s"
)
RESUME_DELETIONS = Task("RESUME_DELETIONS", 5, "asks Kafka again to delete records that it could not delete")
