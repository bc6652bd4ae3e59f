"""The file of Kafka client properties for all clients. Its names are Java's, translated for the other clients."""

import re
import ssl
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streaming.errors import UserError

# Java's names that librdkafka has other names for. Most properties have the same name in both.
_LIBRDKAFKA_NAMES = {"sasl.mechanism": "sasl.mechanisms", "ssl.truststore.location": "ssl.ca.location"}
# The logins of kafka-python that need only a user and a password.
_KAFKA_PYTHON_LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LIBRDKAFKAS_LOGIN = "GSSAPI"  # librdkafka's default
# The properties that `_tls_context` reads.
_TLS_NAMES = {
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
}
# The properties that librdkafka does not need.
_JAVA_ONLY = {"sasl.jaas.config", "ssl.truststore.type", "ssl.truststore.password", "ssl.keystore.type"}
# The tokens of Java's reader of JAAS configurations: comments, quoted texts, words, and single characters.
_JAAS_TOKEN = re.compile(r"""//[^\n\r]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\W\d][\w$.-]*|\S""", re.DOTALL)
_JAAS_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_JAAS_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SECRET_NAME = re.compile(r"password|secret|jaas|credential|ssl\.keystore\.key", re.IGNORECASE)
_READ_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH

_BLANKS = " \t\f"  # the characters that Java skips; other blanks are parts of names and values
# A `\` at the end of a line, unless another `\` escapes it.
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_PROPERTY = re.compile(r"((?:[^\\=: \t\f]|\\.)+)(?:[ \t\f]*[=:]|[ \t\f])[ \t\f]*(.*)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load(path: Path | None) -> dict[str, str]:
    r"""Reads a Java properties file: lines `name=value` with Java's escapes, and comments.

    Without a file, there are no properties.

    Raises:
        UserError: The file cannot be read, or a line is neither a property nor a comment.
    """
    if path is None:
        return {}
    try:
        # A byte order mark, which editors on Windows write, is not a part of the first name.
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"Cannot read the Kafka properties {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"Cannot read the Kafka properties {path}: {error}") from None
    properties = {}
    for number, line in _logical_lines(text):
        found = _PROPERTY.fullmatch(line)
        if found is None:
            raise UserError(f"{path}, line {number}: write name=value")
        try:
            properties[_unescaped(found[1])] = _unescaped(found[2].rstrip(_BLANKS))
        except ValueError:
            raise UserError(f"{path}, line {number}: \\u needs four hexadecimal digits, and a character") from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the properties with the numbers of their first lines, without comments, which are never continued."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        part = line.lstrip(_BLANKS)
        if not parts and (not part or part.startswith(("#", "!"))):
            continue
        first = first if parts else number
        is_continued = _CONTINUED.search(part) is not None
        parts.append(part[:-1] if is_continued else part)
        if not is_continued:
            yield first, "".join(parts)
            parts = []


def exposure(path: Path, properties: Mapping[str, str]) -> str | None:
    """Returns a warning if the file has credentials that the file's group or other users may read; None otherwise."""
    if not any(_SECRET_NAME.search(name) for name in properties) or not path.stat().st_mode & _READ_BY_OTHERS:
        return None
    return f"{path} has credentials, and users other than its owner can read it. Run: chmod 600 {path}"


def for_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the same properties with librdkafka's names. The user and the password come from sasl.jaas.config.

    Raises:
        UserError: A trust store or key store has a Java format, which librdkafka cannot read, or no type, which means a
            Java format.
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
    return config | _credentials(properties.get("sasl.jaas.config", ""))


def for_kafka_python(config: Mapping[str, str]) -> dict[str, Any]:
    """Returns kafka-python's properties for security, from properties with librdkafka's names.

    Raises:
        UserError: kafka-python cannot do what a property demands, or a certificate or a key cannot be used.
    """
    protocol = config.get("security.protocol", "PLAINTEXT").upper()
    settings: dict[str, Any] = {"security_protocol": protocol}
    if "client.id" in config:
        settings["client_id"] = config["client.id"]
    if protocol.startswith("SASL"):
        settings |= _login(config)
    if protocol.endswith("SSL"):
        settings["ssl_context"] = _tls_context(config)
    return settings


def _login(config: Mapping[str, str]) -> dict[str, str | None]:
    mechanism = config.get("sasl.mechanisms", _LIBRDKAFKAS_LOGIN)
    if mechanism not in _KAFKA_PYTHON_LOGINS:
        raise UserError(
            f"Commands that look at consumer groups cannot log in with sasl.mechanism={mechanism}. Give them a "
            f"file for --kafka-config with one of {', '.join(_KAFKA_PYTHON_LOGINS)}"
        )
    names = {"sasl_plain_username": "sasl.username", "sasl_plain_password": "sasl.password"}
    return {"sasl_mechanism": mechanism, **{own: config.get(name) for own, name in names.items()}}


def _tls_context(config: Mapping[str, str]) -> ssl.SSLContext:
    """Makes the TLS context. By itself, kafka-python would report a file that it cannot read only as a time-out."""
    unknown = sorted(name for name in config if name.startswith("ssl.") and name not in _TLS_NAMES)
    if unknown:
        raise UserError(f"Commands that look at consumer groups do not know the property {unknown[0]}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.get("ssl.endpoint.identification.algorithm") != "none"
    if config.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    where, certificate = config.get("ssl.ca.location", "probe"), config.get("ssl.certificate.location")
    try:
        if "ssl.ca.pem" in config:
            context.load_verify_locations(cadata=config["ssl.ca.pem"])
        elif where == "probe":
            context.load_default_certs()
        else:
            context.load_verify_locations(**{"capath" if Path(where).is_dir() else "cafile": where})
        if certificate is not None:
            # Without a password, Python would ask for the password on the terminal.
            password = config.get("ssl.key.password", "")
            context.load_cert_chain(certificate, config.get("ssl.key.location"), password)
    except OSError as error:
        files = " or ".join(name for name in (where, certificate) if name not in (None, "probe"))
        raise UserError(f"{files or 'ssl.ca.pem'}: this certificate or key cannot be used: {error.strerror}") from None
    return context


def _credentials(jaas: str) -> dict[str, str]:
    """Returns user and password with librdkafka's names. The values may have single, double or no quotation marks."""
    tokens = [each for each in _JAAS_TOKEN.findall(jaas) if not each.startswith(("//", "/*"))]
    return {
        f"sasl.{name}": _unquoted(value)
        for name, sign, value in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if name in ("username", "password") and sign == "="
    }


def _unquoted(token: str) -> str:
    return _JAAS_ESCAPE.sub(_jaas_character, token[1:-1]) if token[0] in "\"'" else token


def _jaas_character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _JAAS_ESCAPED.get(code, code)


def _unescaped(text: str) -> str:
    """Returns a text of the file without Java's escapes; raises ValueError if an escape is not a character."""
    plain = _ESCAPE.sub(_character, text)
    # Java writes a character beyond U+FFFF as two escapes.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16")


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if code[0] == "u" else _ESCAPED.get(code, code)
