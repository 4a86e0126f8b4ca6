"""What documents say of themselves: name, labels, version; and what Kubernetes writes beside it.

What ``kubectl get -o yaml`` prints is a document as it stands. Of its metadata, name and labels are kept. The
rest is the business of the server it comes from and means nothing here: ``managedFields``, ``uid``, times,
owners, annotations of others, and the namespace, because names are unique here. That server's
``resourceVersion`` counts its changes and not ours; its objects are told by their ``uid``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dataplane.errors import ConfigError, did_you_mean
from epp.objects import schema

MAX_LABELS: Final = 64
MAX_LABEL_CHARACTERS: Final = 317
"""A domain, a slash and a name, as Kubernetes has them."""
OWN: Final = "pointsman.dev/"
"""Prefix of annotations that mean something here."""
FIELDS: Final = tuple(field.encode_name for field in msgspec.structs.fields(schema.Metadata))
"""Of Kubernetes."""


class Metadata(NamedTuple):
    """What is kept of it."""

    name: str
    labels: dict[str, str]
    version: int | None
    """The version that a change is meant for, if the document says one."""


def read_metadata(raw: Any, annotations: Sequence[str], problems: list[ConfigError]) -> Metadata:
    """The metadata of a document whose kind knows ``annotations`` of ours; mistakes go to ``problems``."""
    if not isinstance(raw, dict):
        problems.append(ConfigError("must be a mapping with a name", path="metadata"))
        return Metadata("", {}, None)
    problems.extend(
        ConfigError(f"is no field of metadata{did_you_mean(str(field), FIELDS)}", path=f"metadata.{field}")
        for field in raw
        if field not in FIELDS
    )
    _check_name(raw.get("name"), "name", problems)
    if raw.get("namespace") is not None:
        _check_name(raw["namespace"], "namespace", problems)
    labels = {} if raw.get("labels") is None else raw["labels"]
    if not _are_labels(labels):
        problems.append(
            ConfigError(
                f"must be at most {MAX_LABELS} pairs of text, each up to {MAX_LABEL_CHARACTERS} "
                "characters long",
                path="metadata.labels",
            )
        )
    _check_annotations(raw.get("annotations"), annotations, problems)
    version = None
    if raw.get("resourceVersion") is not None and not is_of_kubernetes(raw):
        version = version_of(raw)
        if version is None:
            problems.append(
                ConfigError("must be what the object was read with", path="metadata.resourceVersion")
            )
    return Metadata(str(raw.get("name")), labels, version)


def is_of_kubernetes(metadata: Any) -> bool:
    """Whether a Kubernetes server has written it."""
    return isinstance(metadata, dict) and metadata.get("uid") is not None


def version_of(metadata: Any) -> int | None:
    """The version of ours that a document was read with; None when it says none."""
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if is_of_kubernetes(metadata) or not isinstance(version, str):
        return None
    return int(version[:18]) if version.isascii() and version.isdigit() else None


def written_at(metadata: Any) -> str:
    """When a Kubernetes server made the object, as text that sorts; what it has not made comes last."""
    made = metadata.get("creationTimestamp") if isinstance(metadata, dict) else None
    return made if isinstance(made, str) else "~"


def annotation_path(name: str) -> str:
    """Where a document says an annotation."""
    return f"metadata.annotations[{name}]"


def _check_name(name: Any, field: str, problems: list[ConfigError]) -> None:
    try:
        if not isinstance(name, str):
            raise ConfigError("must be text", path=field)
        schema.check_name(name, field)
    except ConfigError as error:
        problems.append(error.within("metadata"))


def _check_annotations(raw: Any, known: Sequence[str], problems: list[ConfigError]) -> None:
    """All are text; those of others mean nothing here, and of ours all are known."""
    if raw is None:
        return
    if not isinstance(raw, dict):
        problems.append(ConfigError("must be a mapping of text to text", path="metadata.annotations"))
        return
    for name, text in raw.items():
        if not isinstance(text, str):
            problems.append(ConfigError("must be text; put it in quotes", path=annotation_path(name)))
        elif isinstance(name, str) and name.startswith(OWN) and name not in known:
            bare = [each.removeprefix(OWN) for each in known]
            listed = f"; there are {', '.join(known)}" if known else "; this kind has none"
            hint = did_you_mean(name.removeprefix(OWN), bare) or listed
            problems.append(ConfigError(f"is not known{hint}", path=annotation_path(name)))


def _are_labels(raw: Any) -> bool:
    if not isinstance(raw, dict) or len(raw) > MAX_LABELS:
        return False
    texts: Iterable[Any] = (*raw.keys(), *raw.values())
    return all(isinstance(text, str) and len(text) <= MAX_LABEL_CHARACTERS for text in texts)
