"""The command `queue-activation monitor`, which turns its options into the monitor's settings."""

from streaming.cli.launch import launch
from streaming.cli.lines import say
from streaming.cli.options import LogFormatOption, MetricsOptions, Place
from streaming.core.activation.settings import CoreSettings
from streaming.daemons.monitor.settings import MonitorOptions, MonitorSettings
from streaming.system import durations, hints, logs, stop_signals
from streaming.system.logs import LogFormat


@stop_signals.orderly("monitor")
def monitor(
    options: MonitorOptions, log_format: LogFormatOption = LogFormat.TEXT, *, metrics: MetricsOptions, place: Place
) -> None:
    """Run the Spark job that decides when queues are activated.

    It reads the reports of senders and readers, and writes notifications, or requests a task, for each queue that needs
    one more reader. It prints `monitor ready` once the first batch is committed. Ctrl-C or SIGTERM stops it after the
    batch in progress; a second signal ends that wait.

    A DURATION is a number and a unit, such as 250ms, 5s, 2m, 1h or 7d.
    """
    from streaming.daemons.monitor.monitor import program

    logs.configure(log_format)
    for warning in short_leases(options.core):
        say(f"warning: {warning}", err=True)
    servers, properties = place.bootstrap_servers, place.properties()
    launch(program(MonitorSettings(servers, properties, place.topic_prefix, metrics.address, options)))


def short_leases(core: CoreSettings) -> list[str]:
    """Returns a warning for each lease that ends before the next report of our own clients and hosts."""
    from producers.session_reports import SESSION_ALIVE_INTERVAL_S
    from streaming.core.activation.task_handlers import REPORT_INTERVAL_MS

    alive_ms = round(SESSION_ALIVE_INTERVAL_S * 1000)
    leases = [
        ("--session-lease", core.session_lease_ms, "QueueReader reports", alive_ms, "a reader that waits is forgotten"),
        ("--transaction-lease", core.transaction_lease_ms, "QueueReader reports", alive_ms, "its messages come again"),
        ("--task-lease", core.task_lease_ms, "a host reports a task", REPORT_INTERVAL_MS, "a running task is lost"),
    ]
    return [
        f"{hints.option(option)} {durations.of(lease_ms)} ends before {who} again, every {durations.of(every_ms)}: "
        f"{effect} between two reports"
        for option, lease_ms, who, every_ms, effect in leases
        if lease_ms <= every_ms
    ]
