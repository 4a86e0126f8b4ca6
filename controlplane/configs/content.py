"""What a configuration says: judged by the worker's own code, and written one way only.

Of pickers the graph of plugins is built as ``pointsman epp validate`` does it, which opens nothing. Plugins
of installed packages count when they are installed beside the control plane. Those of Alpha stability are
accepted: whether a worker takes them is a flag of the worker, and it refuses the revision when it does not.
Of payload processors the pipeline is built in the same way; what its plugins read when they start is for the
processor to refuse. Rules of guardrail policies are compiled, those of disabled policies as well.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from controlplane.core.canonical import canonical
from dataplane.config import guardrails, ipp
from dataplane.config.decode import decode_struct
from dataplane.config.epp_checks import API_VERSION, DEPRECATED_API_VERSION, KIND
from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.plugin.registry import PluginRegistry
from epp.graph import load_graph
from epp.graph.registry import plugin_registry
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from ipp.guardrails.asking import Asking
from ipp.guardrails.policies import Policies
from ipp.pipeline import judging_handle, load_pipeline
from ipp.registry import plugin_registry as processor_registry

Document = dict[str, Any]

VERSIONS: Final = (API_VERSION, DEPRECATED_API_VERSION)
_ITSELF: Final = "policy"
"""What a policy is called while it is judged."""
_RULE: Final = re.compile(rf"{_ITSELF}\.spec\.rules\[(\d+)\]")


class Content(msgspec.Struct, frozen=True):
    """What workers get."""

    text: str
    """Canonical JSON: sorted keys, no spaces; the same content is the same text."""
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256, hexadecimal."""
        return digest_of(self.text)


def digest_of(text: str) -> str:
    """SHA-256 of a content, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _said(document: Mapping[str, Any]) -> Document:
    return {key: value for key, value in document.items() if key not in {"metadata", "status"}}


def judge_picker(document: Mapping[str, Any], problems: list[ConfigError]) -> Content | None:
    """The content of a picker's document; None after noting in ``problems`` all that is wrong with it."""
    said = _said(document)
    warnings: list[str] = []
    if said.get("apiVersion") == DEPRECATED_API_VERSION:
        warnings.append(f"apiVersion {DEPRECATED_API_VERSION} is deprecated; {API_VERSION} is kept")
    if said.get("apiVersion") in VERSIONS:
        said["apiVersion"] = API_VERSION
    said["kind"] = KIND
    text = canonical(said, problems)
    if text is None:
        return None
    try:
        graph = load_graph(text, Handle(EndpointTable()), allow_experimental=True, registry=_registry())
    except ConfigErrors as errors:
        # The envelope is judged like that of all kinds.
        problems.extend(error for error in errors.errors if error.path != "apiVersion")
        return None
    except ConfigError as error:
        problems.append(error)
        return None
    return Content(text, (*warnings, *graph.warnings))


def judge_processor(document: Mapping[str, Any], problems: list[ConfigError]) -> Content | None:
    """The same of a payload processor's document."""
    said = _said(document) | {"apiVersion": ipp.API_VERSION, "kind": ipp.KIND}
    text = canonical(said, problems)
    if text is None:
        return None
    try:
        pipeline = load_pipeline(
            text.encode(), judging_handle(), _processor_registry(), allow_experimental=True
        )
    except ConfigErrors as errors:
        problems.extend(errors.errors)
        return None
    except ConfigError as error:
        problems.append(error)
        return None
    return Content(text, tuple(pipeline.warnings))


def judge_policy(document: Mapping[str, Any], problems: list[ConfigError]) -> Content | None:
    """The same of a guardrail policy's document, whose spec is kept without what it does not say."""
    if not isinstance(document.get("spec"), Mapping):
        problems.append(ConfigError("must be a mapping", path="spec"))
        return None
    mistakes: list[ConfigError] = []
    spec = decode_struct(document["spec"], guardrails.GuardrailPolicySpec, "spec", mistakes)
    if spec is None:
        problems += mistakes
        return None
    places = _readable(document["spec"].get("rules")) if mistakes else range(len(spec.rules))
    enabled = msgspec.structs.replace(spec, enabled=True)
    found: list[ConfigError] = []
    Policies([(_ITSELF, enabled)], Asking(lambda _: None), found)
    mistakes += [ConfigError(each.message, path=_in_document(each.path, places)) for each in found]
    problems += mistakes
    said = {
        "apiVersion": guardrails.API_VERSION,
        "kind": guardrails.KIND,
        "spec": msgspec.to_builtins(spec),
    }
    text = None if mistakes else canonical(said, problems)
    return None if text is None else Content(text)


def _readable(rules: Any) -> list[int]:
    """Places of the rules that could be read; the others were left out, so those behind them have moved."""
    listed = rules if isinstance(rules, list) else []
    return [at for at, rule in enumerate(listed) if decode_struct(rule, guardrails.Rule, "", []) is not None]


def _in_document(path: str, places: Sequence[int]) -> str:
    """A compiler's path as one of the document."""
    found = _RULE.match(path)
    if found is None or int(found[1]) >= len(places):
        return path.removeprefix(f"{_ITSELF}.")
    return f"spec.rules[{places[int(found[1])]}]{path[found.end() :]}"


def parsed(text: str) -> Document:
    """A content as data."""
    found: Document = json.loads(text)
    return found


@lru_cache(maxsize=1)
def _processor_registry() -> PluginRegistry:
    """The same of payload processors."""
    return processor_registry(external=True).registry


@lru_cache(maxsize=1)
def _registry() -> PluginRegistry:
    """The plugins known here; a broken package ends the first judgement with its name."""
    return plugin_registry(external=True).registry
