package peers;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** Reads events as (queue, value). The value is decoded only after the shuffle, which it crosses as plain bytes. */
final class EventReader implements KafkaRecordDeserializationSchema<Tuple2<String, byte[]>> {
  private static final long serialVersionUID = 1;

  @Override
  public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<String, byte[]>> events) {
    events.collect(Tuple2.of(new String(record.key(), UTF_8), record.value()));
  }

  @Override
  public TypeInformation<Tuple2<String, byte[]>> getProducedType() {
    return Types.TUPLE(Types.STRING, PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);
  }
}
