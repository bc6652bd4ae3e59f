package peers;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The command line of every peer. */
public record Options(
    String bootstrapServers, String prefix, String outputTopic, long events, Path stateDir, String variant) {

  /** Parses the command line. The first variant is the default. */
  public static Options parse(String[] arguments, String... variants) {
    Map<String, String> given = new HashMap<>(Map.of("--variant", variants[0]));
    for (int i = 0; i + 1 < arguments.length; i += 2) {
      given.put(arguments[i], arguments[i + 1]);
    }
    for (String name : List.of("--bootstrap-servers", "--prefix", "--output-topic", "--events", "--state-dir")) {
      if (!given.containsKey(name)) {
        throw new IllegalArgumentException(name + " is missing");
      }
    }
    String variant = given.get("--variant");
    if (!List.of(variants).contains(variant)) {
      throw new IllegalArgumentException("--variant must be one of " + String.join(", ", variants));
    }
    return new Options(
        given.get("--bootstrap-servers"),
        given.get("--prefix"),
        given.get("--output-topic"),
        Long.parseLong(given.get("--events")),
        Path.of(given.get("--state-dir")).toAbsolutePath(),
        variant);
  }

  /** Returns the input topics. */
  public List<String> inputTopics() {
    return List.of(prefix + "queue-arrivals", prefix + "queue-receives");
  }
}
