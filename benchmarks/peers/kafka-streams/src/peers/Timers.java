package peers;

import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.PriorityQueue;

/**
 * When which queue is to be looked at. Kafka Streams has no timers for keys; these are in memory only, because the
 * stored monitors tell them after a restart. A queue is looked at no later than it is due, but maybe earlier: a timer
 * that moves to a later time stays where it is, and is set anew when it comes.
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

  /** Takes out a queue whose time has come; null if there is none. */
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
