"""A conversation's step in a batch, with all methods that change it. This module ends lifetimes and fires timers.

Lifetimes and timers begin with a record, so the brokers' clock, which stamps records, measures them. The router asks
for missing routes in conversations of its own. Their timers end questions whose answers no conversation has needed for
a while.

A step changes one conversation and adds decisions to the context. It reads and writes nothing else, so a batch that is
done again gives the same decisions.
"""

from streaming.core.conversations.conversation import INITIATOR, TARGET, Endpoint, Item
from streaming.core.conversations.decisions import LIFETIME_OVER
from streaming.core.conversations.delivery import Delivering
from streaming.core.conversations.endpoint_states import Trigger
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.transmission import LIFETIME_EXCEEDED
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS


class Step(Delivering):
    """A conversation in a batch."""

    def pass_time(self, until_ms: int) -> None:
        """Ends lifetimes and fires timers up to an instant of the brokers' clock, before a message of that instant."""
        conversation = self.conversation
        if until_ms >= conversation.ends_ms:
            conversation.ends_ms, conversation.is_lifetime_over = FOREVER_MS, True
            self._end_lifetime()
        for side in (INITIATOR, TARGET):
            endpoint = conversation.endpoints[side]
            if endpoint is not None and until_ms >= endpoint.timer_ms:
                self._fire_timer(side, endpoint)
        self.settle()

    def settle(self) -> None:
        """Notes the instant since which both sides have been closed."""
        self.conversation.settle(self.context.now_ms)

    def _end_lifetime(self) -> None:
        """Ends both endpoints. If this side's endpoint is closed, only drops its messages to the far side.

        The far instance ends the far endpoint at the same time.
        """
        far = self.conversation.far
        if far is not None and self.conversation.is_only_telling():
            self.tell_nothing_more(far, LIFETIME_EXCEEDED)
        else:
            self.fail_both(TARGET, LIFETIME_OVER, LIFETIME_EXCEEDED)

    def _fire_timer(self, side: int, endpoint: Endpoint) -> None:
        if self.conversation.services[side] == ROUTERS_SERVICE:
            endpoint.timer_ms = FOREVER_MS
            self._take_question_back(endpoint)
            return
        service = self.find_own_service(side)
        if isinstance(service, int):
            endpoint.timer_ms = self.context.broker_ms + self.context.settings.timer_retry_ms
            return
        endpoint.timer_ms = FOREVER_MS
        self.conversation.is_view_stale = True
        self.put(side, Item(-1, Kind.TIMER, -1), endpoint, service)

    def _take_question_back(self, endpoint: Endpoint) -> None:
        """Ends a question for which no conversation waits any more, unless the configuration service has got it."""
        far = self.conversation.far
        if self.conversation.endpoints[TARGET] is not None or (far is not None and far.broker_instance is not None):
            return
        if far is not None:
            self.tell_nothing_more(far, None)
        self.drop(TARGET, None)
        self.conversation.apply(INITIATOR, Trigger.END_WITH_CLEANUP)
        self.context.questions.close((endpoint.database, endpoint.group_id))
