"""A configuration service in one of three instances. Its program answers by CREATE ROUTE, an Error or silence."""

import re
from collections.abc import Mapping
from random import Random

from streaming.core.conversations.conversation import INITIATOR
from streaming.core.conversations.endpoint_states import State
from streaming.core.routing.routing_table import BROKER_CONFIGURATION, ROUTERS_SERVICE
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import CreateRoute, CreateService
from tests.support.instances_world import Site

_ANSWERS = {"END": 5, "ERROR": 2, "MESSAGE": 1, "": 2}


class ConfigurationService:
    """The service and its program.

    Attributes:
        asked: The number of questions that it has got.
    """

    def __init__(self, random: Random, site: Site, database: str, addresses: Mapping[str, str]) -> None:
        """Creates the service; `addresses` has the services that it knows."""
        self._random, self._site, self._database, self._addresses = random, site, database, addresses
        self._read = self.asked = 0
        site.commands += [
            CreateService(database, BROKER_CONFIGURATION, "questions"),
            CreateRoute(database, "questions", "LOCAL", BROKER_CONFIGURATION),
        ]

    def answer(self, *, is_helpful: bool = False) -> None:
        """Reads the questions that have come since, and answers them; if it is helpful, by a route."""
        for delivery, body in self._site.delivered[self._read :]:
            found = re.search(b"<SERVICE_NAME>(.*)</SERVICE_NAME>", body)
            if delivery.service != BROKER_CONFIGURATION or found is None:
                continue
            self.asked += 1
            [kind] = self._random.choices([*_ANSWERS], [*_ANSWERS.values()])
            service = found[1].decode()
            if (is_helpful or kind == "END") and service in self._addresses:
                self._site.commands.append(CreateRoute(self._database, service, self._addresses[service], service))
            if is_helpful or kind:
                envelope = Envelope(
                    "END" if is_helpful else kind,  # type: ignore[arg-type]
                    delivery.conversation_id,
                    False,
                    BROKER_CONFIGURATION,
                    self._database,
                    ROUTERS_SERVICE,
                )
                self._site.say(envelope)
        self._read = len(self._site.delivered)

    def heal(self) -> None:
        """Reads all questions again: a question that was read and never answered stays open."""
        self._read = 0

    def check(self) -> None:
        """Checks that each question has ended."""
        for name in self._site.shard.conversations:
            if self._site.shard.conversation(name).services[INITIATOR] == ROUTERS_SERVICE:
                assert self._site.state(name, INITIATOR) is State.CD, f"the question {name} has no end"
