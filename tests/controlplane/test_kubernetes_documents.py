"""Documents as Kubernetes servers and ``kubectl get`` print them are taken as they are, by every door."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml

from controlplane.core.documents import apply, export
from controlplane.core.errors import InvalidError, StaleError
from controlplane.core.kinds import KINDS
from controlplane.core.models import AuditEntry
from tests.support.controlplane import (
    OBJECTIVE,
    OPERATOR,
    PICKER_CONFIG,
    PROCESSOR,
    REWRITE,
    VIEWER,
    client,
    objective,
)

pytestmark = pytest.mark.django_db

LEGACY = "inference.networking.x-k8s.io/v1alpha2"
K8S_POOL: dict[str, Any] = {
    "apiVersion": "inference.networking.k8s.io/v1",
    "kind": "InferencePool",
    "metadata": {"name": "pool"},
    "spec": {
        "appProtocol": "http",
        "endpointPickerRef": {
            "failureMode": "FailOpen",
            "group": "",
            "kind": "Service",
            "name": "epp",
            "port": {"number": 9002},
        },
        "selector": {"matchLabels": {"app": "vllm", "llm-d.ai/role": ""}},
        "targetPorts": [{"number": 8000}, {"number": 8001}],
    },
}
POOL_STATUS: dict[str, Any] = {
    "parents": [
        {
            "conditions": [
                {
                    "lastTransitionTime": "2026-03-01T10:00:00Z",
                    "message": "InferencePool has been accepted",
                    "observedGeneration": 2,
                    "reason": "Accepted",
                    "status": "True",
                    "type": "Accepted",
                }
            ],
            "controllerName": "istio.io/inference-pool-controller",
            "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gateway"},
        }
    ]
}
WAITING: dict[str, Any] = {
    "conditions": [
        {
            "lastTransitionTime": "1970-01-01T00:00:00Z",
            "message": "Waiting for controller",
            "reason": "Pending",
            "status": "Unknown",
            "type": "Ready",
        }
    ]
}
PLAIN = {each["kind"]: each for each in (K8S_POOL, OBJECTIVE, REWRITE, PICKER_CONFIG, PROCESSOR)}
OF_CLUSTERS = ("InferencePool", "InferenceObjective", "InferenceModelRewrite")


def printed(
    document: dict[str, Any], *, made: str = "2026-03-01T09:59:58Z", **changes: Any
) -> dict[str, Any]:
    """The document with all that a Kubernetes server adds to it."""
    found = copy.deepcopy(document) | changes
    name = found["metadata"]["name"]
    found["metadata"] |= {
        "annotations": {
            **found["metadata"].get("annotations", {}),
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps(document) + "\n",
            "meta.helm.sh/release-name": "llm-d",
        },
        "creationTimestamp": made,
        "deletionGracePeriodSeconds": 0,
        "finalizers": ["example.com/finalizer"],
        "generateName": "x-",
        "generation": 2,
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "managedFields": [
            {
                "apiVersion": found["apiVersion"],
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {".": {}, "f:targetPorts": {}}},
                "manager": "kubectl-client-side-apply",
                "operation": "Update",
                "time": made,
            }
        ],
        "namespace": "serving",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "8c1a", "controller": True}
        ],
        "resourceVersion": "884512",
        "selfLink": f"/apis/{found['apiVersion']}/namespaces/serving/x/{name}",
        "uid": "2c5e7c0a-8d33-4f5e-9f9c-1f3b6f0f5b11",
    }
    if found["kind"] in OF_CLUSTERS:
        found["status"] = POOL_STATUS if found["kind"] == "InferencePool" else WAITING
    return found


def kept(kind: str, api_version: str | None = None) -> dict[str, Any]:
    """What is exported of it afterwards."""
    found = copy.deepcopy(PLAIN[kind])
    found["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    if kind == "InferencePool":
        del found["spec"]["endpointPickerRef"]["group"]
    if api_version is not None:
        found["apiVersion"] = api_version
    return found


def refusal(documents: list[Any]) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        apply(OPERATOR, documents)
    assert not export(VIEWER)
    assert not AuditEntry.objects.exists()
    return [f"{detail.path}: {detail.message}" for detail in caught.value.details]


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_each_kind_is_taken_as_it_is_printed_and_plans_nothing_afterwards(kind: str, form: str) -> None:
    api, document = client(), printed(PLAIN[kind])
    body = json.dumps(document) if form == "json" else yaml.safe_dump(document)
    for expected in ("create", "unchanged"):
        answer = api.post("/api/v1/apply", body, content_type=f"application/{form}")
        assert answer.status_code == 200, answer.json()
        assert [step["action"] for step in answer.json()["steps"]] == [expected]
    assert export(VIEWER) == [kept(kind)]
    assert [step.action for step in apply(OPERATOR, export(VIEWER), dry_run=True).steps] == ["unchanged"]


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_each_kind_is_taken_by_its_own_address(kind: str, form: str) -> None:
    api, document = client(), printed(PLAIN[kind])
    service = KINDS.of(kind)
    assert service is not None
    body = json.dumps(document) if form == "json" else yaml.safe_dump(document)
    content = f"application/{form}"
    made = api.post(f"/api/v1/{service.plural}", body, content_type=content)
    assert (made.status_code, made["ETag"]) == (201, '"1"')
    one = f"/api/v1/{service.plural}/{document['metadata']['name']}"
    unversioned = api.put(one, body, content_type=content)
    assert unversioned.status_code == 428, "the version of another server is none of ours"
    same = api.put(one, body, content_type=content, HTTP_IF_MATCH='"1"')
    assert (same.status_code, same["ETag"]) == (200, '"1"')
    assert export(VIEWER) == [kept(kind)]


@pytest.mark.parametrize("document", [OBJECTIVE, REWRITE], ids=["objective", "rewrite"])
@pytest.mark.parametrize("version", ["llm-d.ai/v1alpha2", LEGACY, "pointsman.dev/v1"])
def test_objects_of_the_older_group_are_kept_as_those_of_the_present_one(
    document: dict[str, Any], version: str
) -> None:
    apply(OPERATOR, [printed(document, apiVersion=version)])
    assert export(VIEWER) == [kept(document["kind"], "llm-d.ai/v1alpha2")]


def test_versions_that_have_another_shape_are_refused_by_their_path() -> None:
    assert refusal([K8S_POOL | {"apiVersion": LEGACY}, PROCESSOR | {"apiVersion": "llm-d.ai/v1"}]) == [
        "documents[0].apiVersion: must be inference.networking.k8s.io/v1 or pointsman.dev/v1",
        "documents[1].apiVersion: must be llm-d.ai/v1alpha1",
    ]


EVERYTHING = [printed(document) for document in PLAIN.values()]
FORMS = {
    "documents of YAML": yaml.safe_dump_all(EVERYTHING),
    "a list of JSON": json.dumps(EVERYTHING),
    "a List": yaml.safe_dump(
        {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": EVERYTHING}
    ),
    "a List of JSON": json.dumps({"apiVersion": "v1", "items": EVERYTHING, "kind": "List", "metadata": {}}),
    "an export": json.dumps({"documents": EVERYTHING}),
    "lists of kinds": yaml.safe_dump_all(
        {
            "apiVersion": document["apiVersion"],
            "kind": f"{document['kind']}List",
            "metadata": {"continue": "", "resourceVersion": "884999"},
            "items": [{key: value for key, value in document.items() if key not in {"apiVersion", "kind"}}],
        }
        for document in EVERYTHING
    ),
    "all at once": yaml.safe_dump_all([EVERYTHING[0], EVERYTHING[1:3], {"documents": EVERYTHING[3:]}]),
}


@pytest.mark.parametrize("form", FORMS)
def test_sets_come_in_every_form_there_is(form: str) -> None:
    answer = client().post("/api/v1/apply", FORMS[form], content_type="application/yaml")
    assert answer.status_code == 200, answer.json()
    assert [step["kind"] for step in answer.json()["steps"]] == list(PLAIN)
    assert answer.json()["warnings"] == []
    assert {document["kind"]: document for document in export(VIEWER)} == {kind: kept(kind) for kind in PLAIN}


def test_mistakes_inside_lists_have_their_places() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [OBJECTIVE, objective("b", priority="high")]}
    pools = {"kind": "InferencePoolList", "apiVersion": "x/v1", "items": [{"spec": 1}]}
    assert refusal([[inner], pools]) == [
        "documents[1].items[0].apiVersion: must be inference.networking.k8s.io/v1 or pointsman.dev/v1",
        "documents[1].items[0].metadata: must be a mapping with a name",
        "documents[1].items[0].spec: must be a mapping",
        "documents[0][0].items[1].spec.priority: expected int, got str",
    ]
    assert refusal([{"kind": "List", "apiVersion": "v2", "item": []}, {"documents": 3}]) == [
        'documents[0].item: is no field of a list (did you mean "items"?)',
        "documents[0].apiVersion: must be v1",
        "documents[0].items: must be a list of documents",
        "documents[1].documents: must be a list of documents",
    ]


def test_a_namespace_does_not_tell_objects_apart_and_that_is_said() -> None:
    other = printed(OBJECTIVE)
    other["metadata"]["namespace"] = "elsewhere"
    assert refusal([printed(OBJECTIVE), other]) == [
        "documents[1]: InferenceObjective interactive is in the set twice; a namespace makes no difference"
    ]
    other["metadata"]["namespace"] = "no namespace"
    (told,) = refusal([other])
    assert told.startswith("documents[0].metadata.namespace: 'no namespace' is no name; use lower-case ")


def test_what_nobody_knows_is_refused_with_what_was_probably_meant() -> None:
    wrong = objective()
    wrong["metadata"] |= {"lables": {}, "annotations": {"pointsman.dev/pools": "a", "a": 1}}
    wrong["spec"]["prority"] = 3
    wrong["specs"] = wrong["sttus"] = {}
    assert refusal([wrong]) == [
        'documents[0].specs: is no field of a document (did you mean "spec"?)',
        'documents[0].sttus: is no field of a document (did you mean "status"?)',
        'documents[0].metadata.lables: is no field of metadata (did you mean "labels"?)',
        "documents[0].metadata.annotations[pointsman.dev/pools]: is not known; this kind has none",
        "documents[0].metadata.annotations[a]: must be text; put it in quotes",
        'documents[0].spec.prority: unknown field (did you mean "priority"?)',
    ]


@pytest.mark.parametrize("document", [OBJECTIVE, REWRITE], ids=["objective", "rewrite"])
def test_what_belongs_to_a_pool_of_another_group_is_refused(document: dict[str, Any]) -> None:
    wrong = copy.deepcopy(document)
    wrong["spec"]["poolRef"]["group"] = "inference.networking.x-k8s.io"
    assert refusal([wrong]) == [
        "documents[0].spec.poolRef.group: must be inference.networking.k8s.io or pointsman.dev, or left out"
    ]
    wrong["spec"]["poolRef"] = {
        "group": "inference.networking.k8s.io",
        "kind": "InferencePool",
        "name": "pool",
    }
    apply(OPERATOR, [wrong])
    assert export(VIEWER) == [document]


def named(name: str, **parts: Any) -> dict[str, Any]:
    return {**REWRITE, "metadata": {"name": name}, **parts}


def test_of_two_rewrites_the_older_one_stays_the_older_one() -> None:
    apply(
        OPERATOR,
        [
            named("undated"),
            printed(named("a"), made="2026-03-02T00:00:00Z"),
            printed(named("b"), made="2026-03-01T00:00:00Z"),
        ],
    )
    assert [document["metadata"]["name"] for document in export(VIEWER)] == ["b", "a", "undated"]


def test_the_version_of_this_server_counts_and_that_of_another_does_not() -> None:
    apply(OPERATOR, [objective()])
    stale = objective(priority=3, version=9)
    with pytest.raises(StaleError, match="is at version 1, and the change is meant for version 9"):
        apply(OPERATOR, [stale])
    stale["metadata"]["uid"] = "2c5e7c0a"
    assert [step.action for step in apply(OPERATOR, [stale]).steps] == ["update"]
    stale["metadata"] |= {"uid": None, "resourceVersion": "a1"}
    with pytest.raises(InvalidError) as caught:
        apply(OPERATOR, [stale])
    assert [detail.path for detail in caught.value.details] == ["documents[0].metadata.resourceVersion"]
