"""Definitions: queues are created, altered, dropped and forgotten. Count, transactions and sequence survive OFF."""

import pytest

from streaming.core.activation import events
from streaming.core.activation.events import Event
from streaming.core.activation.queue_monitor import Reason, State
from streaming.core.activation.settings import CoreSettings
from tests.support.histories import (
    ALIVE,
    COMMIT,
    DAY,
    DROP_QUEUE,
    ENDED,
    ROLLBACK,
    SECOND,
    T,
    Timeline,
    activation,
    alter,
    arrived,
    create_queue,
    drop_notification,
    empty,
    group,
    monitored,
    notify,
    received,
    receiving,
    waiting,
)


class TestDefinitions:
    @pytest.mark.parametrize("first", [arrived(), received(1), empty(), waiting(), group(), alter(), notify("m")])
    def test_an_event_creates_an_unknown_queue_with_a_default_notification(self, first: Event) -> None:
        timeline = Timeline()
        timeline.batch(SECOND, first)
        assert "default" in timeline.queue.definition.notifications
        assert timeline.state is not State.ABSENT

    @pytest.mark.parametrize(
        "event",
        [
            COMMIT("r", "t"),
            ROLLBACK("r", "t"),
            ALIVE("r"),
            ENDED("r"),
            events.TaskStarted("k"),
            events.TaskExited("k", 0),
            events.TaskFailedToStart("k"),
            DROP_QUEUE,
            drop_notification(),
        ],
    )
    def test_any_other_event_of_an_unknown_queue_is_ignored(self, event: Event) -> None:
        timeline = Timeline()
        timeline.batch(SECOND, event)
        assert (timeline.queue_if_any, timeline.rows) == (None, [])

    def test_create_queue_creates_it_without_notifications(self) -> None:
        timeline = Timeline()
        timeline.batch(0, create_queue(), arrived())
        assert (timeline.state, timeline.unread, timeline.written) == (State.ABSENT, 1, [])

    def test_create_queue_replaces_an_automatic_definition(self) -> None:
        timeline = Timeline()
        timeline.batch(0, arrived(2))
        timeline.batch(1, notify("mine", "service"), alter(external_activation_timeout_ms=9))
        timeline.batch(2, create_queue())
        definition = timeline.queue.definition
        assert definition.notifications == {"mine": "service"}
        assert definition.external_activation_timeout_ms is None
        assert (timeline.unread, timeline.queue.sequence) == (2, 1)

    def test_without_auto_creation_arrivals_are_counted_but_nothing_is_monitored(self) -> None:
        timeline = Timeline(CoreSettings(auto_create_queues=False))
        timeline.batch(0, arrived(3))
        assert (timeline.state, timeline.unread, timeline.written) == (State.ABSENT, 3, [])
        assert len(timeline.batch(SECOND, notify())) == 1

    @pytest.mark.parametrize(
        "command",
        [
            create_queue(status=True, activation=activation(procedure_name="p"), external_activation_timeout_ms=7),
            alter(status=False),
            alter(activation=activation(status=False)),
            alter(drop_activation=True),
            alter(poison_message_handling=False),
            notify("m", "s"),
            drop_notification(),
        ],
    )
    def test_commands_are_idempotent(self, command: Event) -> None:
        timeline = receiving(3)
        timeline.queue.apply(command, 2 * SECOND)
        monitor, definition = timeline.queue.monitor, repr(timeline.queue.definition)
        before = (definition, timeline.state, monitor.anchor_ms, monitor.last_activated_ms, timeline.unread)
        timeline.queue.apply(command, 3 * SECOND)
        after = repr(timeline.queue.definition), timeline.state, monitor.anchor_ms, monitor.last_activated_ms
        assert (*after, timeline.unread) == before

    def test_alter_changes_only_what_it_names(self) -> None:
        timeline = Timeline()
        clause = activation(status=False, procedure_name="p", max_queue_readers=7, execute_as="me")
        timeline.batch(0, create_queue(activation=clause, external_activation_timeout_ms=9, status=False))
        timeline.batch(1, alter(activation=activation(max_queue_readers=0)), alter(poison_message_handling=False))
        definition = timeline.queue.definition
        assert (definition.is_on, definition.external_activation_timeout_ms) == (False, 9)
        assert definition.handles_poison is False
        altered = definition.activation
        assert altered is not None
        assert (altered.is_on, altered.procedure_name, altered.max_queue_readers) == (False, "p", 0)
        assert altered.execute_as == "me"

    def test_create_of_what_exists_sets_all_of_it(self) -> None:
        timeline = monitored()
        timeline.batch(1, alter(status=False, poison_message_handling=False, external_activation_timeout_ms=9))
        timeline.batch(2, notify("default"), alter(activation=activation(procedure_name="p")), create_queue())
        definition = timeline.queue.definition
        assert definition.is_on
        assert definition.handles_poison
        assert (definition.external_activation_timeout_ms, definition.activation) == (None, None)
        assert definition.notifications == {"n": None, "default": None}

    def test_drop_queue_forgets_everything(self) -> None:
        timeline = receiving(3)
        timeline.batch(2 * SECOND, waiting(), DROP_QUEUE, create_queue(), notify())
        assert (timeline.state, timeline.unread, timeline.queue.sequence) == (State.INACTIVE, 0, 0)
        assert not timeline.queue.sessions.by_id

    @pytest.mark.parametrize(
        ("off", "on"),
        [
            (alter(status=False), alter(status=True)),
            (drop_notification(), notify()),
            (alter(activation=activation(status=False)), alter(activation=activation(status=True))),
        ],
    )
    def test_a_new_monitor_has_no_memory(self, off: Event, on: Event) -> None:
        timeline = receiving(3)
        timeline.at(2 * SECOND, empty())
        timeline.at(3 * SECOND, off)
        [notification] = timeline.at(4 * SECOND, on)  # neither the empty result nor the anchor delays the activation
        assert notification.reason is Reason.MESSAGES_ACCUMULATING
        assert timeline.queue.monitor.last_empty_ms < 0

    def test_activation_on_renews_the_monitor_while_notified(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived())
        assert timeline.at(SECOND, alter(poison_message_handling=False)) == []
        assert len(timeline.at(2 * SECOND, alter(activation=activation(status=True)))) == 1
        assert timeline.at(3 * SECOND, alter(activation=activation(status=True))) == []

    def test_count_transactions_and_sequence_survive_the_monitor(self) -> None:
        timeline = receiving(3)
        timeline.at(2 * SECOND, received(1, "x", "t"))
        timeline.at(3 * SECOND, alter(status=False))
        timeline.at(4 * SECOND, arrived(5), ROLLBACK("x", "t"))
        assert (timeline.state, timeline.unread, timeline.queue.sequence) == (State.ABSENT, 7, 1)

    @pytest.mark.parametrize(
        "events_after",
        [
            [alter(status=False)],
            [alter(status=False), alter(status=True)],
            [drop_notification()],
            [drop_notification(), notify()],
            [alter(activation=activation(status=True))],
            [received(1, "x", "t"), ROLLBACK("x", "t")] * 5,
        ],
    )
    def test_the_time_of_the_last_activation_survives_the_monitor(self, events_after: list[Event]) -> None:
        timeline = monitored()
        timeline.at(SECOND, arrived())
        for event in events_after:
            timeline.queue.apply(event, 2 * SECOND)
        assert timeline.queue.monitor.last_activated_ms == SECOND

    @pytest.mark.parametrize("days", [6, 8])
    @pytest.mark.parametrize("auto_create_queues", [True, False])
    def test_an_idle_automatic_queue_is_forgotten(self, days: int, auto_create_queues: bool) -> None:
        timeline = Timeline(CoreSettings(auto_create_queues=auto_create_queues))
        timeline.at(0, arrived())
        timeline.at(SECOND, received(1))
        timeline.run_until(SECOND + days * DAY)
        assert (timeline.queue_if_any is None) == (days > 7)
        assert (timeline.rows[-1] == (SECOND + 7 * DAY, None)) == (days > 7)

    def test_a_queue_with_a_session_is_not_forgotten(self) -> None:
        timeline = Timeline(CoreSettings(queue_idle_expiry_ms=T))
        timeline.at(0, waiting())
        timeline.run_until(T + SECOND)
        assert timeline.queue_if_any is not None

    @pytest.mark.parametrize(
        "kept_by", [[create_queue()], [arrived(), received(1)], [arrived()], [notify("m")], [alter(status=False)]]
    )
    def test_a_queue_that_holds_something_is_not_forgotten(self, kept_by: list[Event]) -> None:
        timeline = Timeline(CoreSettings(external_activation_timeout_ms=DAY))
        timeline.at(0, arrived(), received(1))
        last_ms = 6 * DAY
        timeline.at(last_ms, *kept_by)
        timeline.run_until(last_ms + 6 * DAY)
        assert timeline.queue_if_any is not None
        holds_for_ever = kept_by != [arrived(), received(1)]
        timeline.run_until(last_ms + 30 * DAY)
        assert (timeline.queue_if_any is not None) == holds_for_ever
