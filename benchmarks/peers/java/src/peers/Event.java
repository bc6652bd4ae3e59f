package peers;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.io.UncheckedIOException;

/**
 * A record of queue-arrivals or queue-receives. The queue is the record's key.
 *
 * @param messages the number of messages that arrived, or were received
 * @param session the session that called RECEIVE; null for an arrival
 * @param isQualified whether the RECEIVE had a WHERE clause
 */
public record Event(Kind kind, long messages, String session, boolean isQualified) {
  /** A MESSAGE_ARRIVED, or the result of a RECEIVE. */
  public enum Kind {
    ARRIVED,
    MESSAGES,
    EMPTY,
    WAITING
  }

  private static final JsonFactory JSON = new JsonFactory();

  /** Decodes a record's value. A record without a result is an arrival, by default of one message. */
  public static Event decode(byte[] value) {
    Kind kind = Kind.ARRIVED;
    long messages = 1;
    String session = null;
    boolean isQualified = false;
    try (JsonParser json = JSON.createParser(value)) {
      json.nextToken();
      for (String name = json.nextFieldName(); name != null; name = json.nextFieldName()) {
        switch (name) {
          case "result" -> kind = Kind.valueOf(json.nextTextValue());
          case "count", "messages" -> messages = json.nextLongValue(1);
          case "session_id" -> session = json.nextTextValue();
          case "where" -> isQualified = Boolean.TRUE.equals(json.nextBooleanValue());
          default -> {
            json.nextToken();
            json.skipChildren();
          }
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return new Event(kind, messages, session, isQualified);
  }
}
