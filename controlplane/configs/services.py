"""The rules of configurations as documents: what is accepted, and how revisions come about.

A document is the worker's own file with a name in ``metadata``. Annotations say what the file has no place
for:

    pointsman.dev/pools     of pickers: names of the pools it is for, by comma; a pool has one at most
    pointsman.dev/rollout   how applying it publishes: all (default), manual, 10% or 2 (the size of a canary)
    pointsman.dev/comment   why it is as it is; kept with the revision

A payload processor runs the document of its own name, and all guardrail policies
(``controlplane.policies.services``). Every change of content makes a revision; only a rollout brings it to
workers. ``apply`` begins one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from controlplane.configs import content, rollouts
from controlplane.configs.canary import parse_canary
from controlplane.configs.models import (
    MAX_REASON,
    ConfigDocument,
    PickerDocument,
    PoolBinding,
    ProcessorDocument,
)
from controlplane.configs.revisions import add_revision
from controlplane.configs.subjects import PICKERS, PROCESSORS, Subject
from controlplane.core.errors import ConflictError
from controlplane.core.metadata import OWN, annotation_path
from controlplane.core.resources import ENVELOPE, Document, Reference, ResourceService, is_storable
from controlplane.core.roles import Actor
from dataplane.config import ipp
from dataplane.config.epp_sections import EndpointPickerConfig
from dataplane.errors import ConfigError
from epp.objects import schema

POOLS: Final = f"{OWN}pools"
RELEASE: Final = f"{OWN}rollout"
COMMENT: Final = f"{OWN}comment"
ALL: Final = "all"
MANUAL: Final = "manual"
MAX_POOLS: Final = 500


class Said(msgspec.Struct):
    """A judged document."""

    content: content.Content
    release: str
    comment: str
    pools: list[str] = []


class ConfigService(ResourceService[ConfigDocument]):
    """What configurations of all kinds have in common."""

    subject: ClassVar[Subject]
    flat: ClassVar[bool] = True
    annotations: ClassVar[Sequence[str]] = (RELEASE, COMMENT)
    unwritten: ClassVar[frozenset[str]] = frozenset({"id", "active_id"})

    def judge_spec(self, document: Mapping[str, Any], problems: list[ConfigError]) -> Said | None:
        """Annotations, and the worker's verdict on the rest."""
        annotations = _annotations(document.get("metadata"), self.annotations)
        pools = _pools(annotations.get(POOLS, ""), problems)
        release = annotations.get(RELEASE, ALL).strip()
        if release not in {ALL, MANUAL}:
            try:
                parse_canary(release)
            except ConfigError as error:
                problems.append(
                    ConfigError(f"{error.message}, or {ALL}, or {MANUAL}", path=annotation_path(RELEASE))
                )
        comment = annotations.get(COMMENT, "")
        if len(comment) > MAX_REASON or not is_storable(comment):
            problems.append(
                ConfigError(
                    f"must be at most {MAX_REASON} printable characters", path=annotation_path(COMMENT)
                )
            )
        found = self.subject.judge(document, problems)
        return None if found is None else Said(found, release, comment, pools)

    def assign(self, row: ConfigDocument, spec: Said) -> None:
        """Content and annotations."""
        row.kind = self.kind
        row.content, row.pools = spec.content.text, spec.pools
        row.release, row.comment = spec.release, spec.comment

    def spec_of(self, row: ConfigDocument) -> Document:
        """The sections of the worker's file."""
        said = content.parsed(row.content)
        return {key: value for key, value in said.items() if key not in ENVELOPE}

    def document(self, row: ConfigDocument) -> Document:
        """The worker's file with its name and annotations."""
        shown = super().document(row)
        said = {
            POOLS: ",".join(row.pools),
            RELEASE: "" if row.release == ALL else row.release,
            COMMENT: row.comment,
        }
        annotations = {name: text for name, text in said.items() if text}
        if annotations:
            shown["metadata"]["annotations"] = annotations
        if not self.flat:
            return shown
        return {**{key: shown[key] for key in ("apiVersion", "kind", "metadata")}, **shown["spec"]}

    def saved(self, actor: Actor, row: ConfigDocument) -> None:
        """Another content is a new revision."""
        newest = row.revisions.first()
        digest = content.digest_of(row.content)
        if newest is None or newest.digest != digest:
            add_revision(actor, row, row.content, row.comment, newest)

    def applied(self, actor: Actor, row: ConfigDocument) -> None:
        """Publish the newest revision unless it was published before, or is to be published by hand."""
        newest = row.revisions.first()
        if row.release == MANUAL or newest is None or newest.rollouts.exists():
            return
        canary = None if row.release == ALL else parse_canary(row.release)
        rollouts.publish(actor, row.name, rollouts.Wish(canary=canary, comment=row.comment), self.kind)


class PickerConfigService(ConfigService):
    """EndpointPickerConfigs."""

    subject = PICKERS
    kind = PICKERS.kind
    plural = PICKERS.plural
    versions = content.VERSIONS
    spec_type = EndpointPickerConfig
    model = PickerDocument
    annotations: ClassVar[Sequence[str]] = (POOLS, RELEASE, COMMENT)
    references = (Reference(schema.POOL, "bindings__pool", annotation_path(POOLS)),)

    def link(self, row: ConfigDocument, spec: Said) -> None:
        """Make the document the one of its pools."""
        _bind(row)


class ProcessorConfigService(ConfigService):
    """PayloadProcessorConfigs."""

    subject = PROCESSORS
    kind = PROCESSORS.kind
    plural = PROCESSORS.plural
    versions = (ipp.API_VERSION,)
    spec_type = ipp.PayloadProcessorConfig
    model = ProcessorDocument


def _bind(row: ConfigDocument) -> None:
    """Make the document the one of its pools. ``ConflictError`` when a pool has another."""
    others = PoolBinding.objects.filter(pool__in=row.pools).exclude(document=row).select_related("document")
    taken = others.order_by("pool").first()
    if taken is not None:
        other = f"{row.kind} {taken.document.name}"
        raise ConflictError(f"the pool {taken.pool} is configured by {other} already")
    bound = set(row.bindings.values_list("pool", flat=True))
    row.bindings.exclude(pool__in=row.pools).delete()
    PoolBinding.objects.bulk_create(
        PoolBinding(document=row, pool=pool) for pool in row.pools if pool not in bound
    )


def _annotations(metadata: Any, known: Sequence[str]) -> dict[str, str]:
    """Our own annotations; what is wrong with them is told with the envelope."""
    raw = metadata.get("annotations") if isinstance(metadata, dict) else None
    said = raw if isinstance(raw, dict) else {}
    return {name: said[name] for name in known if isinstance(said.get(name), str)}


def _pools(text: str, problems: list[ConfigError]) -> list[str]:
    """Names in the order in which they are written."""
    names = [name for part in text.split(",") if (name := part.strip())]
    if len(names) > MAX_POOLS:
        problems.append(ConfigError(f"lists more than {MAX_POOLS} pools", path=annotation_path(POOLS)))
        return []
    for name in names:
        try:
            schema.check_name(name, annotation_path(POOLS))
        except ConfigError as error:
            problems.append(error)
            return []
    return list(dict.fromkeys(names))
