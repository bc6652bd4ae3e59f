"""The periodic tasks of a program: a failure of one stops no other, and each run is published."""

import time
from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from streaming.core.maintenance.schedule import PeriodicTask
from streaming.core.times import iso_time
from streaming.kafka.periodic_tasks import PeriodicTasks, Publisher, counted
from streaming.system import wall_clock
from streaming.wire.service_maintenance import ProgramRow, decode_program
from streaming.wire.topics import Topics
from tests.support.waiting import wait_until


class Written:
    """Takes the place of Kafka's producer."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    def produce(self, topic: str, value: bytes | None, _key: bytes) -> None:
        assert topic == "service-maintenance"
        self.values.append(value)

    def poll(self, _timeout_s: float) -> None:
        pass


@pytest.fixture
def written() -> Written:
    return Written()


def fail() -> int:
    raise OSError("no memory")


def periodic(written: Written, say: Callable[[str], None]) -> PeriodicTasks:
    tasks = {PeriodicTask("FAILS", 1, "fails"): fail, PeriodicTask("DELETES", 1, "deletes"): lambda: 3}
    return PeriodicTasks(tasks, Publisher("transport", cast("Producer", written), Topics()), say, 1)


def last(written: Written) -> ProgramRow:
    return decode_program(written.values[-1])


def test_a_task_that_fails_is_logged_and_done_again_and_stops_no_other(written: Written) -> None:
    said: list[str] = []
    tasks = periodic(written, said.append)

    def has_run_twice() -> bool:
        tasks.look()
        return bool(written.values) and last(written).tasks[0].runs >= 2

    wait_until(has_run_twice, 10, "two runs")
    failed, good = last(written).tasks
    assert (failed.failures, failed.done, failed.last_error) == (failed.runs, 0, "OSError: no memory")
    assert (good.failures, good.done, good.last_done) == (0, 3 * good.runs, 3)
    assert said[0] == ("periodic task FAILS has failed, and is done again when it is next due: OSError: no memory")
    assert last(written).update_time[:4] == time.strftime("%Y", time.gmtime())


def test_a_program_that_ends_removes_its_record(written: Written) -> None:
    tasks = periodic(written, print)
    tasks.close()
    assert written.values == [None]


def test_a_program_tells_when_it_was_started_and_at_once_that_it_is_stopping(written: Written) -> None:
    before = iso_time(wall_clock.now_ms())
    tasks = periodic(written, print)
    while not written.values:  # a notification is due after 1 ms
        tasks.look()
    assert before <= (last(written).start_time or "") <= last(written).update_time
    assert not last(written).is_stopping
    tasks.stopping()
    assert last(written).is_stopping


def test_a_task_that_others_do_counts_what_they_have_done_since_its_last_run() -> None:
    total = 3
    work = counted(lambda: total)
    assert work() == 3
    assert work() == 0
    total = 5
    assert work() == 2


def test_the_error_of_a_task_has_kafkas_words(written: Written) -> None:
    def fail() -> int:
        raise KafkaException(KafkaError(KafkaError.INVALID_RECORD, "Broker: these words"))

    said: list[str] = []
    publisher = Publisher("transport", cast("Producer", written), Topics())
    tasks = PeriodicTasks({PeriodicTask("FAILS", 1, "fails"): fail}, publisher, said.append, 1)

    def has_failed() -> bool:
        tasks.look()
        return bool(said)

    wait_until(has_failed, 10, "a run")
    assert said[0].endswith(": KafkaException: Broker: these words")
