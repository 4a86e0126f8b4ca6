"""Documents of the three kinds: what they come to, what is wrong with them, and whose they are."""

from typing import Any

import pytest
import yaml

from epp.objects.documents import UNDATED_S, PoolDeclaration, ReadObject, Scope, items_of, read_object
from epp.objects.model import InferenceObjective, ModelRewrite, RewriteRule, RewriteTarget

POOL = Scope("pool")
OBJECTIVE = """
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: gold}
spec: {poolRef: {name: pool}, priority: 10}
"""
REWRITE = """
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: alias, creationTimestamp: "2026-01-31T12:00:00Z"}
spec:
  poolRef: {name: pool}
  rules:
  - matches: [{model: {type: Exact, value: chat}}, {model: {value: talk}}]
    targets: [{modelRewrite: big, weight: 90}, {modelRewrite: small, weight: 10}]
  - targets: [{modelRewrite: small}]
"""
INFERENCE_POOL = """
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: pool}
spec:
  selector: {matchLabels: {app: vllm}}
  targetPorts: [{number: 8000}, {number: 8001}]
  appProtocol: kubernetes.io/h2c
  endpointPickerRef: {name: epp, port: {number: 9002}, failureMode: FailOpen}
"""


def read(text: str, scope: Scope = POOL, **changes: Any) -> ReadObject:
    """The object of a text; ``changes`` replace parts of it by their dotted path, with __ for the dots."""
    raw = yaml.safe_load(text)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        at = raw
        for parent in parents:
            at = at[parent]
        at[last] = value
    return read_object(raw, scope, 3)


def said(found: ReadObject) -> list[str]:
    """Its problems as text."""
    assert found.value is None
    return [str(problem) for problem in found.problems]


def test_an_objective_is_a_name_and_a_priority():
    assert read(OBJECTIVE).value == InferenceObjective("gold", 10)
    assert read(OBJECTIVE, spec={"poolRef": {"name": "pool"}}).value == InferenceObjective("gold", 0)
    assert read(OBJECTIVE, spec__priority=-5).value == InferenceObjective("gold", -5)


def test_a_rewrite_is_its_rules_in_order():
    assert read(REWRITE).value == ModelRewrite(
        "alias",
        1769860800.0,
        (
            RewriteRule((RewriteTarget("big", 90), RewriteTarget("small", 10)), ("chat", "talk")),
            RewriteRule((RewriteTarget("small"),)),
        ),
    )


def test_without_a_date_the_order_of_reading_decides_after_all_dates():
    value = read(REWRITE, metadata={"name": "alias"}).value
    assert isinstance(value, ModelRewrite)
    assert value.created_at == UNDATED_S + 3


def test_a_pool_is_shown_and_its_selector_has_no_effect():
    found = read(INFERENCE_POOL)
    assert found.value == PoolDeclaration("pool", (8000, 8001), "kubernetes.io/h2c", "FailOpen")
    assert [str(note) for note in found.notes] == [
        "spec.selector: has no effect: without Kubernetes the endpoints come from discovery"
    ]


@pytest.mark.parametrize(
    "version", ["llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2", "pointsman.dev/v1"]
)
@pytest.mark.parametrize("text", [OBJECTIVE, REWRITE])
def test_both_groups_of_llm_d_and_our_own_are_read(version: str, text: str):
    assert read(text, apiVersion=version).value == read(text).value


def test_what_a_server_writes_into_an_object_means_nothing():
    written = {
        "name": "gold",
        "namespace": "prod",
        "uid": "4",
        "resourceVersion": "7",
        "generation": 1,
        "managedFields": [{}],
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
    }
    status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    assert read(OBJECTIVE, metadata=written, status=status).value == InferenceObjective("gold", 10)


