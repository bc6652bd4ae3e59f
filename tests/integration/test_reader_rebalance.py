"""A queue reader whose consumer group waits for another reader."""

import time
from contextlib import ExitStack, closing

from tests.integration.test_reader import receive
from tests.support.monitor_topics import (
    DEADLINE_S,
    KafkaAdminClient,
    MonitorTopics,
    committed_offsets,
    group_in_partition,
)
from tests.support.waiting import slowness, wait_until


def has_two_members(bootstrap_servers: str, queue: str) -> bool:
    """Returns whether the consumer group has two members, and each knows its partitions."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap_servers)) as admin:
        group = admin.describe_groups([queue])[queue]
        return len(group["members"]) == 2 and group["group_state"] == "Stable"


def test_a_receive_ends_in_time_while_another_reader_lets_the_group_wait(monitor_topics: MonitorTopics) -> None:
    """Opens a second reader that never takes the partition meant for it, so the first reader waits to join again."""
    queue = monitor_topics.queue(partitions=2)
    for partition in range(2):
        monitor_topics.send(queue, b"1", b"2", group=group_in_partition(partition, 2))
    received: list[bytes] = []
    with ExitStack() as stack:
        reader = stack.enter_context(monitor_topics.reader(queue))

        def receives_the_last_message() -> bool:
            with reader.receive(1, 1) as messages:
                received.extend(message.value for message in messages)
                if len(received) == 4:
                    stack.enter_context(monitor_topics.reader(queue))
                    wait_until(lambda: has_two_members(monitor_topics.bootstrap_servers, queue), DEADLINE_S, "both")
            return len(received) == 4

        wait_until(receives_the_last_message, DEADLINE_S, "all messages")
        begin_s = time.monotonic()
        assert receive(reader, timeout=1) == []
        assert time.monotonic() - begin_s < 10 * slowness()
        offsets = committed_offsets(monitor_topics.bootstrap_servers, queue)
        assert any(committed == end for committed, end in offsets.values()), offsets
