"""Step 3 of a routing decision: the service to which a message for this instance is delivered."""

from streaming.core.routing.conversation import RoutedMessage
from streaming.core.routing.databases import Service
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.routing_table import Route

NO_BROKER_INSTANCE = 9795
NO_SERVICE = 9796


def locate(definitions: Definitions, conversation: RoutedMessage, route: Route) -> Service | int:
    """Returns the service; if there is none, the number of Service Broker's message for the reason.

    A broker instance in the conversation, or else in the route, names the database. Without a broker instance, the
    sender's database comes first, and then the other databases here, by the hash of R5.
    """
    name = conversation.to_service
    instance = conversation.to_broker_instance or route.broker_instance
    if instance is not None:
        database = definitions.database_here(instance)
        if database is None:
            return NO_BROKER_INSTANCE
        return definitions.service(database, name) or NO_SERVICE
    here = definitions.services_here(name)
    if not here:
        return NO_SERVICE
    if len(here) == 1:
        return here[0]
    if conversation.from_database is not None:
        own = definitions.service(conversation.from_database, name)
        if own is not None:
            return own
    return definitions.some_service_here(name, conversation.conversation_id)
