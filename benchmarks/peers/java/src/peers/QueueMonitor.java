package peers;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import peers.Notification.Reason;

/**
 * The state of one queue, and the rules A and B with time-out. After each event and at {@link
 * #nextCheckMs} the monitor decides whether to activate the queue. All times are milliseconds of
 * the processing clock.
 */
public final class QueueMonitor {
  /** No check is due without an event. */
  public static final long NO_CHECK_MS = Long.MAX_VALUE;

  /** W and T are longer than any run, so that the answer does not depend on the engine's speed. */
  private static final long QUIET_WINDOW_MS = 3_600_000;

  private static final long TIMEOUT_MS = 3_600_000;

  // Additions to it and subtractions from it do not overflow.
  private static final long NEVER_MS = Long.MIN_VALUE / 2;
  private static final State[] STATES = State.values();
  private static final int FIXED_BYTES = 1 + 5 * Long.BYTES + Integer.BYTES;

  private enum State {
    INACTIVE,
    NOTIFIED,
    RECEIVES_OCCURRING
  }

  private State state = State.INACTIVE;
  private long unread;
  private long sequence;
  private long anchorMs = NEVER_MS;
  private long lastEmptyMs = NEVER_MS;
  private long lastActivatedMs = NEVER_MS;
  // Few sessions of a queue wait at a time, so a list is smaller and faster than a set.
  private final List<String> waiting;

  public QueueMonitor() {
    waiting = new ArrayList<>(0);
  }

  private QueueMonitor(List<String> waiting) {
    this.waiting = waiting;
  }

  public long sequence() {
    return sequence;
  }

  /** Applies an event; returns the reason for an activation, or null. */
  public Reason apply(Event event, long nowMs) {
    boolean hasArrived = false;
    if (event.kind() == Event.Kind.ARRIVED) {
      hasArrived = unread <= 0;
      unread += event.messages();
    } else {
      receive(event, nowMs);
    }
    becomeInactiveIfNothingUnread();
    return check(hasArrived, nowMs);
  }

  /** Decides again when a check is due; returns the reason for an activation, or null. */
  public Reason check(long nowMs) {
    return check(false, nowMs);
  }

  /** Returns when the answer can change without an event; {@link #NO_CHECK_MS} if it cannot. */
  public long nextCheckMs() {
    if (state == State.NOTIFIED) {
      return lastActivatedMs + TIMEOUT_MS;
    }
    return unread > 0 && waiting.isEmpty() ? quietUntilMs() : NO_CHECK_MS;
  }

  private void receive(Event event, long nowMs) {
    if (event.kind() == Event.Kind.WAITING) {
      if (waiting.contains(event.session())) {
        return; // A renewed wait is not a new RECEIVE.
      }
      waiting.add(event.session());
    } else {
      waiting.remove(event.session());
    }
    if (state != State.RECEIVES_OCCURRING) {
      anchorMs = nowMs;
    }
    if (state == State.NOTIFIED) {
      state = State.RECEIVES_OCCURRING;
    }
    if (event.kind() == Event.Kind.EMPTY && !event.isQualified()) {
      lastEmptyMs = nowMs;
    } else if (event.kind() == Event.Kind.MESSAGES) {
      unread -= event.messages();
    }
  }

  private void becomeInactiveIfNothingUnread() {
    if (unread <= 0 && state != State.NOTIFIED) {
      state = State.INACTIVE;
      anchorMs = NEVER_MS;
    }
  }

  private Reason check(boolean hasArrived, long nowMs) {
    boolean isTimedOut = state == State.NOTIFIED;
    if (isTimedOut) {
      if (nowMs < lastActivatedMs + TIMEOUT_MS) {
        return null;
      }
      anchorMs = NEVER_MS;
    }
    if (unread <= 0) {
      state = State.INACTIVE;
      return null;
    }
    boolean ruleA = hasArrived && unread > waiting.size();
    boolean ruleB = waiting.isEmpty() && nowMs >= quietUntilMs();
    if (!ruleA && !ruleB) {
      state = State.RECEIVES_OCCURRING;
      return null;
    }
    state = State.NOTIFIED;
    lastActivatedMs = nowMs;
    sequence++;
    if (isTimedOut) {
      return Reason.TIMEOUT_EXPIRED;
    }
    return ruleA ? Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE : Reason.MESSAGES_ACCUMULATING;
  }

  private long quietUntilMs() {
    return Math.max(lastEmptyMs, anchorMs) + QUIET_WINDOW_MS;
  }

  /** Returns the stored form. */
  public byte[] encode() {
    int size = FIXED_BYTES;
    byte[][] sessions = new byte[waiting.size()][];
    for (int i = 0; i < sessions.length; i++) {
      sessions[i] = waiting.get(i).getBytes(UTF_8);
      size += Short.BYTES + sessions[i].length;
    }
    ByteBuffer bytes = ByteBuffer.allocate(size).put((byte) state.ordinal()).putLong(unread).putLong(sequence);
    bytes.putLong(anchorMs).putLong(lastEmptyMs).putLong(lastActivatedMs).putInt(sessions.length);
    for (byte[] session : sessions) {
      bytes.putShort((short) session.length).put(session);
    }
    return bytes.array();
  }

  /** Returns the monitor that has this stored form. */
  public static QueueMonitor decode(byte[] stored) {
    ByteBuffer bytes = ByteBuffer.wrap(stored);
    QueueMonitor monitor = new QueueMonitor(new ArrayList<>());
    monitor.state = STATES[bytes.get()];
    monitor.unread = bytes.getLong();
    monitor.sequence = bytes.getLong();
    monitor.anchorMs = bytes.getLong();
    monitor.lastEmptyMs = bytes.getLong();
    monitor.lastActivatedMs = bytes.getLong();
    int sessions = bytes.getInt();
    for (int i = 0; i < sessions; i++) {
      int length = bytes.getShort();
      monitor.waiting.add(new String(stored, bytes.position(), length, UTF_8));
      bytes.position(bytes.position() + length);
    }
    return monitor;
  }

  /** Returns an independent monitor in the same state. */
  public QueueMonitor copy() {
    QueueMonitor copy = new QueueMonitor(new ArrayList<>(waiting));
    copy.state = state;
    copy.unread = unread;
    copy.sequence = sequence;
    copy.anchorMs = anchorMs;
    copy.lastEmptyMs = lastEmptyMs;
    copy.lastActivatedMs = lastActivatedMs;
    return copy;
  }
}
