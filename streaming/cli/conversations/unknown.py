"""Says of a service or a conversation that a command names, and of which nothing is found, that it is not known."""

from collections.abc import Iterable

from streaming.cli.lines import say
from streaming.cli.meant import did_you_mean
from streaming.cli.routing.router_waits import router_absence
from streaming.cli.routing.service_commands import read_definitions
from streaming.errors import UserError
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.clients import Cluster
from streaming.system import hints
from streaming.wire.topics import Topics


def warn(kafka: Cluster, topics: Topics, service: str | None, others: Iterable[str] = ()) -> bool:
    """Says on the standard error that a service does not exist, and returns whether; not if this user may not know.

    Args:
        kafka: The cluster.
        topics: The topics.
        service: The service; None: the filter names none.
        others: Services that are known otherwise: those of other instances are not defined here.

    Raises:
        UserError: Kafka cannot be reached, or a topic is missing.
    """
    if service is None:
        return False
    try:
        defined = {each.name for each in read_definitions(kafka, topics).services()}
    except AccessDeniedError:
        return False
    known = {*defined, *others}
    if service in known:
        return False
    lists = f"`{hints.command('service', 'list')}` lists those of this instance."
    say(f"There is no service {service!r}.{did_you_mean(service, known)} {lists}", err=True)
    return True


def no_conversation(kafka: Cluster, topics: Topics, conversation: str, *, is_filtered: bool = False) -> UserError:
    """Returns the error about a conversation that no router has told of.

    Args:
        kafka: The cluster.
        topics: The topics.
        conversation: What the user has given.
        is_filtered: Whether there are filters besides, which may be why it is not found.
    """
    if (absent := router_absence(kafka, topics)) is not None:
        return UserError(
            f"No router has told of a conversation {conversation!r}. If it has begun since the last one ran, nobody "
            f"has read of it yet: {absent}"
        )
    among = " among those that the filters select" if is_filtered else ""
    return UserError(
        f"There is no conversation {conversation!r}{among}. `{hints.command('conversation', 'list')}` lists all; one "
        "that has ended is forgotten after half an hour."
    )
