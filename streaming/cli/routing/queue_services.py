"""The services whose messages go into a queue."""

from streaming.cli.routing.service_commands import read_definitions
from streaming.core.routing.databases import Service
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics


def leading_to(kafka: Cluster, topics: Topics, queue: str) -> list[Service]:
    """Returns the services of a queue, in order of names; none if this user may not read the definitions.

    Raises:
        UserError: Kafka cannot be reached.
    """
    name = topics.service_commands
    try:
        if name not in Admin(kafka).topic_ids([name], ADMIN_TIMEOUT_S):
            return []  # queues alone need no topics of services
        services = read_definitions(kafka, topics).services()
    except AccessDeniedError:
        return []
    return sorted((each for each in services if each.queue == queue), key=lambda each: (each.name, each.database))
