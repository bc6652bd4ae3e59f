"""Programs of the tests of services, as processes: `python -m tests.support.service_programs NAME ARGUMENTS`.

They print a line for each event that a test waits for.
"""

import sys
import time

from producers.reader import QueueReader
from producers.services import ServiceClient
from streaming.system.processes import ChildProcess, own_environment
from tests.support.command_lines import ROOT
from tests.support.service_scene import ORDERS, ServiceScene

# The least that Kafka allows. After a reader is killed, the others wait this long.
_KAFKA_CONFIG = {"session.timeout.ms": "6000"}


def answer(servers: str, prefix: str, queue: str, hang_after: str) -> None:
    """Answers each message with its own body; prints `answered N` after each receive, which has committed its messages.

    After `hang_after` messages it prints `hanging`, and never commits the last messages. 0: it answers until it is
    killed.
    """
    total = 0
    with QueueReader(servers, queue, topic_prefix=prefix, kafka_config=_KAFKA_CONFIG) as reader:
        while True:
            with reader.receive(max_messages=7, timeout=1.0) as messages:
                for message in messages:
                    message.conversation.send(message.value)
                total += len(messages)
                if total >= int(hang_after) > 0:
                    print("hanging", flush=True)
                    time.sleep(600)
            print(f"answered {total}", flush=True)


def send_pairs(servers: str, prefix: str, to_service: str) -> None:
    """Begins conversations until it is killed, each with two messages in one transaction.

    It prints `begun ID` in a transaction, and `sent ID` after its commit.
    """
    with ServiceClient(servers, "shop", topic_prefix=prefix) as client:
        while True:
            with client.transaction():
                conversation = client.begin(ORDERS, to_service)
                print(f"begun {conversation.conversation_id}", flush=True)
                for number in range(2):
                    conversation.send(b"%d" % number)
            print(f"sent {conversation.conversation_id}", flush=True)


def started(scene: ServiceScene, name: str, number: int, *arguments: str) -> ChildProcess:
    """Starts a program; its output is in `NAME-NUMBER.log` of the scene's folder."""
    return ChildProcess(
        [sys.executable, "-m", __name__, name, scene.bootstrap_servers, scene.prefix, *arguments],
        log_file=scene.folder / f"{name}-{number}.log",
        env={**own_environment(), "PYTHONPATH": str(ROOT)},
    )


if __name__ == "__main__":
    if sys.argv[1] == "answer":
        answer(*sys.argv[2:])
    else:
        send_pairs(*sys.argv[2:])
