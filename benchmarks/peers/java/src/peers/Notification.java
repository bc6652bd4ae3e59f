package peers;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;

/** A record that reports the activation of a queue. */
public record Notification(String queue, long sequence, Reason reason) {
  /** The reason for an activation. */
  public enum Reason {
    MESSAGE_ARRIVED_ON_EMPTY_QUEUE,
    MESSAGES_ACCUMULATING,
    TIMEOUT_EXPIRED
  }

  private static final JsonFactory JSON = new JsonFactory();

  /** Returns the record's value. */
  public byte[] encode() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(128);
    try (JsonGenerator json = JSON.createGenerator(bytes)) {
      json.writeStartObject();
      json.writeStringField("queue", queue);
      json.writeNumberField("sequence", sequence);
      json.writeStringField("reason", reason.name());
      json.writeEndObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }
}
