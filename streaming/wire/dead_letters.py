"""Dead letters: records that a program refuses, with the reason and their origin. All programs write the same form."""

from dataclasses import dataclass

from streaming.wire.output_records import Headers, OutputRow

# Lengths at which a dead letter cuts the refused record. A whole record near the broker's limit would not fit together
# with the headers.
DEAD_LETTER_KEY_BYTES = 1024
DEAD_LETTER_VALUE_BYTES = 256 * 1024
# Limited, because a reason may quote the record.
DEAD_LETTER_REASON_LENGTH = 1_000


@dataclass(frozen=True)
class SourceRecord:
    """An input record as it arrived, possibly cut, and its origin. `timestamp_ms` is None if the record is gone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    value_bytes: int


def dead_letter_row(source: SourceRecord, reason: str, topic: str) -> OutputRow:
    """Returns the dead letter for a record, as a record of a topic."""
    return topic, *dead_letter_parts(source, reason), None


def dead_letter_parts(
    source: SourceRecord, reason: str, number: int | None = None, max_value_bytes: int = DEAD_LETTER_VALUE_BYTES
) -> tuple[bytes | None, bytes | None, Headers]:
    """Returns key, value and headers of the dead letter for a record.

    Args:
        source: The record.
        reason: The reason for the refusal.
        number: The number of Service Broker's message, if there is one.
        max_value_bytes: The length at which the value is cut.
    """
    headers: Headers = [("reason", reason[:DEAD_LETTER_REASON_LENGTH].encode(errors="replace"))]
    if number is not None:
        headers.append(("number", b"%d" % number))
    headers += [
        ("source_topic", source.topic.encode()),
        ("source_partition", b"%d" % source.partition),
        ("source_offset", b"%d" % source.offset),
    ]
    if source.timestamp_ms is not None:
        headers.append(("source_timestamp", b"%d" % source.timestamp_ms))
    key = source.key and source.key[:DEAD_LETTER_KEY_BYTES]
    value = source.value and source.value[:max_value_bytes]
    if source.value_bytes > len(value or b""):
        headers.append(("value_bytes", b"%d" % source.value_bytes))
    return key, value, headers
