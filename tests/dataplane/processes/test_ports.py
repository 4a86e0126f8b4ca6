"""Ports that are free, and none twice."""

import random
import socket

import pytest

from dataplane.errors import ConfigError
from dataplane.processes.ports import Ports, is_free


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_free_port_is_never_one_in_use(monkeypatch: pytest.MonkeyPatch, taken_port: int):
    monkeypatch.setattr("dataplane.processes.ports.FREE_PORTS", range(taken_port, taken_port + 1))
    monkeypatch.setattr("dataplane.processes.ports.FREE_PORT_TRIES", 1)
    with pytest.raises(ConfigError, match="no free port"):
        Ports(random.Random(1))(0, "gateway.port")
    assert not is_free("127.0.0.1", taken_port)


def all_of(ports: Ports) -> set[int]:
    """Every port it can still choose."""
    found = set()
    while True:
        try:
            found.add(ports(0, "port"))
        except ConfigError:
            return found


def test_what_one_run_has_chosen_no_other_chooses_until_it_lets_go(monkeypatch: pytest.MonkeyPatch):
    one, other = Ports(random.SystemRandom()), Ports(random.SystemRandom())
    first, second = one(0, "a"), one(0, "b")
    monkeypatch.setattr("dataplane.processes.ports.FREE_PORTS", range(first, first + 1))
    assert all_of(other) == set()
    with pytest.raises(ConfigError, match=f"^c: port {first} is in use; configure another"):
        other(first, "c")
    monkeypatch.setattr("dataplane.processes.ports.FREE_PORTS", range(second, second + 1))
    assert all_of(other) == set()
    one.release(second)
    assert other.again(second, "d") == second
    assert all_of(one) == set()
    monkeypatch.setattr("dataplane.processes.ports.FREE_PORTS", range(first, first + 1))
    del one
    assert all_of(other) == {first}


def test_a_port_of_the_last_time_is_chosen_again_if_it_can_be_had(taken_port: int):
    ports = Ports(random.SystemRandom())
    kept = ports(0, "a")
    ports.release(kept)
    assert ports.again(kept, "a") == kept
    others = {ports.again(kept, "b"), ports.again(taken_port, "c"), ports.again(0, "d")}
    assert len(others - {kept, taken_port}) == 3
