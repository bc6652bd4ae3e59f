"""The command `dead-letters`: any program may have written what it shows."""

import pytest

from streaming.cli.dead_letters import decode, of_service
from tests.support.bad_output import OutputRecord

HEADERS = ("source_timestamp", "source_offset", "source_partition", "number")


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("value", [b"9" * 17, b"9" * 19, b"9" * 5_000, b"-1", b"\xb2", "\u0664".encode(), b""])
def test_a_number_of_any_form_ends_no_command(name: str, value: bytes) -> None:
    letter = OutputRecord("queue-dead-letters", b"key", b"value", ((name, value), ("reason", b"why")))
    shown = decode(letter) | of_service(letter)  # type: ignore[arg-type]
    assert (shown["reason"], shown["key"], shown["value"]) == ("why", "key", "value")


def test_an_instant_that_no_calendar_has_is_shown_as_unknown() -> None:
    letter = OutputRecord("queue-dead-letters", b"key", b"value", (("source_timestamp", b"9" * 17),))
    assert decode(letter)["time"] is None  # type: ignore[arg-type]
