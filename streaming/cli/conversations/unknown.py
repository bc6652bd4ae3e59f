"""The messages about services and conversations that a command names but that do not exist."""

from collections.abc import Iterable

from streaming.cli.lines import say
from streaming.cli.meant import did_you_mean
from streaming.cli.routing.router_waits import has_router_run, router_absence
from streaming.cli.routing.service_commands import read_definitions
from streaming.errors import UserError
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.clients import Cluster
from streaming.system import hints
from streaming.wire.topics import Topics


def warn(kafka: Cluster, topics: Topics, service: str | None, others: Iterable[str] = ()) -> bool:
    """Prints a warning if a service does not exist; returns whether it has printed the warning.

    A user who may not read the definitions gets no warning.

    Args:
        kafka: The cluster.
        topics: The topics.
        service: The service; None: the user has named no service.
        others: Services of other instances, which are not defined here.

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
    """Returns the error about a conversation that is not in the views of the router.

    Args:
        kafka: The cluster.
        topics: The topics.
        conversation: The identifier that the user has given.
        is_filtered: Whether the user has also given filters, which may leave out the conversation.
    """
    if (absent := router_absence(kafka, topics)) is not None:
        if not has_router_run(kafka, topics):
            return UserError(f"No router has run yet, so none has read of a conversation {conversation!r}: {absent}")
        return UserError(
            f"No router has told of a conversation {conversation!r}. If it has begun since the last one ran, nobody "
            f"has read of it yet: {absent}"
        )
    among = " among those that the filters select" if is_filtered else ""
    return UserError(
        f"There is no conversation {conversation!r}{among}. `{hints.command('conversation', 'list')}` lists all; one "
        "that has ended is forgotten after half an hour."
    )
