"""`watch` says when the monitor or Kafka falls silent, and when it is back. Otherwise it looks like a quiet system."""

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from streaming.cli import clients, presence, silence
from streaming.cli.dashboard import contact as contacts
from streaming.cli.dashboard.batches import Batches
from streaming.cli.dashboard.contact import Contact
from streaming.cli.silence import Silence
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import TopicFollower
from streaming.system import wall_clock
from streaming.wire.topics import Topics
from tests.support.shell import run_command

NOW_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z
GONE = "no monitor is in the consumer group. Start one"


@pytest.fixture
def contact(monkeypatch: pytest.MonkeyPatch) -> Contact:
    """Returns a contact with a Kafka that answers, before its first look at the monitor."""
    monkeypatch.setattr(wall_clock, "now_ms", lambda: NOW_MS)
    found = Contact(Cluster("kafka:9092"), Topics())
    found._answered_ms = NOW_MS
    return found


@pytest.fixture
def told(contact: Contact, capsys: pytest.CaptureFixture[str]) -> Callable[[Silence], list[str]]:
    """Returns a function that lets a command tell twice, and returns its first lines: it repeats nothing."""
    assert contact

    def tell(news: Silence) -> list[str]:
        news.tell()
        said = capsys.readouterr()
        assert said.out == ""
        news.tell()
        assert capsys.readouterr().err == ""
        return said.err.splitlines()

    return tell


def look(
    contact: Contact,
    monkeypatch: pytest.MonkeyPatch,
    problem: str = "",
    beginning: str = "",
    committed: str | None = None,
) -> None:
    found = Batches("monitor", committed, problem=problem, beginning=beginning)
    monkeypatch.setattr(contacts, "batches", lambda *_: found)
    contact._look_for_monitor()


def news(contact: Contact, *, is_told: bool = False) -> Silence:
    return Silence(contact, "kafka:9092", is_told=is_told)


def test_a_monitor_that_ends_and_comes_back_is_told_once_each(
    contact: Contact, told: Callable[[Silence], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    its = news(contact)
    assert told(its) == [], "nothing is known yet"
    look(contact, monkeypatch)
    assert told(its) == []
    look(contact, monkeypatch, GONE)
    [line] = told(its)
    assert line.endswith(f"14:13:20 UTC: {GONE}")
    look(contact, monkeypatch, "the monitor's last sign of life is 40 s old")
    assert told(its) == [], "it is silent still"
    look(contact, monkeypatch, GONE, beginning="`run` is starting the monitor")
    assert told(its) == []
    look(contact, monkeypatch)
    [line] = told(its)
    assert line.endswith(" UTC: the monitor runs")


def test_before_the_first_look_it_is_not_known_whether_a_monitor_runs_and_afterwards_when_it_last_wrote(
    contact: Contact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages of the dashboard show rows at once, which may be old."""
    assert (bool(contact.monitor), contact.is_normal, contact.committed) == (True, True, None)
    assert contact.is_current, "nothing is known to be old"
    found = Batches("monitor", "2026-09-21T14:12:20.000Z", problem=GONE, beginning="`run` is starting")
    monkeypatch.setattr(contacts, "batches", lambda *_: found)
    contact._look_for_monitor()
    assert (contact.monitor, contact.is_normal, contact.committed) == (found.beginning, True, found.committed)
    assert not contact.is_current


def test_what_was_said_at_the_start_is_not_said_again(
    contact: Contact, told: Callable[[Silence], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    its = news(contact, is_told=True)
    assert told(its) == []
    look(contact, monkeypatch, GONE)
    assert told(its) == []
    look(contact, monkeypatch)
    assert [line.partition(": ")[2] for line in told(its)] == ["the monitor runs"]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_monitor_that_starts_is_told_to_run_once_it_has_committed_a_batch(
    contact: Contact, told: Callable[[Silence], list[str]], monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """A monitor joins its group before its first batch. The sign of life of its predecessor may be in time still."""
    of_predecessor, later, own = (f"2026-09-21T14:12:{second}.000Z" for second in (20, 21, 40))
    its = news(contact, is_told=is_told)
    look(contact, monkeypatch, GONE, committed=of_predecessor)
    assert bool(told(its)) != is_told
    look(contact, monkeypatch, GONE, committed=later)
    assert told(its) == []
    look(contact, monkeypatch, committed=later)
    assert told(its) == []
    look(contact, monkeypatch, committed=own)
    assert [line.partition(": ")[2] for line in told(its)] == ["the monitor runs"]
    look(contact, monkeypatch, committed=own)
    assert told(its) == []


def test_kafka_that_does_not_answer_is_told_and_nothing_of_the_monitor_meanwhile(
    contact: Contact, told: Callable[[Silence], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    its = news(contact)
    look(contact, monkeypatch, GONE)
    contact._answered_ms = NOW_MS - 60_000
    [line] = told(its)
    assert re.search(r"14:13:20 UTC: Kafka at kafka:9092 has not answered since .*14:12:20 UTC$", line)
    contact._answered_ms = NOW_MS
    again, gone = told(its)
    assert again.endswith(" UTC: Kafka answers again")
    assert gone.endswith(GONE)


def test_watch_looks_while_no_notification_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Follower:
        def forever(self, meanwhile: Callable[[], None]) -> Iterator[object]:
            meanwhile()
            return iter(())

    looks: list[str] = []
    monkeypatch.setattr(clients, "TopicFollower", lambda *_: nullcontext(Follower()))
    monkeypatch.setattr(clients, "introduce", lambda *_arguments, **_options: presence.say("late", err=True))
    monkeypatch.setattr(silence.Silence, "tell", lambda its: looks.append(its._servers))
    assert run_command("watch", "--bootstrap-servers", "127.0.0.1:1") == "late\n"
    assert looks == ["127.0.0.1:1"]


def test_a_follower_looks_at_each_poll() -> None:
    polls = iter([None, "record", None])
    its = SimpleNamespace(poll=lambda _timeout_s: next(polls))
    looks: list[None] = []
    with pytest.raises(RuntimeError):  # the end of the polls
        list(TopicFollower.forever(its, lambda: looks.append(None)))  # type: ignore[arg-type]
    assert len(looks) == 3
