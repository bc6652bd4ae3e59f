package peers;

import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.PriorityQueue;

/**
 * The timers of queues, because Kafka Streams has no timers for keys. They are in memory only: after a restart they are
 * computed from the stored monitors. A timer comes when its queue is due, or earlier, because a check that moves to a
 * later time leaves its timer where it is. The timer that comes too early sets the next one.
 */
final class Timers {
  private record Timer(long dueMs, String queue) {}

  private final PriorityQueue<Timer> byTime = new PriorityQueue<>(Comparator.comparingLong(Timer::dueMs));
  private final Map<String, Timer> earliest = new HashMap<>();

  void set(String queue, long dueMs) {
    if (dueMs == QueueMonitor.NO_CHECK_MS) {
      return;
    }
    Timer known = earliest.get(queue);
    if (known == null || dueMs < known.dueMs()) {
      Timer timer = new Timer(dueMs, queue);
      earliest.put(queue, timer);
      byTime.add(timer);
    }
  }

  /** Removes a timer that is due, and returns its queue; null if no timer is due. */
  String pollDue(long nowMs) {
    while (!byTime.isEmpty() && byTime.peek().dueMs() <= nowMs) {
      Timer timer = byTime.poll();
      if (earliest.remove(timer.queue(), timer)) {
        return timer.queue();
      }
    }
    return null;
  }
}
