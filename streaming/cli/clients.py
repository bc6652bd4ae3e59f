"""The commands that show the monitor's output, give it work, or read a queue."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from streaming.cli import monitor_rows, tables, task_failures
from streaming.cli.lines import say, watched
from streaming.cli.options import Json, Place
from streaming.cli.presence import introduce
from streaming.errors import UserError
from streaming.kafka.access import rights
from streaming.kafka.admin import Admin
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import durations
from streaming.system.durations import Duration
from streaming.system.options import duration, option

if TYPE_CHECKING:
    from producers.received_message import ReceivedMessage


def watch(
    from_beginning: Annotated[
        bool, option("--from-beginning", "Begin with the oldest notification, not with the next one.")
    ] = False,
    as_json: Json = False,
    *,
    place: Place,
) -> None:
    """Print notifications as they come, one line each, until Ctrl-C.

    The standard error says when the monitor or Kafka falls silent, and when it is back.
    """
    from streaming.cli.dashboard.contact import Contact
    from streaming.cli.silence import Silence

    kafka, topics = place.cluster(), place.topics()
    start = Start.BEGINNING if from_beginning else Start.END
    with TopicFollower(kafka, [topics.activations], start) as follower, Contact(kafka, topics) as contact:
        with watched() as told, suppress(UserError):  # it waits for Kafka, whatever happens
            without = None if from_beginning else " Nothing is shown before one runs."
            introduce(kafka, topics, "monitor", as_json=as_json, without=without)
        news = Silence(contact, kafka.bootstrap_servers, is_told=bool(told))
        tables.watch(follower, Console(width=tables.width()), as_json, from_beginning, news.tell)


def queues(as_json: Json = False, *, place: Place) -> None:
    """Show the queue monitors: state, unread messages, waiting readers, last activation.

    If no monitor runs, the table shows the last monitor's rows, and the standard error says so. For a queue that
    waits for a reader, the table says what keeps the activator from starting one.
    """
    from streaming.cli import activators, group_entries, monitors_view

    kafka, topics = place.cluster(), place.topics()
    rows = tables.read_monitors(kafka, topics)
    told = {} if as_json else activators.of_interest(kafka, topics, rows)
    times = [row["update_time"] for row in rows]
    present = introduce(
        kafka,
        topics,
        "monitor",
        as_json=as_json,
        file=activators.file_of(topics, told),
        times=times,
        needs=rows,
        file_of_observer=activators.file_of_observer(topics, told),
    )
    present = replace(present, unwatched=frozenset(group_entries.removed(rows, told)))
    finders = () if as_json else (activators.problems, group_entries.problems)
    troubles = [line for find in finders for line in find(kafka, topics, rows, told)]
    nobody = "no queues yet: the monitor knows a queue once an arrival, a receive or a command names it"
    view = partial(monitors_view.view, troubles=troubles, present=present)
    tables.print_rows(rows, view, nobody, as_json)


def tasks(as_json: Json = False, *, place: Place) -> None:
    """Show the running tasks of internal activation: queue, procedure, start and host of each.

    Names tasks that no host has taken, with advice, and hosts that are stopping.
    """
    kafka, topics = place.cluster(), place.topics()
    rows = tables.read_tasks(kafka, topics)
    monitors = [row for row in tables.read_monitors(kafka, topics) if monitor_rows.needs_host(row)]
    times = [row["update_time"] for row in monitors]
    has_tasks = bool(rows)
    present = introduce(kafka, topics, "monitor", as_json=as_json, times=times, needs=monitors, has_tasks=has_tasks)
    tables.print_rows(rows, partial(tables.tasks_view, present=present), "no task is running", as_json)
    for line in [] if as_json else task_failures.failures(monitors, present):
        say(line)


def workload(
    queue_count: Annotated[int, option("--queues", "Number of queues.", min=1)] = 10,
    rate: Annotated[float, option("--rate", "Messages per second, for all queues together.", min=0.001)] = 50.0,
    run_duration: Annotated[Duration, duration("--duration", "How long the workload lasts.")] = durations.parse("60s"),
    seed: Annotated[int, option("--seed", "Seed of the timeline; the same seed gives the same timeline.")] = 1,
    send_messages: Annotated[
        bool,
        option(
            "--send-messages",
            "Send real messages to the queues' topics, for real readers, instead of simulating both sides.",
        ),
    ] = False,
    *,
    place: Place,
) -> None:
    """Give the monitor work: bursts, trickles and quiet times on the queues from queue-1 on, by a seed.

    Without --send-messages it sends no messages: it reports arrivals, and what simulated readers would report.
    """
    from producers import workload as work
    from producers.producer import QueueProducer
    from producers.queue_topics import create_queue_topics
    from streaming.cli import queue_losses

    kafka = place.cluster()
    topics = place.topics()
    Admin(kafka).require_topics(rights(writes=[topics.arrivals, *([] if send_messages else [topics.receives])]))
    settings = work.WorkloadSettings(queue_count, rate, run_duration.ms, seed, has_readers=not send_messages)
    begin_s = time.monotonic()
    pace = _paced_with_progress(begin_s, run_duration.ms)
    if send_messages:
        names = [settings.queue_name(index) for index in range(queue_count)]
        create_queue_topics(
            place.bootstrap_servers, names, partitions=2, replication_factor=-1, topic_prefix=place.topic_prefix,
            kafka_config=kafka.config, is_compared=False,
        )  # fmt: skip
        with QueueProducer(
            place.bootstrap_servers, topic_prefix=place.topic_prefix, kafka_config=kafka.config
        ) as producer:
            messages = work.send(settings, producer, pace)
    else:
        messages = work.report(settings, kafka, topics, pace)
    reached = f"{len(messages):,} of {queue_count:,} queues"
    late = _late(time.monotonic() - begin_s - run_duration.ms / 1000)
    say(f"{messages.total():,} messages to {reached} in {run_duration} (seed {seed}){late}")
    queue_losses.warn_of_nobody(kafka, topics, sorted(messages) if send_messages else [])


def _paced_with_progress(begin_s: float, duration_ms: int) -> Callable[[float], None]:
    """Returns a function that waits for an instant of the timeline, and prints the progress every few seconds."""
    said_s = begin_s

    def pace(at_ms: float) -> None:
        nonlocal said_s
        now_s = time.monotonic()
        if now_s - said_s >= 5:
            said_s = now_s
            late = _late(now_s - begin_s - at_ms / 1000)
            say(f"{at_ms / 1000:.0f} s of {duration_ms / 1000:.0f} s{late}", err=True)
        time.sleep(max(0.0, begin_s + at_ms / 1000 - now_s))

    return pace


def _late(behind_s: float) -> str:
    return f", {behind_s:.1f} s behind" if behind_s > 1 else ""


def read(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue, which is the topic of that name.")],
    max_messages: Annotated[int, option("--max-messages", "Most messages to receive in one transaction.", min=1)] = 10,
    wait: Annotated[
        Duration, duration("--wait", "How long to wait for a message before the queue counts as empty.")
    ] = durations.parse("5s"),
    work: Annotated[
        float, option("--work-seconds", "Simulated work on each message in seconds, for demonstrations.", min=0)
    ] = 0.0,
    *,
    place: Place,
) -> None:
    """Read a queue until it is empty, print its messages, and exit: a reader program for the activator or a host."""
    from producers.queue_topics import NoTopicError
    from producers.reader import QueueReader
    from producers.reader_program import read_until_empty
    from streaming.cli import queue_facts

    kafka, prefix = place.cluster(), place.topic_prefix
    try:
        its = QueueReader(place.bootstrap_servers, queue, topic_prefix=prefix, kafka_config=kafka.config)
    except NoTopicError as error:
        raise queue_facts.without_topic(kafka, place.topics(), queue, error) from None
    with its as reader:
        if read_until_empty(reader, max_messages, wait.ms / 1000, partial(_print_all, work_s=work)) == 0:
            say(f"queue {queue}: no message came for this reader within {wait}", err=True)


def _print_all(messages: "Sequence[ReceivedMessage]", work_s: float) -> None:
    """Prints each message on its own line, after a pause."""
    for message in messages:
        time.sleep(work_s)
        sys.stdout.write(message.value.decode(errors="replace") + "\n")
    sys.stdout.flush()
