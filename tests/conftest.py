"""What holds for every test: noise of the machine fails none of them, and none of them leaves the machine.

Hypothesis may take its time: nothing asserts on elapsed time. Connections of this process go to loopback or
to a Unix socket; anything else is a mistake in the test, told at once instead of after a timeout.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.postgres", "tests.support.valkey"]

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def stays_here(address: Any) -> bool:
    """Tell whether a socket address is of this machine; a host name other than `localhost` is not."""
    if not isinstance(address, tuple):
        return True  # a Unix socket's path
    host = str(address[0]).partition("%")[0]
    try:
        known = ipaddress.ip_address(host)
    except ValueError:
        return host in {"", "localhost"}
    return known.is_loopback or known.is_unspecified


def guarded(connect: Callable[..., Any]) -> Callable[..., Any]:
    """`connect`, but for addresses of this machine only."""

    def connect_here(self: socket.socket, address: Any) -> Any:
        if not stays_here(address):
            raise AssertionError(f"a test connects to {address}; use a loopback address")
        return connect(self, address)

    return connect_here


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let modules with processes of their own come first, those of a folder one after another.

    Each of two processes of tests begins with a half of the list, and takes from the other's when it is done:
    so one waits for processes while the other computes, nobody ends with the longest test, and what a folder
    shares is built once.
    """
    folders: dict[Path, int] = {}
    ranks: dict[Path, int] = {}
    for item in items:
        folders.setdefault(item.path.parent, len(folders))
        is_long = any(item.get_closest_marker(name) for name in ("integration", "slow"))
        ranks[item.path] = max(ranks.get(item.path, 0), int(is_long))
    items.sort(key=lambda item: (1, 0) if not ranks[item.path] else (0, folders[item.path.parent]))


@pytest.fixture(scope="session", autouse=True)
def loopback_only() -> Iterator[None]:
    """Refuse connections to other machines for the whole run."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        yield
