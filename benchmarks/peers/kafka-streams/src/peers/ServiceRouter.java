package peers;

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** Writes each message of a topic, once and with its number, into the queue of its service. */
public final class ServiceRouter {
  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(5);

  private ServiceRouter() {}

  /**
   * Runs until SIGTERM.
   *
   * @param arguments the file of Kafka Streams' settings, the file that has the queue of each service, the topic
   */
  public static void main(String[] arguments) throws IOException {
    Properties queues = read(arguments[1]);
    KafkaStreams streams = new KafkaStreams(topology(queues, arguments[2]), read(arguments[0]));
    streams.setUncaughtExceptionHandler(
        exception -> {
          exception.printStackTrace();
          Runtime.getRuntime().halt(1);
          throw new AssertionError("unreachable");
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(CLOSE_TIMEOUT)));
    streams.start();
  }

  private static Topology topology(Properties queues, String topic) {
    StoreBuilder<KeyValueStore<String, Long>> numbers =
        Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(MessageNumbers.STORE), Serdes.String(), Serdes.Long())
            .withCachingEnabled();
    return new Topology()
        .addSource("messages", new StringDeserializer(), new ByteArrayDeserializer(), topic)
        .addProcessor("numbers", MessageNumbers::new, "messages")
        .addStateStore(numbers, "numbers")
        .addSink(
            "queues", new QueueOfService(queues), new StringSerializer(), new ByteArraySerializer(), "numbers");
  }

  private static Properties read(String file) throws IOException {
    Properties found = new Properties();
    try (Reader reader = Files.newBufferedReader(Path.of(file))) {
      found.load(reader);
    }
    return found;
  }
}
