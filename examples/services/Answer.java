/*
 * Answers the orders that wait in a queue, then exits: the program stock.py again, without the clients in Python.
 *
 * It knows only the records in docs/contract.md. Its answers, its reports to the monitor and its position in the queue
 * are one Kafka transaction.
 *
 * usage: java -cp "FOLDER/*" examples/services/Answer.java [QUEUE], with Kafka's client and Jackson in the folder
 */

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Answer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String SERVERS = environment("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", "localhost:9092");
    private static final String PREFIX = environment("QUEUE_ACTIVATION_TOPIC_PREFIX", "");
    private static final String SESSION =
            environment("QUEUE_ACTIVATION_SESSION_ID", UUID.randomUUID().toString());
    private static final Duration WAIT = Duration.ofSeconds(5);
    // The longest time that Kafka may take to list its topics.
    private static final Duration ANSWER = Duration.ofSeconds(10);
    // The types of the messages that the router sends: EndDialog, Error and DialogTimer.
    private static final String ROUTERS = "http://schemas.microsoft.com/SQL/ServiceBroker/";

    private final String queue;
    private final Consumer<byte[], byte[]> consumer;
    private final Producer<byte[], byte[]> producer;

    private Answer(String queue, Consumer<byte[], byte[]> consumer, Producer<byte[], byte[]> producer) {
        this.queue = queue;
        this.consumer = consumer;
        this.producer = producer;
    }

    public static void main(String[] arguments) throws JsonProcessingException {
        String queue = arguments.length > 0 ? arguments[0] : "stock";
        Map<String, Object> reading = Map.of(
                "bootstrap.servers", SERVERS,
                // All readers of a queue are in one group and have one strategy, whatever their language is.
                "group.id", queue,
                "partition.assignment.strategy", CooperativeStickyAssignor.class.getName(),
                "isolation.level", "read_committed",
                "enable.auto.commit", false,
                "auto.offset.reset", "earliest");
        Map<String, Object> writing = Map.of(
                "bootstrap.servers", SERVERS,
                "transactional.id", "queue-activation-" + UUID.randomUUID(),
                "transaction.timeout.ms", 10_000);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(reading, bytes, bytes);
                var producer = new KafkaProducer<byte[], byte[]>(
                        writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            String problem = problemOf(consumer, queue);
            if (problem != null) {
                System.err.println("error: " + problem);
                System.exit(1);
            }
            producer.initTransactions();
            consumer.subscribe(List.of(queue));
            new Answer(queue, consumer, producer).readUntilEmpty();
        }
    }

    /** Returns why no message can come, so that poll would wait for ever, or be answered; null if the topics exist. */
    private static String problemOf(Consumer<byte[], byte[]> consumer, String queue) {
        Set<String> topics;
        try {
            topics = consumer.listTopics(ANSWER).keySet();
        } catch (KafkaException failure) {
            return "The topics of Kafka at " + SERVERS + " cannot be listed: " + failure.getMessage();
        }
        for (String name : List.of("service-messages", "queue-receives")) {
            if (!topics.contains(PREFIX + name)) {
                return "There is no topic " + PREFIX + name + ". Create it: `queue-activation topics`";
            }
        }
        if (!topics.contains(queue)) {
            return "Queue '" + queue + "' has no topic. Name a queue, or create it: `queue-activation queue create`";
        }
        return null;
    }

    private void readUntilEmpty() throws JsonProcessingException {
        while (true) {
            ConsumerRecords<byte[], byte[]> messages = consumer.poll(WAIT);
            if (!messages.isEmpty()) {
                receive(messages);
            } else if (isAtEnd()) {
                finish();
                return;
            }
        }
    }

    /** Answers messages: all that this sends is visible together with the position after them, or not at all. */
    private void receive(ConsumerRecords<byte[], byte[]> messages) throws JsonProcessingException {
        producer.beginTransaction();
        try {
            report(Map.of("type", "RECEIVE", "result", "MESSAGES", "messages", messages.count()));
            for (ConsumerRecord<byte[], byte[]> message : messages) {
                answer(message);
            }
            producer.sendOffsetsToTransaction(messages.nextOffsets(), consumer.groupMetadata());
            producer.commitTransaction();
        } catch (CommitFailedException failure) {
            // Another reader has come or gone. After any other failure the program ends, which aborts the transaction,
            // too; the next reader begins at the committed position.
            producer.abortTransaction();
            System.err.println("rolled back: " + failure.getMessage());
            for (TopicPartition partition : messages.partitions()) {
                if (consumer.assignment().contains(partition)) {
                    consumer.seek(partition, messages.records(partition).get(0).offset());
                }
            }
        }
    }

    private void answer(ConsumerRecord<byte[], byte[]> message) throws JsonProcessingException {
        if (header(message, "conversation_id") == null) {
            return; // not a message of a service
        }
        if (!header(message, "message_type_name").startsWith(ROUTERS)) {
            String order = new String(message.value(), StandardCharsets.UTF_8);
            say(message, "MESSAGE", ("reserved: " + order).getBytes(StandardCharsets.UTF_8));
        }
        say(message, "END", null);
    }

    /** Makes a statement of the receiver in the conversation of a message. */
    private void say(ConsumerRecord<byte[], byte[]> message, String type, byte[] body) throws JsonProcessingException {
        String conversation = header(message, "conversation_id");
        Map<String, Object> envelope = Map.of(
                "type", type,
                "conversation_id", conversation,
                "is_initiator", !header(message, "is_initiator").equals("true"),
                "from_service", header(message, "service"),
                "from_database", header(message, "database"),
                "to_service", header(message, "from_service"));
        // The partition is that of the key, by Java's default partitioner.
        byte[] key = conversation.getBytes(StandardCharsets.UTF_8);
        List<Header> headers = List.of(new RecordHeader("envelope", JSON.writeValueAsBytes(envelope)));
        producer.send(new ProducerRecord<>(PREFIX + "service-messages", null, key, body, headers));
    }

    /** Says what the reader found, so that the monitor knows whether one more reader would find something. */
    private void report(Map<String, Object> fields) throws JsonProcessingException {
        Map<String, Object> record = new HashMap<>(fields);
        record.put("queue", queue);
        record.put("session_id", SESSION);
        byte[] key = queue.getBytes(StandardCharsets.UTF_8);
        producer.send(new ProducerRecord<>(PREFIX + "queue-receives", key, JSON.writeValueAsBytes(record)));
    }

    private boolean isAtEnd() {
        boolean hasJoined = consumer.groupMetadata().generationId() > 0;
        Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
        return hasJoined && ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
    }

    /** Reports an empty result, and commits the ends, which are behind the markers of the senders' transactions. */
    private void finish() throws JsonProcessingException {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        consumer.assignment().forEach(each -> ends.put(each, new OffsetAndMetadata(consumer.position(each))));
        boolean hasAll = ends.size() == consumer.partitionsFor(queue).size();
        producer.beginTransaction();
        report(Map.of("type", "RECEIVE", "result", "EMPTY", "where", !hasAll));
        report(Map.of("type", "SESSION_ENDED"));
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private static String header(ConsumerRecord<byte[], byte[]> message, String name) {
        Header found = message.headers().lastHeader(name);
        return found == null ? null : new String(found.value(), StandardCharsets.UTF_8);
    }

    private static String environment(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }
}
