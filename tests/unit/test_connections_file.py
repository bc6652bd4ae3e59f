"""The file of `transport --connections`."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from streaming.daemons.transport.connections_file import clusters
from streaming.errors import UserError
from streaming.kafka.clients import Cluster

OWN = Cluster("own:9092", {"security.protocol": "plaintext"})
FILE = """
[[connections]]
address = "tcp://south.*"
kafka_config = "south.properties"

[[connections]]
address = "tcp://*"
kafka_config = "others.properties"
"""


def properties_of(path: Path) -> Mapping[str, str]:
    return {"file": str(path)}


def test_without_a_file_other_instances_have_the_own_properties() -> None:
    assert clusters(None, OWN, properties_of)("tcp://far:1/p") == Cluster("far:1", OWN.config)


def test_the_first_entry_that_matches_counts_and_its_file_is_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "connections.toml"
    file.write_text(FILE)
    cluster_of = clusters(file, OWN, properties_of)
    south, north = cluster_of("tcp://south.example:1"), cluster_of("tcp://north:2")
    assert south == Cluster("south.example:1", {"file": str(tmp_path / "south.properties")})
    assert north == Cluster("north:2", {"file": str(tmp_path / "others.properties")})


def test_an_address_that_no_entry_matches_has_the_own_properties(tmp_path: Path) -> None:
    file = tmp_path / "connections.toml"
    file.write_text(FILE.split("[[connections]]")[1].join(["[[connections]]", ""]))
    assert clusters(file, OWN, properties_of)("tcp://north:2").config == OWN.config


def test_secrets_go_only_to_the_own_cluster_and_to_addresses_that_the_file_names(tmp_path: Path) -> None:
    file = tmp_path / "connections.toml"
    file.write_text(FILE.split("[[connections]]")[1].join(["[[connections]]", ""]))
    own = Cluster("own:9092,other:9092", {"sasl.password": "secret"})
    cluster_of = clusters(file, own, properties_of)
    assert cluster_of("tcp://Other:9092/p").config == own.config
    assert cluster_of("TCP://South.example:1").config == {"file": str(tmp_path / "south.properties")}
    for secret in ("sasl.jaas.config", "ssl.key.location", "ssl.keystore.location"):
        with pytest.raises(UserError, match="No entry of --connections is for tcp://north:2"):
            clusters(None, Cluster("own:9092", {secret: "s"}), properties_of)("tcp://north:2")


def test_patterns_are_compared_as_addresses_are(tmp_path: Path) -> None:
    file = tmp_path / "connections.toml"
    file.write_text('[[connections]]\naddress = "tcp://South:*/Shop-"\nkafka_config = "f"\n')
    cluster_of = clusters(file, Cluster("own:9092", {"sasl.password": "s"}), properties_of)
    assert cluster_of("tcp://sOUTH:01/Shop-").config == {"file": str(tmp_path / "f")}
    with pytest.raises(UserError):
        cluster_of("tcp://south:1/shop-")


@pytest.mark.parametrize(
    ("pattern", "address"),
    [
        ("tcp://[::1]:9092", "tcp://[::1]:9092"),
        ("tcp://[2001:DB8::5]:*", "tcp://[2001:db8::5]:9092/p-"),
        ("tcp://[2001:*", "tcp://[2001:db8::5]:9092"),
        ("tcp://FAR:09092", "tcp://far:9092"),
        ("TCP://far:9092/", "tcp://far:9092"),
        ("tcp://far:9092", "tcp://far:9092/"),
        ("tcp://far:9092/*", "tcp://far:9092"),
        ("tcp://far:9092/*", "tcp://far:9092/p-"),
        ("tcp://*", "tcp://far:9092/p-"),
    ],
)
def test_every_form_of_an_address_matches(tmp_path: Path, pattern: str, address: str) -> None:
    file = tmp_path / "connections.toml"
    file.write_text(f'[[connections]]\naddress = "{pattern}"\nkafka_config = "f"\n')
    cluster_of = clusters(file, Cluster("own:9092", {"sasl.password": "s"}), properties_of)
    assert cluster_of(address).config == {"file": str(tmp_path / "f")}


def test_the_brackets_of_an_address_are_no_set_of_characters(tmp_path: Path) -> None:
    file = tmp_path / "connections.toml"
    file.write_text('[[connections]]\naddress = "tcp://[ab]:1"\nkafka_config = "f"\n')
    with pytest.raises(UserError):
        clusters(file, Cluster("own:9092", {"sasl.password": "s"}), properties_of)("tcp://a:1")


def test_a_wrong_file_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "connections.toml"
    file.write_text('[[connections]]\naddress = "tcp://a:1"\n')
    with pytest.raises(UserError, match="kafka_config"):
        clusters(file, OWN, properties_of)


def test_the_own_cluster_is_known_in_each_form_of_a_bootstrap_server() -> None:
    own = Cluster("SASL_SSL://own:9092, other:9092", {"sasl.password": "secret"})
    assert clusters(None, own, properties_of)("tcp://own:9092").config == own.config
    assert clusters(None, own, properties_of)("tcp://other:9092").config == own.config
