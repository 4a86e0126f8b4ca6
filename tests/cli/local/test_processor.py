"""The payload processor's configuration of a gateway file."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.local.config import parse
from cli.local.plan import make_plan
from cli.local.processor import ENFORCING, HEAD, processor_document
from cli.local.screen import addresses
from dataplane.errors import ConfigError
from ipp.pipeline import judging_handle, load_pipeline
from ipp.registry import plugin_registry
from tests.cli.local.plans import counted_ports

POOLS = """
pools:
- name: llama
  models: [llama-8b]
  rewrites: [{matches: [{model: {value: chat}}], targets: [{modelRewrite: llama-8b}]}]
- {name: qwen, models: [qwen-32b]}
"""
KNOWN = [
    {"name": "llama", "models": ["llama-8b", "chat"], "rewrites": {"chat": ["llama-8b"]}},
    {"name": "qwen", "models": ["qwen-32b"]},
]
POLICY = "{metadata: {name: house}}"


def document(text: str) -> Any:
    config = parse(f"{POOLS}\npayloadProcessor: {text}")
    assert config.payload_processor is not None
    return processor_document(config.payload_processor, config.pools)


def test_without_policies_and_configuration_the_built_in_one_runs() -> None:
    assert document("{}") is None


def test_policies_without_a_configuration_are_enforced() -> None:
    found = document(f"{{policies: [{POLICY}]}}")
    assert found["plugins"][-1] == {"type": "guardrails", "parameters": {"pools": KNOWN}}
    assert (found["profiles"], found["kind"]) == (ENFORCING["profiles"], "PayloadProcessorConfig")
    registry, _ = plugin_registry(external=False)
    pipeline = load_pipeline(json.dumps(found).encode(), judging_handle(), registry)
    assert (pipeline.now().needs_request_body, pipeline.warnings) == (True, ())


def test_policies_choose_by_the_pools_of_the_file_unless_the_plugin_says_others() -> None:
    plugins = "[{type: guardrails, name: first}, {type: guardrails, parameters: {pools: [{name: own}]}}]"
    found = document(f"{{config: {{plugins: {plugins}}}}}")
    assert found == {
        **HEAD,
        "plugins": [
            {"type": "guardrails", "name": "first", "parameters": {"pools": KNOWN}},
            {"type": "guardrails", "parameters": {"pools": [{"name": "own"}]}},
        ],
    }


def test_a_configuration_that_leaves_the_policies_alone_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        document(f"{{policies: [{POLICY}], config: {{plugins: [{{type: base-model-to-header}}]}}}}")
    assert str(raised.value) == (
        "payloadProcessor.config.plugins: enforces no policies: list a plugin of type guardrails here and in "
        "a profile, or take payloadProcessor.policies out"
    )


@pytest.mark.parametrize(
    "plugins", ["7", "{type: guardrails}", "[7, {type: guardrails, parameters: 7}]"], ids=str
)
def test_what_is_no_list_of_plugins_is_left_to_the_processor(plugins: str) -> None:
    found = document(f"{{config: {{plugins: {plugins}}}}}")
    assert found == {**HEAD, "plugins": yaml.safe_load(plugins)}


def test_the_screen_says_where_the_processor_tells_of_itself(tmp_path: Path) -> None:
    plan = make_plan(parse(f"{POOLS}\npayloadProcessor: {{}}"), tmp_path, counted_ports())
    assert plan.processor is not None
    port = plan.processor.metrics_port
    assert f"\n  payload processor: http://127.0.0.1:{port}/metrics and /debug/config\n" in addresses(plan)
