"""One file of Kafka properties for Java's clients and librdkafka's."""

from pathlib import Path

import pytest

from streaming import kafka_config
from streaming.errors import UserError

JAAS = r'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a=\"b\" c";'


def load(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    return kafka_config.load(path)


def test_no_file_has_no_properties() -> None:
    assert kafka_config.load(None) == {}


def test_comments_blank_lines_and_equals_signs(tmp_path: Path) -> None:
    text = "# a comment\n\n  ! another\nsecurity.protocol = SASL_SSL \nsasl.jaas.config=x=y\nempty=\n"
    assert load(tmp_path / "file", text) == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "x=y",
        "empty": "",
    }


@pytest.mark.parametrize("line", ["security.protocol", "=SSL"])
def test_a_line_that_is_no_property_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match="file, line 2: write name=value"):
        load(tmp_path / "file", f"a=b\n{line}\n")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the Kafka properties"):
        kafka_config.load(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot read the Kafka properties"):
        kafka_config.load(tmp_path / "binary")


def test_in_the_words_of_librdkafka() -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.password": "secret",
    }
    assert kafka_config.for_librdkafka(properties) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "ssl.ca.location": "/ca.pem",
    }


def test_user_and_password_come_from_jaas() -> None:
    config = kafka_config.for_librdkafka({"sasl.jaas.config": JAAS})
    assert config == {"sasl.username": "me", "sasl.password": 'a="b" c'}


def test_a_java_key_store_is_refused() -> None:
    with pytest.raises(UserError, match="PEM"):
        kafka_config.for_librdkafka({"ssl.truststore.type": "JKS"})
