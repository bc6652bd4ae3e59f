"""The shop of the demos of services and of instances: its orders to the stock."""

import threading
from collections.abc import Collection

from producers.conversations import Conversation
from producers.queue_topics import create_queue_topics
from producers.services import ServiceClient
from streaming.cli.demo.conversation_story import ConversationStory
from streaming.cli.demo.service_plan import LAST, ORDERS, REMINDER, SHOP, STOCK
from streaming.cli.demo.stage import Actor
from streaming.cli.routing.service_commands import send
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.topics import Topics

# One for each core of a small machine, because each partition costs time in each batch of the router.
_PARTITIONS = 2
# Conversations that go on for as long as orders flow, and the interval between their messages.
STANDING_ORDERS = 4
_BEAT_S = 0.5
# In each interval another conversation begins, with as many messages.
SHORT_ORDER_LINES = 3


def define(cluster: Cluster, topics: Topics, queues: Collection[str], *commands: ServiceCommand) -> None:
    """Creates the topics of the programs and of the queues, and sends the commands, before a router runs."""
    Admin(cluster).create_topics([*topics.specs(), *topics.service_specs()], _PARTITIONS, 1)
    create_queue_topics(cluster.bootstrap_servers, queues, partitions=1, replication_factor=1)
    send(cluster, topics, *commands)


class Flow(Actor):
    """Sends orders to the stock: lines of standing orders, and short orders of a few lines.

    Attributes:
        standing: The conversations of the standing orders.
    """

    def __init__(self, cluster: Cluster, story: ConversationStory, timer_s: float | None = None) -> None:
        """Stores the arguments.

        Args:
            cluster: The shop's Kafka cluster.
            story: Notes the messages.
            timer_s: One standing order gets its last line by a timer, after this time; None: no order does.
        """
        super().__init__("flow")
        self.standing: list[str] = []
        self._cluster = cluster
        self._story = story
        self._timer_s = timer_s
        self._is_ending = threading.Event()

    def end(self) -> None:
        """Ends the flow, and sends the last line of each standing order."""
        self._is_ending.set()

    def _act(self) -> None:
        with ServiceClient(self._cluster.bootstrap_servers, SHOP) as client:
            standing = [client.begin(ORDERS.name, STOCK) for _ in range(STANDING_ORDERS)]
            while not self._is_ending.is_set():
                with client.transaction():
                    for conversation in standing:
                        _say(self._story, conversation)
                    say_all(self._story, client.begin(ORDERS.name, STOCK), SHORT_ORDER_LINES)
                self.standing = [conversation.conversation_id for conversation in standing]
                self.pause(_BEAT_S)
            with client.transaction():
                if self._timer_s is not None:
                    late = standing.pop()
                    late.set_timer(self._timer_s)
                    # The shop's reader sends this line when the timer is due.
                    self._story.said[late.conversation_id].append(REMINDER)
                for conversation in standing:
                    _say(self._story, conversation, LAST)


def say_all(story: ConversationStory, conversation: Conversation, lines: int) -> None:
    """Sends all lines of a conversation."""
    for number in range(lines):
        _say(story, conversation, LAST if number == lines - 1 else None)


def _say(story: ConversationStory, conversation: Conversation, message_type: str | None = None) -> None:
    """Sends the next line of a conversation."""
    said = story.said.setdefault(conversation.conversation_id, [])
    body = b"line %d" % (len(said) + 1)
    conversation.send(body, message_type=message_type)
    said.append(body)
