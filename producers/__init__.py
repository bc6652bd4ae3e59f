"""Clients for programs whose queues are Kafka topics. They send and read messages, and report both to the monitor.

The names below are the public ones; everything else in `producers` and `streaming` may change with any version.
"""

from producers.conversations import Conversation
from producers.producer import Message, QueueProducer
from producers.queue_topics import create_queue_topics
from producers.reader import QueueReader
from producers.received_message import ReceivedMessage
from producers.services import ServiceClient
from streaming.errors import UserError

__all__ = [
    "Conversation",
    "Message",
    "QueueProducer",
    "QueueReader",
    "ReceivedMessage",
    "ServiceClient",
    "UserError",
    "create_queue_topics",
]
