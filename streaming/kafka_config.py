"""One file of Kafka client properties for every client: Java's own words, and librdkafka's made from them."""

import re
from collections.abc import Mapping
from pathlib import Path

from streaming.errors import UserError

# What librdkafka calls otherwise, or does not need. Everything else has one name in both.
_LIBRDKAFKA_NAMES = {"sasl.mechanism": "sasl.mechanisms", "ssl.truststore.location": "ssl.ca.location"}
_JAVA_ONLY = {"sasl.jaas.config", "ssl.truststore.type", "ssl.truststore.password"}
_CREDENTIAL = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def load(path: Path | None) -> dict[str, str]:
    r"""Reads a Java properties file: lines `name=value`, continued after a `\`, and comments; no file, no properties.

    Raises:
        UserError: The file cannot be read, or a line is no property.
    """
    if path is None:
        return {}
    try:
        lines = re.sub(r"\\\n[ \t]*", "", path.read_text()).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the Kafka properties {path}: {error}") from None
    properties = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise UserError(f"{path}, line {number}: write name=value")
        properties[name.strip()] = value.strip()
    return properties


def for_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """The same properties in librdkafka's words, user and password taken from sasl.jaas.config.

    Raises:
        UserError: A Java key store, which librdkafka cannot read.
    """
    if properties.get("ssl.truststore.type", "PEM").upper() != "PEM":
        raise UserError("set ssl.truststore.type=PEM: the Python clients can read only PEM files")
    config = {_LIBRDKAFKA_NAMES.get(name, name): value for name, value in properties.items() if name not in _JAVA_ONLY}
    for name, value in _CREDENTIAL.findall(properties.get("sasl.jaas.config", "")):
        config[f"sasl.{name}"] = re.sub(r"\\(.)", r"\1", value)
    return config
