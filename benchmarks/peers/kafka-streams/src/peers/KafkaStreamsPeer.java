package peers;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** The monitor's rules on Kafka Streams: Processor API, RocksDB, with and without the record cache. */
public final class KafkaStreamsPeer {
  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(5);
  private static final long POLL_INTERVAL_MS = 20;

  private KafkaStreamsPeer() {}

  public static void main(String[] arguments) throws Exception {
    Options options = Options.parse(arguments, "cache", "nocache");
    // A new application id makes every run start from an empty state.
    String application = "peer-kafka-streams-" + UUID.randomUUID();
    AtomicBoolean isCommitWanted = new AtomicBoolean();
    KafkaStreams streams =
        new KafkaStreams(topology(options, isCommitWanted), settings(options, application));
    streams.setUncaughtExceptionHandler(
        exception -> {
          exception.printStackTrace();
          Runtime.getRuntime().halt(1);
          throw new AssertionError("unreachable");
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(streams, options, application)));
    streams.start();
    Progress.print(options.events(), () -> commit(options, application, isCommitWanted));
  }

  private static Topology topology(Options options, AtomicBoolean isCommitWanted) {
    StoreBuilder<KeyValueStore<String, QueueMonitor>> store =
        Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(MonitorProcessor.STORE),
            Serdes.String(),
            Serdes.serdeFrom(
                (topic, monitor) -> monitor == null ? null : monitor.encode(),
                (topic, stored) -> stored == null ? null : QueueMonitor.decode(stored)));
    if (options.variant().equals("cache")) {
      store.withCachingEnabled();
    } else {
      store.withCachingDisabled();
    }
    String[] topics = options.inputTopics().toArray(String[]::new);
    return new Topology()
        .addSource("events", new StringDeserializer(), (topic, value) -> Event.decode(value), topics)
        .addProcessor("monitor", () -> new MonitorProcessor(isCommitWanted), "events")
        .addStateStore(store, "monitor")
        .addSink(
            "notifications",
            options.outputTopic(),
            new StringSerializer(),
            (topic, notification) -> ((Notification) notification).encode(),
            "monitor");
  }

  private static Properties settings(Options options, String application) {
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.bootstrapServers());
    settings.put(StreamsConfig.STATE_DIR_CONFIG, options.stateDir().toString());
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    // For the changelog. Without the record cache: 251,000 to 287,000 events/s; with the default of 16 KiB: 227,000.
    settings.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 128 * 1024);
    // With Kafka Streams' default, every notification would wait for 100 ms.
    settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 20);
    return settings;
  }

  /** Makes all tasks commit; returns when the committed offsets are the ends of the input. */
  private static void commit(Options options, String application, AtomicBoolean isCommitWanted) throws Exception {
    isCommitWanted.set(true);
    try (Admin admin = admin(options)) {
      Map<TopicPartition, Long> ends = ends(admin, options.inputTopics());
      while (!isCommitted(admin, application, ends)) {
        Thread.sleep(POLL_INTERVAL_MS);
      }
    }
    isCommitWanted.set(false);
  }

  private static Map<TopicPartition, Long> ends(Admin admin, List<String> topics) throws Exception {
    Map<TopicPartition, OffsetSpec> latest =
        admin.describeTopics(topics).allTopicNames().get().values().stream()
            .flatMap(KafkaStreamsPeer::partitions)
            .collect(Collectors.toMap(partition -> partition, partition -> OffsetSpec.latest()));
    Map<TopicPartition, ListOffsetsResultInfo> ends = admin.listOffsets(latest).all().get();
    return ends.entrySet().stream()
        .filter(end -> end.getValue().offset() > 0)
        .collect(Collectors.toMap(Map.Entry::getKey, end -> end.getValue().offset()));
  }

  private static Stream<TopicPartition> partitions(TopicDescription topic) {
    return topic.partitions().stream().map(info -> new TopicPartition(topic.name(), info.partition()));
  }

  private static boolean isCommitted(Admin admin, String application, Map<TopicPartition, Long> ends)
      throws Exception {
    Map<TopicPartition, OffsetAndMetadata> committed =
        admin.listConsumerGroupOffsets(application).partitionsToOffsetAndMetadata().get();
    return ends.entrySet().stream()
        .allMatch(
            end -> {
              OffsetAndMetadata offset = committed.get(end.getKey());
              return offset != null && offset.offset() >= end.getValue();
            });
  }

  private static void stop(KafkaStreams streams, Options options, String application) {
    streams.close(CLOSE_TIMEOUT);
    // No later run uses this run's state.
    String changelog = application + "-" + MonitorProcessor.STORE + "-changelog";
    try (Admin admin = admin(options)) {
      admin.deleteTopics(List.of(changelog)).all().get(2, TimeUnit.SECONDS);
    } catch (ExecutionException | InterruptedException | TimeoutException e) {
      System.err.println("The topic " + changelog + " was not deleted: " + e);
    }
  }

  private static Admin admin(Options options) {
    return Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, options.bootstrapServers()));
  }
}
