package peers;

import static java.nio.charset.StandardCharsets.US_ASCII;

import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Gives the messages of each conversation their numbers, and drops those that came before.
 *
 * <p>The key is the conversation. The third word of the body is the number that the sender has given.
 */
final class MessageNumbers implements Processor<String, byte[], String, byte[]> {
  static final String STORE = "next-numbers";

  private ProcessorContext<String, byte[]> context;
  private KeyValueStore<String, Long> nextNumbers;

  @Override
  public void init(ProcessorContext<String, byte[]> context) {
    this.context = context;
    nextNumbers = context.getStateStore(STORE);
  }

  @Override
  public void process(Record<String, byte[]> message) {
    Long stored = nextNumbers.get(message.key());
    long next = stored == null ? 0 : stored;
    long number = number(message.value());
    if (number < next) {
      return;
    }
    if (number > next) {
      throw new IllegalStateException(
          "conversation " + message.key() + ": message " + number + " came instead of " + next);
    }
    nextNumbers.put(message.key(), next + 1);
    message.headers().add("message_sequence_number", Long.toString(next).getBytes(US_ASCII));
    context.forward(message);
  }

  private static long number(byte[] body) {
    int start = behindSpace(body, behindSpace(body, 0));
    int length = behindSpace(body, start) - 1 - start;
    return Long.parseLong(new String(body, start, length, US_ASCII));
  }

  private static int behindSpace(byte[] body, int start) {
    int at = start;
    while (body[at] != ' ') {
      at++;
    }
    return at + 1;
  }
}
