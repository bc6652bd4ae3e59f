"""The names in envelopes: no program can make another one's records invalid by a name that it chooses."""

import json
from typing import Any

import pytest

from streaming.wire.envelope import Envelope, decode_value, encode_envelope
from streaming.wire.record_decoders import InvalidRecordError

ENVELOPE: dict[str, Any] = {
    "type": "MESSAGE",
    "conversation_id": "c",
    "is_initiator": True,
    "from_service": "A",
    "from_database": "d",
    "to_service": "B",
}
NAMES = (
    *("conversation_id", "from_service", "from_database", "to_service", "to_broker_instance"),
    *("conversation_group_id", "message_type_name", "from_broker_instance"),
)


def decode(**fields: Any) -> object:
    value = json.dumps(ENVELOPE | fields).encode()
    return decode_value(value, len(value))


@pytest.mark.parametrize("field", NAMES)
@pytest.mark.parametrize("letter", ["\0", "\n", "\r", "\x1b", "\x7f", "\x9b", "\ufffe", "\uffff"])
def test_a_control_character_in_a_name_is_refused(field: str, letter: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"`{field}` has a control character"):
        decode(**{field: f"a{letter}"})
    with pytest.raises(InvalidRecordError, match=f"`{field}` has a control character"):
        encode_envelope(Envelope(**ENVELOPE | {field: f"{letter}b"}))


@pytest.mark.parametrize("field", NAMES)
def test_any_other_letter_is_taken(field: str) -> None:
    name = "a b/ü\N{EM DASH}\u6f22\N{GRINNING FACE}" if not field.endswith("broker_instance") else "A b-{9}"
    assert getattr(decode(**{field: name}), field) == name


@pytest.mark.parametrize("field", ["to_broker_instance", "from_broker_instance"])
def test_a_broker_instance_has_letters_that_have_one_lower_case(field: str) -> None:
    with pytest.raises(InvalidRecordError, match="characters other than ASCII"):
        decode(**{field: "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}" * 100})
