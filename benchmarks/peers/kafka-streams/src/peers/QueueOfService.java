package peers;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Properties;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.TopicNameExtractor;

/** Chooses the topic of a message: the queue of the service that its envelope names. */
final class QueueOfService implements TopicNameExtractor<String, byte[]> {
  private static final JsonFactory JSON = new JsonFactory();

  private final Properties queues;

  /**
   * @param queues service -> queue
   */
  QueueOfService(Properties queues) {
    this.queues = queues;
  }

  @Override
  public String extract(String conversation, byte[] body, RecordContext context) {
    String service = service(context.headers().lastHeader("envelope").value());
    String queue = service == null ? null : queues.getProperty(service);
    if (queue == null) {
      throw new IllegalStateException("no queue for the service " + service);
    }
    return queue;
  }

  /** Returns the service that an envelope names; null if it names none. */
  private static String service(byte[] envelope) {
    try (JsonParser json = JSON.createParser(envelope)) {
      json.nextToken();
      for (String name = json.nextFieldName(); name != null; name = json.nextFieldName()) {
        if (name.equals("to_service")) {
          return json.nextTextValue();
        }
        json.nextToken();
        json.skipChildren();
      }
      return null;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
