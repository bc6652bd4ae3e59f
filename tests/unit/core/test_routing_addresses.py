"""Addresses of routes: which texts are addresses, and which of them are equal."""

import pytest

from streaming.core.routing.addresses import MAX_ADDRESS_LENGTH, normal_form, transport_address


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        ("tcp://host:4022", "tcp://host:4022"),
        ("TCP://Host2.Adventure-Works.com:4022/", "tcp://host2.adventure-works.com:4022"),
        ("tcp://host:04022", "tcp://host:4022"),
        ("tcp://10.0.0.1:1", "tcp://10.0.0.1:1"),
        ("tcp://[FE80::1]:65535", "tcp://[fe80::1]:65535"),
        ("tcp://my_broker:9092/Shop.eu-1", "tcp://my_broker:9092/Shop.eu-1"),
        ("tcp://h:1/" + "p" * (MAX_ADDRESS_LENGTH - 10), "tcp://h:1/" + "p" * (MAX_ADDRESS_LENGTH - 10)),
    ],
)
def test_a_network_address_has_one_normal_form(address: str, normal: str) -> None:
    assert normal_form(address) == normal


@pytest.mark.parametrize(
    "text",
    [
        *("", "LOCAL", "local", "host:4022", "tcp://host", "tcp://host:", "tcp://:4022", "http://host:4022"),
        *("tcp://host:0", "tcp://host:65536", "tcp://host:123456", "tcp://host:4022/a/b", "tcp://host:4022/a b"),
        *(" tcp://host:4022", "tcp://host:4022\n", "tcp://ho st:4022", "tcp://-host:4022", "tcp://user@host:4022"),
        "tcp://h:1/" + "p" * (MAX_ADDRESS_LENGTH - 9),
    ],
)
def test_other_texts_are_not_addresses(text: str) -> None:
    assert normal_form(text) is None


def test_prefixes_that_differ_in_case_are_different_instances() -> None:
    assert normal_form("tcp://h:1/Shop") != normal_form("tcp://h:1/shop")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("tcp://host1:4022/Stock", "tcp://host1:4022"),
        ("tcp://host1:4022/prefix/Stock", "tcp://host1:4022"),
        ("TCP://Host1:4022", "TCP://Host1:4022"),
        ("tcp://host1/Stock", None),
        ("Stock", None),
        ("//Adventure-Works.com/Expenses", None),
        ("", None),
    ],
)
def test_transport_takes_the_address_from_the_name_of_a_service(name: str, address: str | None) -> None:
    assert transport_address(name) == address
