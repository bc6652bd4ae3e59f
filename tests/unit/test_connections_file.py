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


def test_a_wrong_file_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "connections.toml"
    file.write_text('[[connections]]\naddress = "tcp://a:1"\n')
    with pytest.raises(UserError, match="kafka_config"):
        clusters(file, OWN, properties_of)
