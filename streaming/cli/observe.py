"""The command `queue-activation observe`: watches consumer groups that report nothing."""

import logging
from pathlib import Path
from typing import Annotated

from streaming.cli.options import LogFormatOption, MetricsOptions, Place
from streaming.daemons.observer.settings import DEFAULT_INTERVAL_MS, DEFAULT_REPORT_INTERVAL_MS, ObserverSettings
from streaming.errors import UserError
from streaming.system import durations, logs, runs, stop_signals
from streaming.system.durations import Duration
from streaming.system.logs import LogFormat
from streaming.system.options import duration, option
from streaming.system.runs import State

_log = logging.getLogger(__name__)


@stop_signals.orderly("observer")
def observe(
    config: Annotated[
        Path | None,
        option("--config", "The activator's TOML file: its entries with `group` are watched. Changes are picked up."),
    ] = None,
    interval: Annotated[Duration, duration("--interval", "Time from one look at the groups to the next.")] = (
        durations.of(DEFAULT_INTERVAL_MS)
    ),
    report_interval: Annotated[
        Duration,
        duration(
            "--report-interval",
            "Longest time between two reports about a group with members or a backlog; half of the monitor's "
            "--quiet-window at most.",
        ),
    ] = durations.of(DEFAULT_REPORT_INTERVAL_MS),
    log_format: LogFormatOption = LogFormat.TEXT,
    *,
    metrics: MetricsOptions,
    place: Place,
) -> None:
    """Watch consumer groups that report nothing, until Ctrl-C or SIGTERM, so that the monitor activates them.

    The entries of --config with `group` name the groups. For each group, the observer tells the monitor whether one
    more reader would have work. An activator with the same file starts the readers. Prints `observer ready` after its
    first look. A second observer of the same topic prefix waits until the first one ends.
    """
    if config is None:
        raise UserError("--config FILE is missing: a TOML file whose entries [[programs]] name the groups")
    from streaming.daemons.observer.observer import Observer
    from streaming.daemons.observer.sole_observer import READY

    logs.configure(log_format)
    settings = ObserverSettings(
        place.cluster(),
        config,
        place.topic_prefix,
        interval.ms,
        report_interval.ms,
        metrics.metrics_port,
        metrics.metrics_host,
    )
    say = logs.line_printer(_log, log_format, READY)
    noted = runs.noted_alone("observer", place.bootstrap_servers, place.topic_prefix, State.READY)
    with stop_signals.taken() as signals, Observer(settings, say) as running, noted:
        signals.only_note()
        running.run(signals.stop)
