"""One file of Kafka properties for Java's clients and librdkafka's."""

import ssl
from pathlib import Path
from typing import ClassVar

import pytest

from streaming.errors import UserError
from streaming.kafka import client_properties
from streaming.kafka.clients import Cluster
from tests.support.command_lines import ROOT

JAAS = r'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a=\"b\" c";'


def load(path: Path, text: str) -> dict[str, str]:
    path.write_text(text, encoding="utf-8", newline="")
    return client_properties.load(path)


def test_no_file_has_no_properties() -> None:
    assert client_properties.load(None) == {}


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
    with pytest.raises(UserError, match="Cannot read the Kafka properties") as refused:
        client_properties.load(tmp_path / "missing")
    assert str(refused.value).count("missing") == 1
    assert "Errno" not in str(refused.value)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="Cannot read the Kafka properties"):
        client_properties.load(tmp_path / "binary")


def test_javas_names_become_those_of_librdkafka() -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.password": "secret",
    }
    assert client_properties.for_librdkafka(properties) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "ssl.ca.location": "/ca.pem",
    }


def test_user_and_password_come_from_jaas() -> None:
    config = client_properties.for_librdkafka({"sasl.jaas.config": JAAS})
    assert config == {"sasl.username": "me", "sasl.password": 'a="b" c'}


@pytest.mark.parametrize(
    "properties",
    [
        {"ssl.truststore.type": "JKS"},
        {"ssl.truststore.location": "/ca.pem"},  # Java's default type is not PEM
        {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "pem"},  # Java knows PEM only in capitals
        {"ssl.keystore.location": "/me.p12", "ssl.keystore.type": "PKCS12"},
    ],
)
def test_what_java_or_librdkafka_would_not_read_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"Set ssl\.(trust|key)store\.type=PEM"):
        client_properties.for_librdkafka(properties)


