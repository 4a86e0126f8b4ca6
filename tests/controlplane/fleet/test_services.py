"""Pools and endpoint lists: what is accepted, what is refused with which words, and what comes back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controlplane.core.documents import apply, export
from controlplane.core.errors import ConflictError, InvalidError
from controlplane.core.models import AuditEntry
from controlplane.fleet.models import EndpointList, InferencePool
from controlplane.fleet.services import EndpointListService, PoolService
from tests.support.controlplane import ENDPOINTS, EXAMPLES, OPERATOR, POOL, VIEWER

pytestmark = pytest.mark.django_db

POOLS, LISTS = PoolService(), EndpointListService()
PORT_NEEDED = "port is required when kind is 'Service' or unspecified (defaults to 'Service')"


def pool(**spec: Any) -> dict[str, Any]:
    """A pool as Kubernetes has it; None takes a field away."""
    fields = {"selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": 8000}]} | spec
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "pool"},
        "spec": {name: value for name, value in fields.items() if value is not None},
    }


def ports(*numbers: int) -> list[dict[str, int]]:
    return [{"number": number} for number in numbers]


def listed(*endpoints: Any, **spec: Any) -> dict[str, Any]:
    document = copy.deepcopy(ENDPOINTS)
    document["spec"] = {"poolRef": {"name": "pool"}, "endpoints": list(endpoints)} | spec
    return document


def refusal(service: Any, document: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        service.create(OPERATOR, document)
    assert not service.model.objects.exists()
    assert not AuditEntry.objects.exists()
    return [f"{detail.path}: {detail.message}" for detail in caught.value.details]


def test_a_minimal_pool_gets_the_defaults_of_its_kind() -> None:
    row = POOLS.create(OPERATOR, pool(endpointPickerRef={"name": "epp", "port": {"number": 9002}}))
    assert POOLS.document(row)["spec"] == {
        "selector": {"matchLabels": {"app": "vllm"}},
        "targetPorts": [{"number": 8000}],
        "appProtocol": "http",
        "endpointPickerRef": {
            "kind": "Service",
            "name": "epp",
            "port": {"number": 9002},
            "failureMode": "FailClose",
        },
    }
    assert POOLS.document(row)["apiVersion"] == "inference.networking.k8s.io/v1"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"appProtocol": "kubernetes.io/h2c"}, id="h2c"),
        pytest.param({"endpointPickerRef": {"kind": "Foo", "name": "epp"}}, id="other kind, no port"),
        pytest.param({"targetPorts": ports(8000, 80, 8081, 443)}, id="four ports"),
        pytest.param({"targetPorts": ports(*range(1, 9))}, id="eight ports"),
        pytest.param({"selector": {"matchLabels": {"app": ""}}}, id="empty value"),
        pytest.param({"selector": {"matchLabels": {"a.b/app": "v" * 63}}}, id="longest value"),
        pytest.param({"selector": {"matchLabels": {f"l{n}": "v" for n in range(64)}}}, id="64 labels"),
        pytest.param({"endpointPickerRef": None}, id="no picker"),
    ],
)
def test_pools_that_kubernetes_takes_are_taken(spec: dict[str, Any]) -> None:
    document = pool(**spec)
    row = POOLS.create(OPERATOR, document)
    shown = POOLS.document(row)["spec"]
    assert {name: shown[name] for name in document["spec"] if name != "endpointPickerRef"} == {
        name: value for name, value in document["spec"].items() if name != "endpointPickerRef"
    }


MODEL = "^[A-Za-z0-9][-A-Za-z0-9._:/]{0,252}$"
LABEL = "must be at most 63 letters, digits, -, _ and ., with a letter or digit at both ends"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"appProtocol": "https"},
            "spec.appProtocol: must be one of http, kubernetes.io/h2c; got 'https' (did you mean \"http\"?)",
        ),
        ({"endpointPickerRef": {"name": "epp"}}, f"spec.endpointPickerRef.port: {PORT_NEEDED}"),
        (
            {"endpointPickerRef": {"name": "epp", "kind": "Service"}},
            f"spec.endpointPickerRef.port: {PORT_NEEDED}",
        ),
        (
            {"endpointPickerRef": {"name": "epp", "kind": "9x"}},
            "spec.endpointPickerRef.kind: must be a kind: at most 63 letters, digits and -, a letter first",
        ),
        (
            {"endpointPickerRef": {"name": "epp", "kind": "Foo", "failureMode": "Maybe"}},
            "spec.endpointPickerRef.failureMode: must be one of FailOpen, FailClose; got 'Maybe'",
        ),
        ({"targetPorts": ports(8000, 80, 8000)}, "spec.targetPorts: port number must be unique"),
        ({"targetPorts": []}, "spec.targetPorts: must list 1 to 8 ports"),
        ({"targetPorts": ports(*range(1, 10))}, "spec.targetPorts: must list 1 to 8 ports"),
        ({"targetPorts": ports(0)}, "spec.targetPorts[0].number: expected int >= 1"),
        ({"targetPorts": ports(65536)}, "spec.targetPorts[0].number: expected int <= 65535"),
        ({"targetPorts": None}, "spec.targetPorts: is required"),
        ({"selector": None}, "spec.selector: is required"),
        ({"selector": {"matchLabels": {}}}, "spec.selector.matchLabels: has 0 labels; give 1 to 64"),
        (
            {"selector": {"matchLabels": {f"l{n}": "v" for n in range(65)}}},
            "spec.selector.matchLabels: has 65 labels; give 1 to 64",
        ),
        ({"selector": {"matchLabels": {"app": "v" * 64}}}, f"spec.selector.matchLabels.app: {LABEL}"),
        ({"selector": {"matchLabels": {"app": "-v"}}}, f"spec.selector.matchLabels.app: {LABEL}"),
        (
            {"selector": {"matchLabels": {"/app": "v"}}},
            "spec.selector.matchLabels./app: is no label; write name or domain/name",
        ),
        ({"driver": {"type": "local"}}, "spec.driver: needs apiVersion pointsman.dev/v1"),
    ],
)
def test_pools_that_kubernetes_refuses_are_refused(spec: dict[str, Any], expected: str) -> None:
    assert expected in refusal(POOLS, pool(**spec))


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ({}, "spec.driver.type: is required"),
        ({"type": "cloud"}, "spec.driver.type: must be one of local; got 'cloud'"),
        (
            {"type": "local", "ports": {"grpc": 9000, "health": 9000}},
            "spec.driver.ports: names a port twice; each needs its own",
        ),
        (
            {"type": "local", "simulated": {"replicas": 65}},
            "spec.driver.simulated.replicas: expected int <= 64",
        ),
        (
            {"type": "local", "simulated": {"profile": "/etc/passwd"}},
            "spec.driver.simulated.profile: expected str matching regex '^[a-z0-9][-a-z0-9]{0,62}$'",
        ),
        (
            {"type": "local", "simulated": {"models": ["--port"]}},
            f"spec.driver.simulated.models[0]: expected str matching regex '{MODEL}'",
        ),
    ],
)
def test_drivers_are_judged(driver: dict[str, Any], expected: str) -> None:
    document = copy.deepcopy(POOL)
    document["spec"]["driver"] = driver
    assert refusal(POOLS, document) == [expected]


def test_endpoint_lists_are_judged_as_pickers_judge_them() -> None:
    wrong = listed(
        {"name": "a", "address": "10.0.0.1", "port": 0, "rnks": 2},
        {"name": "b", "address": "10.0.0.2"},
        {"name": "c", "address": "10.0.0.2"},
        {"name": "b", "address": "10.0.0.3"},
        {"name": "d", "address": "300.0.0.1"},
        resolve={"interval": "1ms"},
    )
    assert refusal(LISTS, wrong) == [
        "spec.resolve.interval: 0.001s is out of range; use 1s to 1h",
        'spec.endpoints[0].rnks: unknown field (did you mean "ranks"?)',
        "spec.endpoints[0].port: 0 is not a port; use 1 to 65535",
        "spec.endpoints[4].address: '300.0.0.1' is not an IPv4 or IPv6 address nor a host name",
        "spec.endpoints[2]: left out, endpoints[1] has the same address 10.0.0.2:8000",
        "spec.endpoints[3]: left out, endpoints[1] has the same endpoint default/b",
    ]
    assert refusal(LISTS, listed(3)) == ["spec.endpoints[0]: expected object, got int"]


def test_a_list_too_large_for_a_picker_is_refused() -> None:
    entry = {"address": "10.0.0.1", "annotations": {"note": "x" * 4000}}
    entries = [entry | {"name": f"e{n}", "port": 1000 + n} for n in range(300)]
    assert refusal(LISTS, listed(*entries)) == [
        "spec.endpoints: is larger than 1048576 bytes, the most a picker reads"
    ]


def test_everything_comes_back_as_it_went_in() -> None:
    apply(OPERATOR, list(EXAMPLES.values()))
    assert export(VIEWER) == list(EXAMPLES.values())
    assert {step.action for step in apply(OPERATOR, export(VIEWER), dry_run=True).steps} == {"unchanged"}


def test_a_pool_is_kept_while_lists_name_it() -> None:
    apply(OPERATOR, [POOL, ENDPOINTS])
    with pytest.raises(ConflictError, match="is named by EndpointList rack-1; delete these first"):
        POOLS.delete(OPERATOR, "pool")
    assert InferencePool.objects.count() == 1
    LISTS.delete(OPERATOR, "rack-1")
    POOLS.delete(OPERATOR, "pool")
    assert not InferencePool.objects.exists()
    assert not EndpointList.objects.exists()
