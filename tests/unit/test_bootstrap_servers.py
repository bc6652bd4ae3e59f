"""The forms of bootstrap servers that Kafka's clients take."""

import socket
from pathlib import Path

import pytest

from streaming.cli.routing.explained_routes import instance_of, read_json
from streaming.kafka.bootstrap_servers import listening, own_addresses
from streaming.wire.service_definitions import cases_decoder


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("kafka:9092", ["tcp://kafka:9092"]),
        ("a:1, b:2,", ["tcp://a:1", "tcp://b:2"]),
        ("PLAINTEXT://kafka:9092,SASL_SSL://b:2/", ["tcp://kafka:9092", "tcp://b:2"]),
        ("kafka.example.:9092", ["tcp://kafka.example:9092"]),
        ("[fe80::1%eth0]:9092,[::1]:1", ["tcp://[fe80::1]:9092", "tcp://[::1]:1"]),
        ("kafka,SSL://[::1]", ["tcp://kafka:9092", "tcp://[::1]:9092"]),
        ("no such form:x", []),
    ],
)
@pytest.mark.parametrize("prefix", ["", "p-"])
def test_each_form_that_the_client_takes_gives_a_valid_address(servers: str, addresses: list[str], prefix: str) -> None:
    suffix = f"/{prefix}" if prefix else ""
    found = own_addresses(servers, prefix)
    assert found == [f"{address}{suffix}" for address in addresses]
    assert len(instance_of(found, False).addresses) == len(addresses), "an option that nobody gave has no error"


@pytest.mark.parametrize("form", ["127.0.0.1:{port}", "127.0.0.1:1,PLAINTEXT://localhost:{port}"])
def test_a_server_that_accepts_connections_is_found(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listening(form.format(port=port)) == form.format(port=port).split("/")[-1]
    assert listening(form.format(port=port)) is None


def test_an_address_that_is_invalid_is_not_asked() -> None:
    assert listening("kafka:port,[::1,") is None


def test_a_json_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text("\ufeff[]", encoding="utf-8")
    assert read_json(tmp_path / "cases.json", cases_decoder) == []
