package peers;

import java.io.IOException;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import peers.Notification.Reason;

/** Applies the rules to each queue's events, (queue, value). */
final class MonitorFunction extends KeyedProcessFunction<String, Tuple2<String, byte[]>, Notification> {
  private static final long serialVersionUID = 1;

  private transient ValueState<TimedMonitor> states;

  @Override
  public void open(OpenContext context) {
    states = getRuntimeContext().getState(new ValueStateDescriptor<>("monitor", TimedMonitorSerializer.INSTANCE));
  }

  @Override
  public void processElement(Tuple2<String, byte[]> event, Context context, Collector<Notification> notifications)
      throws IOException {
    TimedMonitor state = states.value();
    if (state == null) {
      state = TimedMonitorSerializer.INSTANCE.createInstance();
    }
    long nowMs = context.timerService().currentProcessingTime();
    Reason reason = state.monitor.apply(Event.decode(event.f1), nowMs);
    store(state, reason, context, notifications);
    Progress.add();
  }

  @Override
  public void onTimer(long timestamp, OnTimerContext context, Collector<Notification> notifications)
      throws IOException {
    TimedMonitor state = states.value();
    state.timerMs = TimedMonitor.NO_TIMER_MS;
    long nowMs = context.timerService().currentProcessingTime();
    Reason reason = state.monitor.nextCheckMs() <= nowMs ? state.monitor.check(nowMs) : null;
    store(state, reason, context, notifications);
  }

  private void store(TimedMonitor state, Reason reason, Context context, Collector<Notification> notifications)
      throws IOException {
    // A check that moves to a later time needs no new timer. The earlier timer sets it when it comes.
    long dueMs = state.monitor.nextCheckMs();
    if (dueMs < state.timerMs) {
      context.timerService().registerProcessingTimeTimer(dueMs);
      state.timerMs = dueMs;
    }
    states.update(state);
    if (reason != null) {
      notifications.collect(new Notification(context.getCurrentKey(), state.monitor.sequence(), reason));
    }
  }
}
