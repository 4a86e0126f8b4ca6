"""Sets from a control plane: whole or not at all, judged as files are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from epp.objects import received
from epp.objects.documents import Scope
from epp.objects.received import read_received


def document(name: str, pool: str = "pool", priority: Any = 1) -> dict[str, Any]:
    return {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceObjective",
        "metadata": {"name": name},
        "spec": {"poolRef": {"name": pool}, "priority": priority},
    }


def problems(payload: Any) -> list[str]:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return [str(problem) for problem in read_received(data, Scope("pool"))[1]]


def test_a_good_set_is_its_objects() -> None:
    data = json.dumps({"documents": [document("a"), document("b", priority=-1)]}).encode()
    reading, wrong = read_received(data, Scope("pool"))
    assert wrong == []
    assert [(each.name, each.priority) for each in reading.objectives()] == [("a", 1), ("b", -1)]
    assert [kept.place for kept in reading.objects.values()] == ["documents[0]", "documents[1]"]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"documents": {}}, ["documents: must be a list"]),
        ([], ["documents: must be a list"]),
        (
            {"documents": [document("a", priority="high"), 3]},
            [
                "documents[0].spec.priority: expected int, got str",
                "documents[1]: expected a mapping with apiVersion, kind, metadata and spec",
            ],
        ),
        (
            {"documents": [document("a"), document("a")]},
            ["documents[1]: InferenceObjective a is there twice"],
        ),
        (
            {"documents": [document("a", pool="other")]},
            ["documents[0]: is not for this pool: its poolRef names other, this pool is pool (--pool-name)"],
        ),
    ],
)
def test_everything_that_is_wrong_has_its_path(payload: Any, expected: list[str]) -> None:
    assert problems(payload) == expected


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_said(data: bytes) -> None:
    (said,) = problems(data)
    assert said.startswith("is not JSON: ")


def test_objects_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "MAX_OBJECTS", 2)
    assert problems({"documents": [document("a"), document("b")]}) == []
    assert problems({"documents": [document(name) for name in "abc"]}) == [
        "documents: has more than 2 objects"
    ]