@pytest.mark.parametrize(
    ("text", "changes", "problems"),
    [
        (
            OBJECTIVE,
            {"kind": "InferenceObjektive"},
            ["kind: 'InferenceObjektive' is not known here (did you"],
        ),
        (
            OBJECTIVE,
            {"apiVersion": "llm-d.ai/v1"},
            ["apiVersion: 'llm-d.ai/v1' is no version of InferenceObjective; use llm-d.ai/v1alpha2 or"],
        ),
        (OBJECTIVE, {"metadata": {}}, ["metadata.name: is required"]),
        (
            OBJECTIVE,
            {"metadata__name": "Gold_1"},
            ["metadata.name: 'Gold_1' is no name; use lower-case letters, digits, - and ., at most 253"],
        ),
        (
            OBJECTIVE,
            {"spec": {"poolRef": {}, "priority": "high", "prio": 1}},
            [
                "spec.poolRef.name: is required",
                "spec.priority: expected int, got str",
                'spec.prio: unknown field (did you mean "priority"?)',
            ],
        ),
        (OBJECTIVE, {"spec__priority": 1 << 31}, ["spec.priority: expected int <= 2147483647"]),
        (OBJECTIVE, {"spec": None}, ["spec: expected object, got null"]),
        (
            OBJECTIVE,
            {"spec__poolRef__kind": "Service"},
            ["spec.poolRef.kind: must be one of InferencePool; got 'Service'"],
        ),
        (OBJECTIVE, {"lables": {}}, ["lables: unknown field"]),
        (
            OBJECTIVE,
            {"metadata__creationTimestamp": "yesterday"},
            ["metadata.creationTimestamp: 'yesterday' is no RFC 3339 time such as 2026-01-31T12:00:00Z"],
        ),
        (
            OBJECTIVE,
            {"metadata__creationTimestamp": "2026-01-31T12:00:00"},
            ["metadata.creationTimestamp: '2026-01-31T12:00:00' is no RFC 3339 time"],
        ),
        (
            REWRITE,
            {"spec__rules__0__targets": []},
            ["spec.rules[0].targets: names no model; give at least one"],
        ),
        (REWRITE, {"spec__rules__1": {}}, ["spec.rules[1].targets: is required"]),
        (
            REWRITE,
            {"spec__rules__0__targets__0__weight": 0, "spec__rules__0__targets__1__weight": 1000001},
            [
                "spec.rules[0].targets[0].weight: expected int >= 1",
                "spec.rules[0].targets[1].weight: expected int <= 1000000",
            ],
        ),
        (
            REWRITE,
            {"spec__rules__0__targets__0__modelRewrite": "m" * 1025},
            ["spec.rules[0].targets[0].modelRewrite: is longer than 1024 bytes"],
        ),
        (
            REWRITE,
            {"spec__rules__0__targets__0__modelRewrite": "\ud800"},
            ["spec.rules[0].targets[0].modelRewrite: is not Unicode text"],
        ),
        (
            REWRITE,
            {"spec__rules__0__matches__0__model": {"type": "Regex", "value": ""}},
            [
                "spec.rules[0].matches[0].model.type: must be one of Exact; got 'Regex'",
                "spec.rules[0].matches[0].model.value: expected str of length >= 1",
            ],
        ),
        (INFERENCE_POOL, {"spec__targetPorts": []}, ["spec.targetPorts: must list 1 to 8 ports"]),
        (
            INFERENCE_POOL,
            {"spec__targetPorts": [{"number": n} for n in range(1, 10)]},
            ["spec.targetPorts: must list 1 to 8 ports"],
        ),
        (
            INFERENCE_POOL,
            {"spec__targetPorts": [{"number": 1}, {"number": 1}]},
            ["spec.targetPorts: port number must be unique"],
        ),
        (
            INFERENCE_POOL,
            {"spec__targetPorts__0__number": 0},
            ["spec.targetPorts[0].number: expected int >= 1"],
        ),
        (
            INFERENCE_POOL,
            {"spec__selector__matchLabels": {}},
            ["spec.selector.matchLabels: has 0 labels; give 1 to 64"],
        ),
        (
            INFERENCE_POOL,
            {"spec__appProtocol": "h2c"},
            ["spec.appProtocol: must be one of http, kubernetes.io/h2c; got 'h2c'"],
        ),
        (
            INFERENCE_POOL,
            {"spec__endpointPickerRef": {"name": "epp"}},
            ["spec.endpointPickerRef.port: port is required when kind is 'Service' or unspecified"],
        ),
    ],
)
def test_everything_wrong_with_a_document_is_said_with_its_path(
    text: str, changes: dict[str, Any], problems: list[str]
):
    found = read(text, **changes)
    for line, problem in zip(said(found), problems, strict=True):
        assert line.startswith(problem)


