"""Decides about a record of queue-tasks: which program runs its task, or why the task is refused."""

from collections.abc import Mapping
from dataclasses import dataclass

from streaming.core.times import readable_time
from streaming.daemons.host.config import HostConfig
from streaming.daemons.host.invocation import CannotStartError, Invocation, invocation, require_program
from streaming.daemons.host.start_records import StartRecord


@dataclass(frozen=True)
class Refusal:
    """The refusal of a task.

    Attributes:
        reason: The reason, for the monitor and the host's log.
        is_late: Whether the monitor had given the task up before.
    """

    reason: str
    is_late: bool = False


def decide(record: StartRecord, config: HostConfig, connection: Mapping[str, str], now_ms: int) -> Invocation | Refusal:
    """Returns the program that runs a record's task, or the refusal of the task.

    Args:
        record: The record.
        config: The host's configuration.
        connection: Environment variables with Kafka's address.
        now_ms: The time of the wall clock.
    """
    if now_ms >= record.expires_ms:
        reason = f"it came too late: the monitor gave it up at {readable_time(record.task.expires_at)}"
        return Refusal(reason, is_late=True)
    try:
        wanted = invocation(config, record.task, connection)
        require_program(wanted)
    except CannotStartError as error:
        return Refusal(str(error))
    return wanted
