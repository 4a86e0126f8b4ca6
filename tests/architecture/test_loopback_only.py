"""No test leaves the machine: the guard of `tests/conftest.py` is in place."""

import asyncio
import socket

import pytest


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, ("192.0.2.1", 80)),
        (socket.AF_INET, ("example.invalid", 80)),
        (socket.AF_INET6, ("2001:db8::1", 80, 0, 0)),
    ],
    ids=["IPv4", "name", "IPv6"],
)
def test_connection_to_another_machine_is_a_failure_of_the_test(family: int, address: tuple[object, ...]):
    with socket.socket(family) as client:
        for connect in (client.connect, client.connect_ex):
            with pytest.raises(AssertionError, match="use a loopback address"):
                connect(address)


async def test_asyncio_is_held_to_it_as_well():
    with pytest.raises(AssertionError, match="use a loopback address"):
        await asyncio.open_connection("192.0.2.1", 80)


def test_loopback_can_be_connected_to():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert client.getpeername() == server.getsockname()
