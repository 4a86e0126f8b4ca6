"""The health state, and the service as `grpcio-health-checking` and raw streams see it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from dataplane.extproc.health import (
    EXT_PROC_SERVICE,
    HealthService,
    HealthState,
    ServingStatus,
    encoded_status,
    requested_service,
)
from dataplane.extproc.server import ServerOptions
from tests.dataplane.extproc.running_server import EchoService, Running, running
from tests.support.waiting import PATIENCE_S

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
READY_NAMES = ["", "readiness", EXT_PROC_SERVICE, "inference-extension"]
OPTIONS = ServerOptions(host="127.0.0.1", port=0)


def test_state_is_ready_when_every_condition_holds_and_it_does_not_drain():
    state = HealthState(["config", "pool"])
    assert (state.is_ready, state.unmet()) == (False, ["config", "pool"])
    state.set("config", True)
    assert (state.is_ready, state.unmet()) == (False, ["pool"])
    state.set("pool", True)
    assert (state.is_ready, state.unmet()) == (True, [])
    state.set("plugins", False)
    assert (state.is_ready, state.unmet()) == (False, ["plugins"])
    state.set("plugins", True)
    state.set_draining()
    assert (state.is_ready, state.unmet()) == (False, ["draining"])


def test_state_tells_its_listeners_of_changes_only_until_they_stop():
    state = HealthState(["a", "b"])
    heard: list[bool] = []
    stop = state.listen(lambda: heard.append(state.is_ready))
    state.set("a", True)
    assert heard == []
    state.set("b", True)
    state.set("b", True)
    state.set("a", False)
    assert heard == [True, False]
    stop()
    stop()
    state.set("a", True)
    state.set_draining()
    assert heard == [True, False]


def test_liveness_does_not_follow_readiness():
    state = HealthState(["never"])
    state.set_draining()
    assert state.status("liveness") is ServingStatus.SERVING
    assert state.status("readiness") is ServingStatus.NOT_SERVING


@given(st.text(max_size=300))
def test_requests_are_read_as_the_protobuf_runtime_writes_them(service: str):
    request = health_pb2.HealthCheckRequest(service=service).SerializeToString()
    assert requested_service(request) == service


@pytest.mark.parametrize("status", list(ServingStatus))
def test_answers_are_read_by_the_protobuf_runtime(status: ServingStatus):
    assert health_pb2.HealthCheckResponse.FromString(encoded_status(status)).status == status


@pytest.mark.parametrize(
    ("extra", "service"),
    [
        (b"\x10\x96\x01", ""),
        (b"\x1a\x03abc", ""),
        (b"\x25abcd\x29abcdefgh\x0a\x01x", "x"),
        (b"\x0a\x01a\x0a\x01b", "b"),
    ],
)
def test_fields_that_are_not_known_are_passed_over(extra: bytes, service: str):
    assert requested_service(extra) == service


@given(st.binary(max_size=60))
def test_noise_is_read_or_refused(noise: bytes):
    with contextlib.suppress(ValueError):
        assert isinstance(requested_service(noise), str)


@pytest.fixture
def state() -> HealthState:
    return HealthState(["pool"])


@pytest.fixture(params=["own port", "shared port"])
def server(request: pytest.FixtureRequest, state: HealthState) -> Iterator[Running]:
    services = dict(HealthService(state).services())
    if request.param == "shared port":
        services |= EchoService().services
    with running(OPTIONS, services, health=state) as found:
        yield found


@pytest.fixture
def channel(server: Running) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target) as found:
        yield found


def check(stub: Any, service: str) -> int:
    return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S).status


def test_check_follows_the_state(server: Running, channel: grpc.Channel, state: HealthState):
    stub = health_pb2_grpc.HealthStub(channel)
    assert [check(stub, name) for name in READY_NAMES] == [NOT_SERVING] * 4
    assert check(stub, "liveness") == SERVING
    server.run(state.set, "pool", True)
    assert [check(stub, name) for name in READY_NAMES] == [SERVING] * 4
    server.run(state.set_draining)
    assert [check(stub, name) for name in READY_NAMES] == [NOT_SERVING] * 4
    assert check(stub, "liveness") == SERVING


def test_check_of_an_unknown_name_is_not_found_and_lists_the_known_ones(channel: grpc.Channel):
    with pytest.raises(grpc.RpcError) as caught:
        check(health_pb2_grpc.HealthStub(channel), "other.Service")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == (
        "unknown service 'other.Service'; known are 'liveness', '', 'readiness', "
        f"'{EXT_PROC_SERVICE}', 'inference-extension'"
    )


def test_list_gives_every_name(server: Running, channel: grpc.Channel, state: HealthState):
    stub = health_pb2_grpc.HealthStub(channel)
    answer = stub.List(health_pb2.HealthListRequest(), timeout=PATIENCE_S)
    statuses = {name: value.status for name, value in answer.statuses.items()}
    assert statuses == {"liveness": SERVING, **dict.fromkeys(READY_NAMES, NOT_SERVING)}


def test_watch_sends_the_status_and_every_change(server: Running, channel: grpc.Channel, state: HealthState):
    stub = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="readiness"), timeout=PATIENCE_S)
    assert next(watch).status == NOT_SERVING
    server.run(state.set, "pool", True)
    assert next(watch).status == SERVING
    server.run(state.set, "pool", True)
    server.run(state.set, "pool", False)
    assert next(watch).status == NOT_SERVING
    watch.cancel()


def test_watch_of_an_unknown_name_says_so_and_stays(
    server: Running, channel: grpc.Channel, state: HealthState
):
    stub = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="other"), timeout=PATIENCE_S)
    assert next(watch).status == SERVICE_UNKNOWN
    server.run(state.set, "pool", True)
    assert watch.is_active()
    watch.cancel()


def test_watch_that_is_cancelled_listens_no_more(server: Running, channel: grpc.Channel, state: HealthState):
    stub = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    assert next(watch).status == NOT_SERVING
    assert server.run(lambda: len(state._listeners)) == 1
    watch.cancel()
    check(stub, "")
    assert server.run(lambda: len(state._listeners)) == 0


@pytest.mark.parametrize("method", ["Check", "Watch"])
@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ([], "no request message"),
        ([b"", b""], "more than one request message"),
        ([b"\x0a\x05abc"], "the request is cut short"),
        ([b"\x0a\x01\xff"], "service is not UTF-8"),
        ([b"\x0b"], "the request is not a HealthCheckRequest"),
        ([b"\xff" * 12], "the request is not a HealthCheckRequest"),
    ],
)
def test_requests_that_are_not_understood(
    channel: grpc.Channel, method: str, requests: list[bytes], reason: str
):
    call = channel.stream_stream(f"/grpc.health.v1.Health/{method}")(iter(requests), timeout=PATIENCE_S)
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, reason)


def test_two_servers_may_show_one_state(state: HealthState):
    services = HealthService(state).services()
    with (
        running(OPTIONS, services) as first,
        running(OPTIONS, services, health=state) as second,
        grpc.insecure_channel(first.target) as channel,
    ):
        second.run(state.set, "pool", True)
        second.call(second.server.drain(0))
        assert check(health_pb2_grpc.HealthStub(channel), "") == NOT_SERVING
