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
