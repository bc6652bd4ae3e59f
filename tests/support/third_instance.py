"""A third instance beside a pair: the core without Spark, which reads and writes the records of real instances."""

import time
import uuid
from random import Random

from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.addresses import topic_prefix
from streaming.wire.delivered import Row
from streaming.wire.envelope import MAX_INCOMING_BYTES, decode_envelope
from streaming.wire.headers import decoded_headers
from streaming.wire.service_commands import CreateDatabase, CreateRoute, CreateService
from streaming.wire.topics import Topics
from tests.support.instances_world import Network, Site
from tests.support.service_scene import ORDERS, ServiceScene


class ThirdInstance(Network):
    """An instance with a database and one service. It does nothing until it is told to go on.

    Attributes:
        address: Its address, in the Kafka cluster of its neighbours.
        broker_instance: The broker instance of its database.
        topic: Its service-incoming.
        site: The instance.
    """

    def __init__(self, neighbour: ServiceScene, service: str, orders_at: str) -> None:
        """Creates it; `orders_at` is the address of the service ORDERS."""
        super().__init__(Random(1), is_bad=False)  # noqa: S311  (no secret)
        self._neighbour = neighbour
        topics = Topics(f"{uuid.uuid4().hex[:8]}-")
        self.address = f"tcp://{neighbour.bootstrap_servers}/{topics.prefix}"
        self.broker_instance, self.topic = str(uuid.uuid4()), topics.service_incoming
        neighbour.admin.create_topics([spec for spec in topics.service_specs() if spec.name == self.topic], 1, 1)
        self.site = Site(self, self.address, ConversationSettings())
        self.site.commands += [
            CreateDatabase("third", self.broker_instance),
            CreateService("third", service, "queue"),
            CreateRoute("third", "orders", orders_at, service_name=ORDERS),
        ]

    def send(self, sender: str, receiver: str, row: Row) -> None:  # noqa: ARG002  (of Network)
        """Writes a record into service-incoming of another instance."""
        key, value, headers = row
        self._neighbour.produce(Topics(topic_prefix(receiver)).service_incoming, value, key or b"", headers)

    def keys(self) -> list[bytes | None]:
        """Returns the conversations of the records in its topic."""
        return [each.key() for each in self._neighbour.read(self.topic, 0)]

    def go_on(self) -> None:
        """Takes the records that have come since, and carries out the decisions."""
        self.now_ms = time.time_ns() // 1_000_000
        records = self._neighbour.read(self.topic, 0)
        for each in records[len(self.site.incoming) :]:
            self.site.accept((each.key(), each.value(), decoded_headers(each)))
        self.site.go_on()
        self._neighbour.flush()

    def delivered(self, conversation_id: str) -> list[int | None]:
        """Goes on; returns the numbers of what its service has received in a conversation."""
        self.go_on()
        return [each.sequence for each, _ in self.site.delivered if each.conversation_id == conversation_id]

    def failed(self, number: int) -> set[str]:
        """Goes on; returns the conversations whose target has received an error of this number."""
        self.go_on()
        errors = [each for each, _ in self.site.delivered if each.kind == Kind.ERROR]
        envelopes = [decode_envelope(self.site.incoming[each.offset or 0][2], MAX_INCOMING_BYTES) for each in errors]
        return {each.conversation_id for each in envelopes if each.error_code == -number}