def test_a_client_certificate_and_no_check_of_names() -> None:
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert client_properties.for_librdkafka(properties) == {
        "ssl.key.location": "/me.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_javas_escapes(tmp_path: Path) -> None:
    text = "a=1 \\\n   2\nb=\\\\ \\t\\u00e9\\x\nc=ends with \\\\\nd=4\n"
    assert load(tmp_path / "file", text) == {"a": "1 2", "b": "\\ \té" + "x", "c": "ends with \\", "d": "4"}


def test_a_backslash_in_a_password_is_escaped_for_java_and_for_jaas(tmp_path: Path) -> None:
    line = r'sasl.jaas.config=x.LoginModule required username="me" password="a\\\\b\\\"c";'
    assert client_properties.for_librdkafka(load(tmp_path / "file", line))["sasl.password"] == r'a\b"c'


@pytest.mark.parametrize(
    ("name", "mode", "is_exposed"),
    [
        ("sasl.jaas.config", 0o600, False),
        ("sasl.jaas.config", 0o640, True),
        ("ssl.key.password", 0o604, True),
        ("security.protocol", 0o644, False),
    ],
)
def test_a_file_with_credentials_that_others_can_read(tmp_path: Path, name: str, mode: int, is_exposed: bool) -> None:
    path = tmp_path / "file"
    properties = load(path, f"{name}=x\n")
    path.chmod(mode)
    warning = client_properties.exposure(path, properties)
    assert (warning is not None) == is_exposed
    assert warning is None or f"chmod 600 {path}" in warning


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("# keys are in C:\\\na=b\n", {"a": "b"}),
        ("  ! a comment \\\r\na=b\r\n", {"a": "b"}),
        ("a=b\\\n# c\n", {"a": "b# c"}),
        ("a=b\\\n\nc=d\n", {"a": "b", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=b \\\r\n  c\r\n", {"a": "b c"}),
        ("\ufeffa=b\n", {"a": "b"}),
        ("\ufeff# a comment\na=b\n", {"a": "b"}),
        ("a=b\u0085c\u2028d\u2029e\x0bf\x1cg\n", {"a": "b\u0085c\u2028d\u2029e\x0bf\x1cg"}),
        ("a=\u0085b\xa0\n", {"a": "\u0085b\xa0"}),
        ("a:b=c\nd e:f\n  g\t=\fh\f\n", {"a": "b=c", "d": "e:f", "g": "h"}),
        ("a\\.b\\ c\\:=d\n", {"a.b c:": "d"}),
        ("a=\\ud83d\\ude00\n", {"a": "\U0001f600"}),
    ],
)
def test_a_file_is_read_as_java_reads_it(tmp_path: Path, text: str, properties: dict[str, str]) -> None:
    assert load(tmp_path / "file", text) == properties


@pytest.mark.parametrize("value", ["\\u00", "\\uzzzz", "\\ud83d"])
def test_an_escape_that_is_no_character_is_named(tmp_path: Path, value: str) -> None:
    with pytest.raises(UserError, match="file, line 2"):
        load(tmp_path / "file", f"\na={value}\n")


@pytest.mark.parametrize(
    ("options", "user", "password"),
    [
        ("username='u' password='p\"q\\'r'", "u", "p\"q'r"),
        ("username=u-1.x password=p_$2", "u-1.x", "p_$2"),
        ('password="p" username = "u"', "u", "p"),
        ('username="u" password="x username=\'no\' y"', "u", "x username='no' y"),
        ('username="u" /* password="no" */ password="p" // username="no"\n', "u", "p"),
        ('user_a="no" other.username="no" username="u" password="\\t\\101\\z"', "u", "\tAz"),
    ],
)
def test_jaas_is_read_as_java_reads_it(options: str, user: str, password: str) -> None:
    config = client_properties.for_librdkafka({"sasl.jaas.config": f"a.b.PlainLoginModule required {options};"})
    assert config == {"sasl.username": user, "sasl.password": password}


class TestForKafkaPython:
    """kafka-python looks at consumer groups. It gets its properties from those of librdkafka."""

    KEYSTORE = ROOT / "tests" / "support" / "keystore.pem"
    LOGIN: ClassVar = {"security.protocol": "sasl_plaintext", "sasl.username": "me", "sasl.password": "secret"}
    TLS: ClassVar = {"security.protocol": "SSL"}

    def test_it_gets_only_what_it_needs(self) -> None:
        assert client_properties.for_kafka_python({"client.id": "x", "socket.timeout.ms": "1000"}) == {
            "security_protocol": "PLAINTEXT",
            "client_id": "x",
        }

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_a_login_with_user_and_password(self, mechanism: str) -> None:
        assert client_properties.for_kafka_python({**self.LOGIN, "sasl.mechanisms": mechanism}) == {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "me",
            "sasl_plain_password": "secret",
        }

    @pytest.mark.parametrize("properties", [{}, {"sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}])
    def test_another_login_is_refused(self, properties: dict[str, str]) -> None:
        mechanism = properties.get("sasl.mechanisms", "GSSAPI")  # librdkafka's default, and Java's
        with pytest.raises(
            UserError, match=f"sasl.mechanism={mechanism}. Give them a file .* with one of PLAIN, SCRAM-"
        ):
            client_properties.for_kafka_python(self.LOGIN | properties)

    def test_brokers_are_checked_unless_the_properties_say_otherwise(self) -> None:
        def context(**properties: str) -> tuple[bool, ssl.VerifyMode]:
            more = {name.replace("_", "."): value for name, value in properties.items()}
            found = client_properties.for_kafka_python(self.TLS | more)["ssl_context"]
            return found.check_hostname, found.verify_mode

        assert context() == (True, ssl.CERT_REQUIRED)
        assert context(ssl_ca_location="probe") == (True, ssl.CERT_REQUIRED)
        assert context(ssl_endpoint_identification_algorithm="none") == (False, ssl.CERT_REQUIRED)
        assert context(enable_ssl_certificate_verification="false") == (False, ssl.CERT_NONE)

    def test_certificates_may_be_in_a_file_in_a_folder_or_in_the_properties(self) -> None:
        text = self.KEYSTORE.read_text()
        pem = text[text.index("-----BEGIN CERTIFICATE") :]
        for own, count in (
            ({"ssl.ca.location": str(self.KEYSTORE)}, 1),
            ({"ssl.ca.pem": pem}, 1),
            ({"ssl.ca.location": str(self.KEYSTORE.parent)}, 0),  # loaded when they are needed
        ):
            context = client_properties.for_kafka_python(self.TLS | own)["ssl_context"]
            assert len(context.get_ca_certs()) == count

    def test_a_client_certificate_with_its_key_in_one_file(self) -> None:
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.KEYSTORE)}
        config = client_properties.for_librdkafka({**self.TLS, **own, "ssl.key.password": "of a test"})
        assert client_properties.for_kafka_python(config)["ssl_context"]
        del config["ssl.key.password"]
        with pytest.raises(UserError, match=r"keystore\.pem: this certificate or key cannot be used"):
            client_properties.for_kafka_python(config)

    @pytest.mark.parametrize("properties", [{"ssl.ca.location": "/missing.pem"}, {"ssl.ca.pem": "nonsense"}])
    def test_what_cannot_be_read_is_named(self, properties: dict[str, str]) -> None:
        with pytest.raises(UserError, match=r"(/missing|ssl\.ca)\.pem: this certificate or key cannot be used"):
            client_properties.for_kafka_python(self.TLS | properties)

    def test_what_python_cannot_do_for_tls_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"look at consumer groups do not know the property ssl\.sigalgs\.list"):
            client_properties.for_kafka_python(self.TLS | {"ssl.sigalgs.list": "x"})


@pytest.mark.parametrize("group_id", ["", " ", "\n\t", "\0g"])
def test_a_group_that_is_blank_for_the_client_is_refused_before_it_ends_the_process(group_id: str) -> None:
    with pytest.raises(UserError, match="is no name of a consumer group"):
        Cluster("127.0.0.1:1").consumer({"group.id": group_id})
