"""What a fresh database begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.machine import seeds
from cli.machine.api import Reply, refusal
from dataplane.processes.child import StartError
from tests.architecture.tree import ROOT

POOL = {"kind": "InferencePool", "metadata": {"name": "pool"}}
KEY = {"kind": "VirtualKey", "metadata": {"name": "notebook"}}


class Recorder:
    """An API that answers as it is told to and remembers what it was asked."""

    def __init__(self, key: Reply) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self._key = key

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        self.asked.append((method, path, body))

    async def ask(self, method: str, path: str, body: Any = None) -> Reply:
        self.asked.append((method, path, body))
        return self._key


async def test_documents_are_applied_together_and_keys_made_and_shown():
    api = Recorder(Reply(201, {"status": {"key": "sk-1"}}))
    assert await seeds.apply(api, [KEY, POOL]) == {"notebook": "sk-1"}
    assert api.asked == [("POST", "apply", [POOL]), ("POST", "virtualkeys", KEY)]


async def test_a_key_that_an_interrupted_start_has_made_is_not_made_again():
    assert await seeds.apply(Recorder(Reply(409, {})), [KEY]) == {}


async def test_a_refusal_fails_the_start_with_its_path():
    body = {"message": "2 mistakes", "details": [{"path": "spec.tenant", "message": "is not there"}]}
    with pytest.raises(StartError, match=r"the examples cannot be applied: spec\.tenant: is not there"):
        await seeds.apply(Recorder(Reply(422, body)), [KEY])


def test_a_refusal_without_details_has_its_message():
    assert refusal(Reply(404, {"message": "there is none", "details": []})) == "there is none"
    assert refusal(Reply(502, None)) == "HTTP 502"


def test_files_are_read_in_order_and_a_damaged_one_is_named(tmp_path: Path):
    (tmp_path / "2.yaml").write_text("kind: B\n---\n---\nkind: C\n")
    (tmp_path / "1.yaml").write_text("kind: A\n")
    assert seeds.read(tmp_path) == [{"kind": "A"}, {"kind": "B"}, {"kind": "C"}]
    (tmp_path / "3.yaml").write_text("{")
    with pytest.raises(StartError, match=r"3\.yaml: "):
        seeds.read(tmp_path)


def test_the_shipped_examples_hold_what_the_guides_speak_of():
    found = [(each["kind"], each["metadata"]["name"]) for each in seeds.read(ROOT / "deploy/examples")]
    assert found == [
        ("Gateway", "public"),
        ("InferencePool", "llama-8b"),
        ("InferencePool", "qwen-32b"),
        ("EndpointPickerConfig", "llama-8b"),
        ("EndpointPickerConfig", "qwen-32b"),
        ("InferenceObjective", "interactive"),
        ("InferenceObjective", "batch"),
        ("InferenceModelRewrite", "chat"),
        ("Tenant", "research"),
        ("Tenant", "nightly"),
        ("VirtualKey", "notebook"),
        ("VirtualKey", "nightly-eval"),
        ("PayloadProcessorConfig", "default"),
        ("GuardrailPolicy", "privacy"),
    ]
