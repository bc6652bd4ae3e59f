"""Says whether the programs run on which the views depend: each of them is a member of a consumer group."""

from streaming.cli.lines import say
from streaming.daemons.monitor import sole_monitor
from streaming.daemons.router import sole_router
from streaming.daemons.transport import transport
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics

# Program -> its consumer group without the topic prefix, and what nobody does if no such program runs.
PROGRAMS = {
    "router": (sole_router.GROUP_ID, "no message of a service is delivered"),
    "transport": (transport.GROUP_ID, "the router's decisions are not carried out"),
    "monitor": (sole_monitor.GROUP_ID, "no reader is started for the messages that arrive"),
}


def is_running(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs. One that was killed counts as running until its session ends, after 10 s.

    Raises:
        AccessDeniedError: This user may not look at the program's consumer group.
        UserError: Kafka cannot be reached, or refuses.
    """
    group_id, _ = PROGRAMS[program]
    return bool(Admin(kafka).members(topics.prefix + group_id, ADMIN_TIMEOUT_S))


def absence(kafka: Cluster, topics: Topics, program: str) -> str | None:
    """Returns the sentence about a program that does not run, and what to do; None if it runs.

    Raises as `is_running` does.
    """
    if is_running(kafka, topics, program):
        return None
    group_id, consequence = PROGRAMS[program]
    return (
        f"no {program} is in the consumer group {topics.prefix}{group_id}, so {consequence}. Start one: "
        f"queue-activation {program}"
    )


def warn_of_absence(kafka: Cluster, topics: Topics) -> None:
    """Says that no monitor runs, so that a view shows what the last one has left; or that this is not known."""
    try:
        sentence = absence(kafka, topics, "monitor")
    except AccessDeniedError as error:
        say(f"whether a monitor runs is unknown: {error}", err=True)
    else:
        if sentence is not None:
            say(f"{sentence}. What follows is what the last one has written.", err=True)
