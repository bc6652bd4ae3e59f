"""Says of a service that a filter names, and of which nothing is found, that it does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches

from streaming.cli.lines import say
from streaming.cli.routing.service_commands import read_definitions
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
    meant = get_close_matches(service, sorted(known), 1)
    did_you_mean = f" Did you mean {meant[0]!r}?" if meant else ""
    lists = f"`{hints.command('service', 'list')}` lists those of this instance."
    say(f"There is no service {service!r}.{did_you_mean} {lists}", err=True)
    return True
