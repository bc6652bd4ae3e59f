package peers;

import java.util.concurrent.atomic.LongAdder;

/** Counts the processed events, and prints the count on standard output. */
public final class Progress {
  private static final long PRINT_INTERVAL_MS = 100;
  private static final LongAdder PROCESSED = new LongAdder();

  /** Makes the results of all processed events durable, and then returns. */
  public interface Commit {
    void run() throws Exception;
  }

  private Progress() {}

  /** Counts one event. */
  public static void add() {
    PROCESSED.increment();
  }

  /** Prints the count until all events are processed, then commits, then prints `done`. */
  public static void print(long events, Commit commit) throws Exception {
    long printed = 0;
    while (printed < events) {
      Thread.sleep(PRINT_INTERVAL_MS);
      long processed = PROCESSED.sum();
      if (processed != printed) {
        System.out.println("events " + processed);
        printed = processed;
      }
    }
    commit.run();
    System.out.println("done");
  }
}
