package peers;

/** The state of a key: a monitor, and when its timer is due. */
public final class TimedMonitor {
  static final long NO_TIMER_MS = Long.MAX_VALUE;

  final QueueMonitor monitor;
  long timerMs;

  TimedMonitor(QueueMonitor monitor, long timerMs) {
    this.monitor = monitor;
    this.timerMs = timerMs;
  }
}