@pytest.mark.parametrize("raw", [None, [], "text", 7])
def test_what_is_no_object_is_said(raw: object):
    assert said(read_object(raw, POOL, 0)) == ["expected a mapping with apiVersion, kind, metadata and spec"]


def test_a_wrong_document_is_known_by_kind_and_name_where_it_has_them():
    wrong = read(OBJECTIVE, spec__priority="x")
    assert (wrong.kind, wrong.name) == ("InferenceObjective", "gold")
    assert (read(OBJECTIVE, metadata={}).kind, read(OBJECTIVE, metadata={}).name) == (
        "InferenceObjective",
        "",
    )


@pytest.mark.parametrize(
    ("text", "scope", "changes", "why"),
    [
        (OBJECTIVE, Scope("other"), {}, "its poolRef names pool, this pool is other (--pool-name)"),
        (REWRITE, Scope("other"), {}, "its poolRef names pool, this pool is other (--pool-name)"),
        (INFERENCE_POOL, Scope("other"), {}, "this pool is other (--pool-name)"),
        (
            OBJECTIVE,
            POOL,
            {"spec__poolRef__group": "inference.networking.x-k8s.io"},
            "its poolRef is of group inference.networking.x-k8s.io, this pool of inference.networking.k8s.io",
        ),
        (
            OBJECTIVE,
            Scope("pool", namespace="prod"),
            {"metadata__namespace": "test"},
            "it is in namespace test, this pool is in prod (--pool-namespace)",
        ),
    ],
)
def test_an_object_of_another_pool_is_left_alone_and_why_is_said(
    text: str, scope: Scope, changes: dict[str, Any], why: str
):
    found = read(text, scope, **changes)
    assert (found.value, found.problems) == (None, [])
    assert found.skipped.startswith(why)


@pytest.mark.parametrize(
    ("scope", "changes"),
    [
        (Scope(), {}),
        (POOL, {"metadata__namespace": "any"}),
        (Scope("pool", namespace="prod"), {"metadata__namespace": "prod"}),
        (Scope("pool", namespace="prod"), {}),
        (POOL, {"spec__poolRef__group": "pointsman.dev"}),
        (Scope("pool", "x.example"), {"spec__poolRef__group": "x.example"}),
    ],
)
def test_an_object_of_this_pool_counts(scope: Scope, changes: dict[str, Any]):
    assert read(OBJECTIVE, scope, **changes).value == InferenceObjective("gold", 10)


def test_targets_that_are_never_chosen_are_noted():
    found = read(REWRITE, spec__rules__0__targets=[{"modelRewrite": "a"}, {"modelRewrite": "b", "weight": 1}])
    assert found.value is not None
    assert [str(note) for note in found.notes] == [
        "spec.rules[0].targets: some targets have a weight and some have none: those without are never chosen"
    ]


def test_a_list_is_its_items():
    assert items_of({"kind": "List", "items": [1, 2]}) == [("items[0]", 1), ("items[1]", 2)]
    assert items_of({"kind": "List", "items": 1}) is None
    assert items_of({"kind": "InferencePool", "items": []}) is None
