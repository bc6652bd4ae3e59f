"""Ports for servers: no program that names none can get the port of a server that has ended."""

import socket
from pathlib import Path

from streaming.system.ports import HOST, bind_free

_GIVEN_BY_LINUX = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_server_gets_a_free_port_that_no_other_program_gets_by_chance() -> None:
    first_given = int(_GIVEN_BY_LINUX.read_text().split()[0])
    with socket.socket() as one, socket.socket() as other:
        ports = {bind_free(one), bind_free(other)}
        assert len(ports) == 2
        assert max(ports) < max(first_given, 32_768)
        assert one.getsockname()[0] == HOST
