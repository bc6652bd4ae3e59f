package peers;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import peers.Notification.Reason;

/** Applies the rules to the queues of one task. */
final class MonitorProcessor implements Processor<String, Event, String, Notification> {
  static final String STORE = "monitors";

  // An idle thread of Kafka Streams wakes up by itself at the same interval (poll.ms).
  private static final Duration TIMER_INTERVAL = Duration.ofMillis(100);

  private final AtomicBoolean isCommitWanted;
  private final Timers timers = new Timers();
  private ProcessorContext<String, Notification> context;
  private KeyValueStore<String, QueueMonitor> monitors;

  /**
   * @param isCommitWanted whether the tasks must commit now instead of at the commit interval
   */
  MonitorProcessor(AtomicBoolean isCommitWanted) {
    this.isCommitWanted = isCommitWanted;
  }

  @Override
  public void init(ProcessorContext<String, Notification> context) {
    this.context = context;
    monitors = context.getStateStore(STORE);
    // The store has been restored by now. The timers are computed from it.
    try (KeyValueIterator<String, QueueMonitor> stored = monitors.all()) {
      while (stored.hasNext()) {
        KeyValue<String, QueueMonitor> entry = stored.next();
        timers.set(entry.key, entry.value.nextCheckMs());
      }
    }
    context.schedule(TIMER_INTERVAL, PunctuationType.WALL_CLOCK_TIME, this::onTimer);
  }

  @Override
  public void process(Record<String, Event> record) {
    String queue = record.key();
    QueueMonitor monitor = monitors.get(queue);
    if (monitor == null) {
      monitor = new QueueMonitor();
    }
    long nowMs = context.currentSystemTimeMs();
    Reason reason = monitor.apply(record.value(), nowMs);
    store(queue, monitor, reason, nowMs);
    Progress.add();
  }

  private void onTimer(long nowMs) {
    for (String queue = timers.pollDue(nowMs); queue != null; queue = timers.pollDue(nowMs)) {
      QueueMonitor monitor = monitors.get(queue);
      if (monitor.nextCheckMs() > nowMs) {
        timers.set(queue, monitor.nextCheckMs());
      } else {
        store(queue, monitor, monitor.check(nowMs), nowMs);
      }
    }
    if (isCommitWanted.get()) {
      context.commit();
    }
  }

  private void store(String queue, QueueMonitor monitor, Reason reason, long nowMs) {
    monitors.put(queue, monitor);
    timers.set(queue, monitor.nextCheckMs());
    if (reason != null) {
      context.forward(new Record<>(queue, new Notification(queue, monitor.sequence(), reason), nowMs));
    }
  }
}
