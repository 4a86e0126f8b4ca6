"""The websocket of a control plane that runs as a process."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import redis
from websockets.sync.client import connect

from dataplane.telemetry.summary import FIELD, STREAM
from tests.support.controlplane_command import Command, serving
from tests.support.telemetry import summary

pytestmark = pytest.mark.integration


def test_a_program_watches_a_pool(tmp_path: Path, valkey: str) -> None:
    command = Command(tmp_path)
    command.environment["VALKEY_URL"] = valkey
    with redis.Redis.from_url(valkey) as bus, serving(command, tmp_path / "log") as served:
        bus.xadd(STREAM, {FIELD: msgspec.json.encode(summary("w1"))})
        url = served.environment["POINTSMAN_URL"].replace("http://", "ws://")
        token = {"Authorization": f"Bearer {served.environment['POINTSMAN_TOKEN']}"}
        with connect(f"{url}/ws/telemetry", additional_headers=token) as socket:
            assert json.loads(socket.recv(10))["pools"]["pool"]["point"]["requestsPerS"] == 10.0
            bus.xadd(STREAM, {FIELD: msgspec.json.encode(summary("w1", requests=20))})
            said = [json.loads(socket.recv(10))["pools"] for _ in range(3)]
        (news,) = [pools["pool"] for pools in said if pools]
        assert news["point"]["requestsPerS"] == 20.0
