"""One file of Kafka client properties for all clients: its names are Java's, and become librdkafka's where needed."""

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from streaming.errors import UserError

# Properties that have another name in librdkafka, or that it does not need. All others have the same name in both.
_LIBRDKAFKA_NAMES = {"sasl.mechanism": "sasl.mechanisms", "ssl.truststore.location": "ssl.ca.location"}
_JAVA_ONLY = {"sasl.jaas.config", "ssl.truststore.type", "ssl.truststore.password", "ssl.keystore.type"}
_CREDENTIAL = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SECRET_NAME = re.compile(r"password|secret|jaas|credential|ssl\.keystore\.key", re.IGNORECASE)
_READ_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH

# A `\` at the end of a line, unless another `\` escapes it.
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n[ \t]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load(path: Path | None) -> dict[str, str]:
    r"""Reads a Java properties file: lines `name=value` with Java's escapes, and comments. No file gives no properties.

    Raises:
        UserError: The file cannot be read, or a line is neither a property nor a comment.
    """
    if path is None:
        return {}
    try:
        lines = _CONTINUED.sub(r"\1", path.read_text()).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read the Kafka properties {path}: {error}") from None
    properties = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise UserError(f"{path}, line {number}: write name=value")
        properties[name.strip()] = _ESCAPE.sub(_unescaped, value.strip())
    return properties


def exposure(path: Path, properties: Mapping[str, str]) -> str | None:
    """Returns a warning if the file has credentials that its group or others may read; None otherwise."""
    if not any(_SECRET_NAME.search(name) for name in properties) or not path.stat().st_mode & _READ_BY_OTHERS:
        return None
    return f"{path} has credentials, and users other than its owner can read it. Run: chmod 600 {path}"


def for_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the same properties with librdkafka's names. The user and the password come from sasl.jaas.config.

    Raises:
        UserError: A trust store or key store is in a Java format, which librdkafka cannot read, or has no type, which
            Java takes for its own format.
    """
    config = {_LIBRDKAFKA_NAMES.get(name, name): value for name, value in properties.items() if name not in _JAVA_ONLY}
    for store in ("ssl.truststore", "ssl.keystore"):
        default = "JKS" if f"{store}.location" in properties else "PEM"  # Java's default
        if properties.get(f"{store}.type", default) != "PEM":
            raise UserError(f"Set {store}.type=PEM: the Python clients can read only PEM files")
    if "ssl.keystore.location" in config:
        # Java has the key and the certificate in one file.
        config["ssl.key.location"] = config["ssl.certificate.location"] = config.pop("ssl.keystore.location")
    if config.get("ssl.endpoint.identification.algorithm") == "":
        config["ssl.endpoint.identification.algorithm"] = "none"
    for name, value in _CREDENTIAL.findall(properties.get("sasl.jaas.config", "")):
        config[f"sasl.{name}"] = re.sub(r"\\(.)", r"\1", value)
    return config


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)
