"""A monitor that is stopped, and another one that goes on from its checkpoint."""

from pathlib import Path

from tests.support.monitors import Monitored
from tests.support.shared_broker import SharedBroker


def test_restart_from_the_checkpoint_goes_on_where_it_was(broker: SharedBroker, tmp_path: Path) -> None:
    options = ["--quiet-window", "1s", "--external-activation-timeout", "4s"]
    monitored = Monitored(broker.bootstrap_servers, tmp_path, options)
    with monitored.activations() as activations:
        with monitored.running() as process:
            monitored.arrive("read", "forgotten")
            activations.wait_for("read", 1)
            activations.wait_for("forgotten", 1)
            assert process.stop(30) == 0
        monitored.receive("read")
        monitored.arrive("read")  # while no monitor runs
        with monitored.running():
            read = activations.wait_for("read", 2)
            forgotten = activations.wait_for("forgotten", 2)
    assert [(record["sequence"], record["reason"]) for record in read[:2]] == [
        (1, "MESSAGE_ARRIVED_ON_EMPTY_QUEUE"),
        (2, "MESSAGE_ARRIVED_ON_EMPTY_QUEUE"),
    ]
    assert [(record["sequence"], record["reason"]) for record in forgotten[:2]] == [
        (1, "MESSAGE_ARRIVED_ON_EMPTY_QUEUE"),
        (2, "TIMEOUT_EXPIRED"),
    ]
