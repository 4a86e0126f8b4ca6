"""``pointsman ipp validate``: whether files would be accepted by a payload processor.

Builds the pipeline exactly as a start or a reload does, but begins nothing: no port, no connection, and no
file that parameters name. All mistakes of a file are told at once. Files and folders of guardrail policies,
and files in which models are listed, are checked as well.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any, TextIO

import yaml

from dataplane.config.document import read_document
from dataplane.config.documents import split_documents
from dataplane.config.guardrails import KIND as POLICY
from dataplane.config.problems import raise_any
from dataplane.errors import ConfigError
from dataplane.files import read_regular_file
from dataplane.plugin.judging import MAX_CONFIG_BYTES, VALID, judge_each, shown_plugin
from dataplane.plugin.registry import PluginRegistry
from ipp.interfaces.handle import Handle
from ipp.metrics import IppMetrics
from ipp.model_file import read_models
from ipp.pipeline import Pipeline, load_pipeline
from ipp.policies import PolicyFiles, PolicyHolder
from ipp.registry import REGISTRY
from ipp.verdict_log import VerdictLog


def validate(
    files: Sequence[str],
    out: TextIO,
    *,
    show_defaults: bool = False,
    allow_experimental: bool = False,
    registry: PluginRegistry = REGISTRY,
) -> int:
    """Check each file and say what was found. Returns 0 when all are accepted, else 1."""

    def judged(name: str) -> tuple[int, str]:
        return VALID, _judge(name, show_defaults, allow_experimental, registry)

    return judge_each(files, out, judged)


def _judge(name: str, show_defaults: bool, allow_experimental: bool, registry: PluginRegistry) -> str:
    """What there is to say of a good file. ``ConfigErrors`` with all that is wrong with another one."""
    if os.path.isdir(name):
        return _judge_policies(name)
    text = read_regular_file(name, MAX_CONFIG_BYTES, path="")
    documents = _documents(text)
    if any(isinstance(raw, dict) and raw.get("kind") == POLICY for raw in documents):
        return _judge_policies(name)
    if any(isinstance(raw, dict) and "models" in raw and "kind" not in raw for raw in documents):
        problems: list[ConfigError] = []
        models = read_models(text, problems)
        raise_any(problems)
        return f"{name}: ok ({len(models)} models)\n"
    pipeline = load_pipeline(text, _handle(), registry, allow_experimental=allow_experimental)
    said = "".join(f"{name}: warning: {warning}\n" for warning in pipeline.warnings) + f"{name}: ok\n"
    return said + (yaml.safe_dump(effective(pipeline), sort_keys=False) if show_defaults else "")


def _documents(text: bytes) -> list[Any]:
    """Plain data of each document, to see what a file is; mistakes are for its reader to tell."""
    try:
        return [read_document(document.text, []) for document in split_documents(text.decode())]
    except (UnicodeDecodeError, ConfigError):
        return []


def _judge_policies(name: str) -> str:
    problems: list[ConfigError] = []
    found = PolicyFiles(name, PolicyHolder(random.Random())).read(problems)  # noqa: S311 - picks nothing here
    raise_any(problems)
    assert found is not None  # noqa: S101 - without problems there are policies
    return f"{name}: ok ({len(found[1])} {POLICY})\n"


def _handle() -> Handle:
    metrics = IppMetrics()
    holder = PolicyHolder(random.Random())  # noqa: S311 - picks nothing here
    return Handle(metrics, holder, VerdictLog(metrics, "validate", ""), has_policies=True)


def effective(pipeline: Pipeline) -> dict[str, Any]:
    """What a pipeline consists of once every default is filled in, in the order in which it runs."""
    configured = {spec.name or spec.type: spec for spec in pipeline.config.plugins}
    plugins = [
        shown_plugin(name, plugin, configured.get(name)) for name, plugin in pipeline.instances.items()
    ]
    return {
        "plugins": plugins,
        "preProcessing": [step.plugin.name.name for step in pipeline.before],
        "profilePicker": pipeline.picker.name.name,
        "profiles": [
            {
                "name": profile.name,
                "request": [step.plugin.name.name for step in profile.request],
                "response": [step.plugin.name.name for step in profile.response],
            }
            for profile in pipeline.profiles.values()
        ],
        "postProcessing": [step.plugin.name.name for step in pipeline.after],
        "extractors": [extractor.name.name for extractor in pipeline.extractors],
        "buffersRequests": pipeline.needs_request_body,
    }
