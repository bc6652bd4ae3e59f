"""The command `queue-activation host`: runs the tasks of internal activation."""

import logging
from pathlib import Path
from typing import Annotated

from streaming.cli.options import LogFormatOption, Place
from streaming.system import logs, stop_signals
from streaming.system.logs import LogFormat
from streaming.system.options import option

_log = logging.getLogger(__name__)


@stop_signals.orderly("host")
def host(
    config: Annotated[Path, option("--config", "TOML file that says which command or function runs each procedure.")],
    group_id: Annotated[
        str,
        option("--group-id", "Consumer group of the hosts that share the work. Default: PREFIXqueue-activation-host."),
    ] = "",
    log_format: LogFormatOption = LogFormat.TEXT,
    *,
    place: Place,
) -> None:
    """Run the procedures that internal activation starts, until Ctrl-C or SIGTERM.

    Prints `host ready`. After the first signal, running tasks may take up to the file's `stop_timeout` to end. A second
    signal ends the wait.
    """
    from streaming.daemons.host.task_host import READY, HostSettings, TaskHost

    logs.configure(log_format)
    say = logs.line_printer(_log, log_format, READY)
    settings = HostSettings(place.cluster(), config, place.topic_prefix, group_id, place.kafka_config)
    with stop_signals.taken() as signals, TaskHost(settings, say) as running:
        signals.only_note()
        running.run(signals.stop, signals.hurry)
