package peers;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.CoreOptions;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.producer.ProducerRecord;

/** The monitor's rules on Flink: KeyedProcessFunction with timers, state in RocksDB or on the heap. */
public final class FlinkPeer {
  private static final int PARALLELISM = 2;
  private static final Duration CHECKPOINT_INTERVAL = Duration.ofSeconds(10);

  private FlinkPeer() {}

  public static void main(String[] arguments) throws Exception {
    Options options = Options.parse(arguments, "rocksdb", "heap");
    Configuration settings = settings(options);
    MiniCluster cluster =
        new MiniCluster(
            new MiniClusterConfiguration.Builder()
                .setConfiguration(settings)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(PARALLELISM)
                .withRandomPorts()
                .build());
    cluster.start();
    JobGraph job = job(options, settings);
    JobID id = cluster.submitJob(job).get().getJobID();
    cluster.requestJobResult(id).thenAccept(FlinkPeer::end);
    Progress.print(options.events(), () -> cluster.triggerCheckpoint(id, CheckpointType.CONFIGURED).get());
  }

  private static void end(JobResult result) {
    result.getSerializedThrowable().ifPresent(Throwable::printStackTrace);
    Runtime.getRuntime().halt(1);
  }

  private static Configuration settings(Options options) {
    Configuration settings = new Configuration();
    settings.set(CoreOptions.DEFAULT_PARALLELISM, PARALLELISM);
    settings.set(CoreOptions.TMP_DIRS, options.stateDir().resolve("local").toString());
    // Operators in one chain pass objects on without copying them. No operator here changes its input.
    settings.set(PipelineOptions.OBJECT_REUSE, true);
    // By default an unfilled buffer, and so every notification, waits 100 ms. 10 ms showed no loss of throughput.
    settings.set(ExecutionOptions.BUFFER_TIMEOUT, Duration.ofMillis(10));
    settings.set(StateBackendOptions.STATE_BACKEND, options.variant().equals("heap") ? "hashmap" : "rocksdb");
    settings.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(512));
    settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, CHECKPOINT_INTERVAL);
    settings.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, true);
    settings.set(
        CheckpointingOptions.CHECKPOINTS_DIRECTORY, options.stateDir().resolve("checkpoints").toUri().toString());
    return settings;
  }

  private static JobGraph job(Options options, Configuration settings) {
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    KafkaSource<Tuple2<String, byte[]>> events =
        KafkaSource.<Tuple2<String, byte[]>>builder()
            .setBootstrapServers(options.bootstrapServers())
            .setTopics(options.inputTopics())
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(new EventReader())
            .build();
    String topic = options.outputTopic();
    KafkaSink<Notification> notifications =
        KafkaSink.<Notification>builder()
            .setBootstrapServers(options.bootstrapServers())
            .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
            .setRecordSerializer(
                (notification, context, timestampMs) ->
                    new ProducerRecord<>(topic, notification.queue().getBytes(UTF_8), notification.encode()))
            .build();
    environment
        .fromSource(events, WatermarkStrategy.noWatermarks(), "events")
        .keyBy(event -> event.f0)
        .process(new MonitorFunction())
        .uid("monitor")
        .sinkTo(notifications);
    return environment.getStreamGraph().getJobGraph();
  }
}
