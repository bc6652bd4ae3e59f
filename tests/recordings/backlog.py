"""A shard with more conversations than it lets go or looks at in a batch, and more decisions than fit into a record."""

from random import Random

from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.conversation import Instance
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import CreateDatabase, CreateRoute, CreateService, DropRoute, ServiceCommand
from tests.support.checked_shard import QueryShard
from tests.support.plain_shard import Batch

_CONVERSATIONS = 450
_SETTINGS = ConversationSettings(max_let_go=400, max_looked_at=430)
# Long, so that few decisions fill a record.
_DATABASE, _SERVICES = "D", (f"//{'orders' * 20}", f"//{'stock' * 20}")
# Longer than a closed conversation is remembered.
_LATER_MS = 31 * 60_000


class Backlog:
    """All messages are held until a route is created; then they are answered, and all conversations end."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311  (no secret)
        self._shard = QueryShard(0, _SETTINGS, Instance(frozenset({"tcp://here:1"})), partitions=1)
        self._names = [f"c{number}" for number in range(_CONVERSATIONS)]
        self._now_ms = self._offset = 0

    def run(self) -> None:
        """Plays the history."""
        create = [CreateService(_DATABASE, service, service[-5:]) for service in _SERVICES]
        self._batch(CreateDatabase(_DATABASE, f"{0:032x}"), *create, DropRoute(_DATABASE, "AutoCreatedLocal"))
        self._say("MESSAGE", 0, begin=True)
        self._batch(CreateRoute(_DATABASE, "here", "LOCAL"))
        self._rest()
        for kind, side in (("MESSAGE", 1), ("END", 0), ("END", 1)):
            self._say(kind, side)
        self._rest(_LATER_MS)

    def _say(self, kind: str, side: int, **more: bool) -> None:
        """Takes a statement of one side of each conversation, in any order."""
        own, far = _SERVICES if side == 0 else _SERVICES[::-1]
        said = [
            Envelope(kind, name, side == 0, own, _DATABASE, far, **more)  # type: ignore[arg-type]
            for name in self._random.sample(self._names, len(self._names))
        ]
        self._now_ms += 1_000
        messages = [(self._offset + number, self._now_ms, each) for number, each in enumerate(said)]
        self._offset += len(said)
        self._shard.step(Batch(self._now_ms, messages=messages))

    def _rest(self, wait_ms: int = 1_000) -> None:
        for _ in range(3):
            self._now_ms += wait_ms
            self._batch()

    def _batch(self, *commands: ServiceCommand) -> None:
        self._now_ms += 1_000
        self._shard.step(Batch(self._now_ms, [(each, self._now_ms) for each in commands]))
