"""The situation of a queue, for tests of the sentences about a queue."""

from streaming.core.activation.explanation import Situation
from streaming.core.activation.queue_monitor import State

# Readers receive, and three messages are unread.
RECEIVING = Situation(
    state=State.RECEIVES_OCCURRING,
    is_on=True,
    unread=3,
    waiting=0,
    sequence=7,
    activated_at="10:00",
    empty_at=None,
    next_check_at="10:05",
    tasks_running=0,
    max_queue_readers=None,
    failures=0,
    next_start_at=None,
    has_notifications=False,
    is_topic=False,
    is_watched=True,
    switch_on="queue-activation queue alter orders --status ON",
)
