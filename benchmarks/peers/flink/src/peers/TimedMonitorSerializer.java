package peers;

import java.io.IOException;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** Serializes a key's state. Flink's own serializer for POJOs is slower, because it uses reflection. */
public final class TimedMonitorSerializer extends TypeSerializerSingleton<TimedMonitor> {
  static final TimedMonitorSerializer INSTANCE = new TimedMonitorSerializer();

  private static final long serialVersionUID = 1;

  @Override
  public void serialize(TimedMonitor state, DataOutputView target) throws IOException {
    byte[] monitor = state.monitor.encode();
    target.writeLong(state.timerMs);
    target.writeInt(monitor.length);
    target.write(monitor);
  }

  @Override
  public TimedMonitor deserialize(DataInputView source) throws IOException {
    long timerMs = source.readLong();
    byte[] monitor = new byte[source.readInt()];
    source.readFully(monitor);
    return new TimedMonitor(QueueMonitor.decode(monitor), timerMs);
  }

  @Override
  public TimedMonitor deserialize(TimedMonitor reuse, DataInputView source) throws IOException {
    return deserialize(source);
  }

  @Override
  public void copy(DataInputView source, DataOutputView target) throws IOException {
    serialize(deserialize(source), target);
  }

  @Override
  public TimedMonitor copy(TimedMonitor from) {
    return new TimedMonitor(from.monitor.copy(), from.timerMs);
  }

  @Override
  public TimedMonitor copy(TimedMonitor from, TimedMonitor reuse) {
    return copy(from);
  }

  @Override
  public TimedMonitor createInstance() {
    return new TimedMonitor(new QueueMonitor(), TimedMonitor.NO_TIMER_MS);
  }

  @Override
  public boolean isImmutableType() {
    return false;
  }

  @Override
  public int getLength() {
    return -1; // varies
  }

  @Override
  public TypeSerializerSnapshot<TimedMonitor> snapshotConfiguration() {
    return new Snapshot();
  }

  /** Gives Flink the serializer when it restores a checkpoint. */
  public static final class Snapshot extends SimpleTypeSerializerSnapshot<TimedMonitor> {
    public Snapshot() {
      super(() -> INSTANCE);
    }
  }
}
