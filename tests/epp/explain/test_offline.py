"""Decisions without a picker: the same as with one, on the same data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataplane.errors import ConfigError
from epp.explain.offline import Answer, Question, explain, path_of
from epp.graph.registry import REGISTRY

ENDPOINTS = {
    "endpoints": [
        {"name": "a", "address": "10.0.0.1", "port": "8000", "labels": {"llm-d.ai/role": "decode"}},
        {"name": "b", "address": "10.0.0.2", "port": "8000"},
        {"name": "c", "address": "10.0.0.3", "port": "8000", "labels": {"llm-d.ai/role": "prefill"}},
    ]
}
BUSY = {"endpoints": [{"address": "10.0.0.2:8000", "waiting": 9, "dataAgeMs": 40}]}
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: decode-filter
- type: queue-scorer
- type: prefix-cache-scorer
- type: file-discovery
  parameters: {path: /nowhere}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: decode-filter}
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
dataLayer: {discovery: {pluginRef: file-discovery}}
"""


class Files:
    """A folder with what a question names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.request = self.write("request.json", {"model": "m", "prompt": "word " * 400})
        self.endpoints = self.write("endpoints.json", ENDPOINTS)
        self.config = self.write("config.yaml", CONFIG)
        self.busy = self.write("busy.json", BUSY)

    def write(self, name: str, content: Any) -> str:
        file = self.folder / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(file)

    def ask(self, **fields: Any) -> Answer:
        values: dict[str, Any] = {
            "request": self.request,
            "config": self.config,
            "endpoints": self.endpoints,
            "snapshot": self.busy,
        }
        return explain(Question(**(values | fields)), REGISTRY)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def rows(answer: Answer) -> dict[str, Any]:
    """Rows of the only profile by address."""
    return {row["endpoint"]: row for row in answer.decision["profiles"]["default"]["candidates"]}


def test_the_configuration_decides_on_the_measurements_of_the_files(files: Files) -> None:
    answer = files.ask()
    assert answer.warnings == [f"2 endpoints are not in {files.busy} and count as idle"]
    decision = answer.decision
    assert decision["traced"] == "offline"
    assert decision["destination"] == ["10.0.0.1:8000"]
    (step,) = decision["profiles"]["default"]["filters"]
    assert step["removed"] == [
        {
            "endpoint": "10.0.0.3:8000",
            "name": "default/c",
            "reason": "role prefill does not serve decode",
        }
    ]
    assert [(row["waiting"], row["dataAgeMs"]) for row in rows(answer).values()] == [(0, 0), (9, 40)]
    assert rows(answer)["10.0.0.1:8000"]["scores"]["queue-scorer"]["weighted"] == 2.0


def test_a_prompt_that_was_served_elsewhere_draws_its_successor_there(files: Files) -> None:
    answer = files.ask(warm=("10.0.0.2:8000",))
    assert answer.decision["destination"] == ["10.0.0.2:8000"]
    warm = rows(answer)["10.0.0.2:8000"]
    assert warm["matchedBlocks"] == {"approx-prefix-cache-producer": 7.0}
    assert (warm["waiting"], warm["inflight"], warm["unseen"]) == (9, 0, 0), "nothing of it is left in flight"


def test_endpoints_the_proxy_allows_and_the_snapshot_alone(files: Files) -> None:
    answer = files.ask(endpoints="", subset="10.0.0.2:8000")
    assert answer.warnings == []
    assert answer.decision["pool"]["candidates"] == 1
    assert answer.decision["destination"] == ["10.0.0.2:8000"]
    refused = files.ask(subset="10.0.0.77").decision
    assert (refused["stage"], refused["response"]["status"]) == ("candidates", 503)


def test_without_a_configuration_the_built_in_one_decides(files: Files) -> None:
    scores = rows(files.ask(config=""))["10.0.0.1:8000"]["scores"]
    assert {name: score["weight"] for name, score in scores.items()} == {
        "queue-scorer": 2.0,
        "kv-cache-utilization-scorer": 2.0,
        "prefix-cache-scorer": 3.0,
    }


def test_equals_are_drawn_by_the_seed(files: Files) -> None:
    drawn = [files.ask(snapshot="", config="", seed=seed).decision["destination"][0] for seed in range(12)]
    assert len(set(drawn)) == 3
    assert drawn == [
        files.ask(snapshot="", config="", seed=seed).decision["destination"][0] for seed in range(12)
    ]


def test_objectives_give_requests_their_priority(files: Files) -> None:
    objects = files.write(
        "objects.yaml",
        "apiVersion: inference.networking.x-k8s.io/v1alpha2\nkind: InferenceObjective\n"
        "metadata: {name: batch}\nspec: {priority: -3, poolRef: {name: pool}}\n",
    )
    answer = files.ask(objects=objects, headers=(("x-llm-d-inference-objective", "batch"),))
    assert answer.decision["priority"] == -3


def test_a_body_that_is_refused_is_an_answer(files: Files) -> None:
    decision = files.ask(request=files.write("bad.json", "{")).decision
    assert (decision["stage"], decision["response"]["status"]) == ("parse", 400)
    assert decision["error"].startswith("BadRequest: ")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"request": "/nowhere"}, "/nowhere: cannot be read (No such file or directory)"),
        ({"config": "/nowhere"}, "/nowhere: cannot be read (No such file or directory)"),
        ({"warm": ("10.0.0.4:8000",)}, "--warm: no endpoint is at 10.0.0.4:8000 (did you mean "),
        (
            {"warm": ("10.0.0.3:8000",)},
            "--warm: 10.0.0.3:8000 would not serve the request: ResourceExhausted: no endpoint can take",
        ),
        ({"objects": "/nowhere"}, "--objects-file /nowhere: "),
    ],
)
def test_what_is_wrong_is_said(files: Files, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        files.ask(**change)
    assert str(caught.value).startswith(complaint)


def test_mistakes_of_the_configuration_name_the_file(files: Files) -> None:
    config = files.write("broken.yaml", CONFIG.replace("queue-scorer", "queue-scoerr"))
    with pytest.raises(ConfigError) as caught:
        files.ask(config=config)
    errors = getattr(caught.value, "errors", [caught.value])
    assert all(str(error).startswith(f"{config}: ") for error in errors)
    assert 'did you mean "queue-scorer"' in str(errors[0])


def test_names_are_not_looked_up(files: Files) -> None:
    listed = {
        "apiVersion": "pointsman.dev/v1",
        "kind": "EndpointList",
        "endpoints": [{"name": "x", "address": "vllm.example.internal"}],
    }
    with pytest.raises(ConfigError, match="has host names, which are not looked up here"):
        files.ask(endpoints=files.write("names.json", listed))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"prompt": "a", "model": "m"}', "/v1/completions"),
        (b'{"messages": []}', "/v1/chat/completions"),
        (b'{"input": "a"}', "/v1/responses"),
        (b"[]", "/v1/completions"),
        (b"\xff", "/v1/completions"),
    ],
)
def test_the_path_is_that_of_such_bodies(body: bytes, path: str) -> None:
    assert path_of(body) == path


def test_no_other_process_is_asked_about_the_request(tmp_path: Path):
    files = Files(tmp_path)
    renderer = "- type: token-producer\n  parameters: {vllm: {url: 'http://127.0.0.1:9'}}\n"
    config = files.write(
        "rendered.yaml", CONFIG.replace("- type: decode-filter\n", renderer + "- type: decode-filter\n", 1)
    )
    answer = files.ask(config=config)
    assert answer.decision["destination"]
    assert (
        "'token-producer' asks nobody here: it does without what another process would tell"
        in answer.warnings
    )
