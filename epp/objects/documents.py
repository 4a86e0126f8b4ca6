"""One document to one object, or to everything that is wrong with it, or to why it is not for this pool.

Whatever is the matter, kind and name are told as far as they can be read, because they decide whose earlier
version stays in use.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

import msgspec

from dataplane.config.decode import decode_struct
from dataplane.config.document import join
from dataplane.errors import ConfigError, did_you_mean
from epp.objects import schema
from epp.objects.model import InferenceObjective, ModelRewrite, RewriteRule, RewriteTarget

UNDATED_S: Final = 1e12
"""Age of documents without ``creationTimestamp``: younger than all dated ones, in the order they are read."""


class Scope(msgspec.Struct, frozen=True):
    """The pool whose objects count. Empty strings: any."""

    pool: str = ""
    group: str = schema.POOL_GROUP
    namespace: str = ""


class PoolDeclaration(msgspec.Struct, frozen=True):
    """An InferencePool document: what it says of the pool, for people to see."""

    name: str
    target_ports: tuple[int, ...]
    app_protocol: str
    failure_mode: str | None = None
    """Of its picker reference, if it has one."""


Value = InferenceObjective | ModelRewrite | PoolDeclaration


class ReadObject(msgspec.Struct):
    """What one document comes to."""

    kind: str = ""
    name: str = ""
    """Both empty as long as they cannot be read."""
    value: Value | None = None
    problems: list[ConfigError] = msgspec.field(default_factory=list)
    """Why it does not count; never beside a value."""
    skipped: str = ""
    """Why it is not meant for this pool."""
    notes: list[ConfigError] = msgspec.field(default_factory=list)
    """What is odd or without effect in a document that counts."""


def is_object(raw: object) -> bool:
    """Whether a document is one of the kinds read here, or a list of them."""
    return isinstance(raw, dict) and (raw.get("kind") in schema.VERSIONS or raw.get("kind") == "List")


def items_of(raw: Any) -> list[tuple[str, Any]] | None:
    """(path, document) of the items of a Kubernetes ``List``; None when ``raw`` is none."""
    if isinstance(raw, dict) and raw.get("kind") == "List" and isinstance(raw.get("items"), list):
        return [(join("items", index), item) for index, item in enumerate(raw["items"])]
    return None


def read_object(raw: Any, scope: Scope, position: int) -> ReadObject:
    """The object in plain data; ``position`` orders documents without a date."""
    found = ReadObject()
    if not isinstance(raw, dict):
        found.problems.append(ConfigError("expected a mapping with apiVersion, kind, metadata and spec"))
        return found
    _identify(raw, found)
    if found.problems:
        return found
    envelope = decode_struct(raw, schema.Envelope, "", found.problems)
    spec_kind = schema.SPECS[found.kind]
    given = raw.get("spec")
    spec = decode_struct(given, spec_kind, "spec", found.problems) if isinstance(given, dict) else None
    created = position + UNDATED_S
    if envelope is not None and envelope.metadata.creation_timestamp is not None:
        created = _seconds(envelope.metadata.creation_timestamp, found.problems)
    if found.problems or envelope is None or spec is None:
        return found
    found.skipped = _not_ours(found, envelope.metadata, spec, scope)
    if not found.skipped:
        found.value = _value(found, spec, created)
    return found


def _identify(raw: dict[str, Any], found: ReadObject) -> None:
    kind, version, metadata = raw.get("kind"), raw.get("apiVersion"), raw.get("metadata")
    if not isinstance(kind, str) or kind not in schema.VERSIONS:
        hint = did_you_mean(kind, schema.VERSIONS) if isinstance(kind, str) else ""
        listed = ", ".join(schema.VERSIONS)
        what = "is required" if kind is None else f"{kind!r} is not known here{hint}"
        found.problems.append(ConfigError(f"{what}; use one of {listed}", path="kind"))
        return
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if isinstance(name, str):
        found.kind, found.name = kind, name
    else:
        found.kind = kind
    if version not in schema.VERSIONS[kind]:
        listed = " or ".join(schema.VERSIONS[kind])
        what = "is required" if version is None else f"{version!r} is no version of {kind}"
        found.problems.append(ConfigError(f"{what}; use {listed}", path="apiVersion"))


def _seconds(text: str, problems: list[ConfigError]) -> float:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        problems.append(
            ConfigError(
                f"{text[:40]!r} is no RFC 3339 time such as 2026-01-31T12:00:00Z",
                path="metadata.creationTimestamp",
            )
        )
        return 0.0
    return moment.timestamp()


def _not_ours(found: ReadObject, metadata: schema.Metadata, spec: Any, scope: Scope) -> str:
    """Why the object belongs to somebody else; empty when it is the pool's."""
    if scope.namespace and metadata.namespace not in {None, scope.namespace}:
        return (
            f"it is in namespace {metadata.namespace}, this pool is in {scope.namespace} (--pool-namespace)"
        )
    if not scope.pool:
        return ""
    if isinstance(spec, schema.PoolSpec):
        same = metadata.name == scope.pool
        return "" if same else f"this pool is {scope.pool} (--pool-name)"
    ref = spec.pool_ref
    if ref.name != scope.pool:
        return f"its poolRef names {ref.name}, this pool is {scope.pool} (--pool-name)"
    if ref.group not in {scope.group, "pointsman.dev"}:
        return f"its poolRef is of group {ref.group}, this pool of {scope.group} (--pool-group)"
    return ""


def _value(found: ReadObject, spec: Any, created: float) -> Value:
    if isinstance(spec, schema.ObjectiveSpec):
        return InferenceObjective(found.name, spec.priority or 0)
    if isinstance(spec, schema.RewriteSpec):
        return ModelRewrite(found.name, created, tuple(_rule(found, i, r) for i, r in enumerate(spec.rules)))
    found.notes.append(
        ConfigError(
            "has no effect: without Kubernetes the endpoints come from discovery", path="spec.selector"
        )
    )
    picker = spec.endpoint_picker_ref
    return PoolDeclaration(
        found.name,
        tuple(port.number for port in spec.target_ports),
        spec.app_protocol,
        None if picker is None else picker.failure_mode,
    )


def _rule(found: ReadObject, index: int, rule: schema.Rule) -> RewriteRule:
    weighted = [target.weight is not None for target in rule.targets]
    if any(weighted) and not all(weighted):
        found.notes.append(
            ConfigError(
                "some targets have a weight and some have none: those without are never chosen",
                path=f"spec.rules[{index}].targets",
            )
        )
    return RewriteRule(
        tuple(RewriteTarget(target.model_rewrite, target.weight) for target in rule.targets),
        tuple(match.model.value for match in rule.matches),
    )
