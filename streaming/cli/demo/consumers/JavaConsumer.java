/*
 * Reads a topic as a member of a consumer group, and exits when nothing has come for a while; needs Kafka alone.
 *
 * usage: java -cp "FOLDER/*" JavaConsumer.java SERVERS GROUP TOPIC WORK_SECONDS, with Kafka's client in the folder
 *
 * It commits by the clock, every 5 s, and when it exits: these are the client's defaults.
 */

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class JavaConsumer {
    // The longest time until the first message, for which it must become a member, and from one message to the next.
    private static final Duration FIRST = Duration.ofSeconds(30);
    private static final Duration IDLE = Duration.ofSeconds(5);

    public static void main(String[] arguments) throws InterruptedException {
        long self = ProcessHandle.current().pid();
        String topic = arguments[2];
        long workMs = Math.round(Double.parseDouble(arguments[3]) * 1000);
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0],
                "group.id", arguments[1],
                "auto.offset.reset", "earliest");
        var strings = new StringDeserializer();
        try (var consumer = new KafkaConsumer<String, String>(settings, strings, strings)) {
            consumer.subscribe(List.of(topic));
            long untilNs = after(FIRST);
            while (System.nanoTime() - untilNs < 0) {
                for (ConsumerRecord<String, String> message : consumer.poll(Duration.ofMillis(500))) {
                    Thread.sleep(workMs); // the work
                    System.out.println(self + " " + topic + "-" + message.partition() + " " + message.value());
                    untilNs = after(IDLE);
                }
            }
        }
    }

    private static long after(Duration pause) {
        return System.nanoTime() + pause.toNanos();
    }
}
