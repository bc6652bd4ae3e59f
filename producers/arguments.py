"""Checks the arguments that programs give to the clients, whose types Python does not check."""

from collections.abc import Iterable, Mapping
from typing import Any

from streaming.errors import UserError
from streaming.wire.topics import check_prefix


def check_type(name: str, value: object, *types: type) -> None:
    """Checks the type of an argument.

    Args:
        name: The argument's name.
        value: The argument's value.
        types: The types that it may have.

    Raises:
        UserError: The value has another type.
    """
    if not isinstance(value, types):
        wanted = " or ".join("None" if each is type(None) else each.__name__ for each in types)
        raise UserError(f"`{name}` is of type {type(value).__name__}; it must be {wanted}")


def check_texts(**values: object) -> None:
    """Checks that arguments are texts in UTF-8; raises UserError."""
    for name, value in values.items():
        check_type(name, value, str)
        if not _is_utf8(str(value)):
            raise UserError(f"`{name}` is {value!r}; it must be text in UTF-8")


def check_optional_texts(**values: object) -> None:
    """Checks that arguments are texts in UTF-8 or None; raises UserError."""
    for name, value in values.items():
        check_type(name, value, str, type(None))
    check_texts(**{name: value for name, value in values.items() if value is not None})


def check_place(bootstrap_servers: object, topic_prefix: object, kafka_config: object) -> None:
    """Checks the arguments that say where Kafka is; raises UserError."""
    check_texts(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    check_prefix(str(topic_prefix))
    check_type("kafka_config", kafka_config, Mapping, type(None))


def checked_headers(headers: object, *types: type) -> tuple[tuple[str, bytes], ...]:
    """Returns the headers of a message.

    Args:
        headers: The headers.
        types: The types that the value of a header may have besides bytes.

    Raises:
        UserError: Kafka's client cannot send a header. If only the commit raised the error, received messages would be
            rolled back.
    """
    check_type("headers", headers, Iterable)
    found: tuple[Any, ...] = tuple(headers)  # type: ignore[arg-type] # checked above
    for header in found:
        if not isinstance(header, tuple) or len(header) != 2:
            raise UserError(f"The header {header!r} is not valid; each is a tuple of a name and bytes")
        name, value = header
        if not isinstance(name, str) or not isinstance(value, (bytes, *types)) or not _is_utf8(name):
            raise UserError(f"The header {name!r} is not valid; its name must be text in UTF-8, and its value bytes")
    return found


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
