"""The observer beside consumers that know nothing of this project, on a real broker: what it reports, and says."""

from pathlib import Path

import pytest

from tests.support.observing import Observing
from tests.support.shared_broker import SharedBroker


@pytest.fixture
def observing(broker: SharedBroker, tmp_path: Path) -> Observing:
    return Observing(broker.bootstrap_servers, tmp_path)


class TestWithoutMembers:
    def test_messages_that_nobody_reads_want_a_reader_at_once(self, observing: Observing) -> None:
        topic = observing.topic(2)
        observing.send(topic, 0, 1)
        observing.commit(topic, 1, 1)
        with observing.running() as reports:
            reports.wait_for(unread=0, one_more=False, members=0)
            observing.send(topic, 1, 1, 1)
            reports.wait_for(unread=3, one_more=True, members=0)
            assert reports.all[-1]["queue"] == observing.group
        assert f"{observing.group}: one more: yes, nobody reads, and {topic}-1 holds 3 messages" in observing.said()
