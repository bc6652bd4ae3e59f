"""The messages that the demo of instances has sent and seen, and their differences."""

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from confluent_kafka import Message

from streaming.cli.demo.instance_plan import RESERVE, Place
from streaming.cli.demo.service_records import END, Differences, Direction, differences
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.wire.delivered import kind_of
from streaming.wire.headers import decoded_headers
from streaming.wire.service_views import TransmissionRow, decode_transmission


class Records:
    """Follows the queues of all places, and what waits in north. A context manager.

    Attributes:
        said: Conversation -> what its initiator has said.
        new: Queue -> messages that were seen since they were last taken out.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        """Stores the places; the first is the one whose waiting messages are shown."""
        self.said: dict[str, list[bytes]] = {}
        self.new: dict[str, int] = defaultdict(int)
        self._places = places
        self._waiting_topic = places[0].topics.service_transmissions
        self._waiting: dict[bytes, TransmissionRow] = {}
        self._found: dict[Direction, list[bytes]] = defaultdict(list)
        self._in: dict[str, set[str]] = defaultdict(set)
        self._sent_s: dict[tuple[str, bytes], float] = {}
        self.latencies_s: list[float] = []
        self._followers: list[TopicFollower] = []
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Begins to follow."""
        for place in self._places:
            topics = [*place.queues, *([self._waiting_topic] if place is self._places[0] else [])]
            follower = TopicFollower(place.cluster, topics, Start.BEGINNING)
            self._followers.append(self._resources.enter_context(follower))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def look(self) -> None:
        """Takes the records that come within a moment."""
        for follower in self._followers:
            message = follower.poll(0.01)
            while message is not None:
                self._take(message)
                message = follower.poll(0)

    def say(self, conversation_id: str, body: bytes) -> None:
        """Notes a message of an initiator."""
        self.said.setdefault(conversation_id, []).append(body)
        self._sent_s[conversation_id, body] = time.monotonic()

    def waiting(self) -> int:
        """Returns the number of north's messages to the stock that are not acknowledged."""
        return sum(row.messages for row in self._waiting.values() if row.to_service == RESERVE)

    def arrived_in(self, queue: str) -> set[str]:
        """Returns the conversations with messages in a queue."""
        return self._in[queue]

    def has(self, said: dict[str, list[bytes]]) -> bool:
        """Returns whether all of these messages have arrived."""
        return all(set(bodies) <= set(self._found[name, False]) for name, bodies in said.items())

    def is_complete(self) -> bool:
        """Returns whether every message was answered, and every conversation has ended."""
        return all(
            len(self._found[name, False]) >= len(bodies) and len(self._found[name, True]) > len(bodies)
            for name, bodies in self.said.items()
        )

    def counts(self) -> tuple[int, int, int]:
        """Returns the numbers of messages that were sent, delivered and answered."""
        sent = sum(map(len, self.said.values()))
        delivered = sum(len(set(found)) for (_, is_answer), found in self._found.items() if not is_answer)
        answered = sum(len({*found} - {END}) for (_, is_answer), found in self._found.items() if is_answer)
        return sent, delivered, answered

    def differences(self) -> Differences:
        """Compares the queues with what was said."""
        return differences(self.said, self._found)

    def _take(self, message: Message) -> None:
        topic, value = message.topic() or "", message.value()
        if topic == self._waiting_topic:
            if value is None:
                self._waiting.pop(message.key() or b"", None)
            else:
                self._waiting[message.key() or b""] = decode_transmission(value)
            return
        headers = {name: (text or b"").decode() for name, text in decoded_headers(message)}
        name, is_answer = headers["conversation_id"], headers["is_initiator"] != "true"
        kind = kind_of(headers.get("message_type_name"))
        if not is_answer and kind != "MESSAGE":
            return  # the shop has ended its side, too
        body = END if kind == "END" else value or b""
        self._found[name, is_answer].append(body)
        self._in[topic].add(name)
        self.new[topic] += 1
        sent_s = self._sent_s.pop((name, body), None)
        if sent_s is not None:
            self.latencies_s.append(time.monotonic() - sent_s)
