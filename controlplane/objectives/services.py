"""The rules of objectives and model rewrites; their specs are judged by the picker's own structs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from controlplane.core.resources import POOL_REFERENCE, Document, ResourceService, Wanted, check_pool_ref
from controlplane.objectives.models import InferenceModelRewrite, InferenceObjective
from dataplane.config.encode import encode_struct
from dataplane.errors import ConfigError
from epp.objects import schema


class ObjectiveService(ResourceService[InferenceObjective]):
    """InferenceObjectives."""

    kind = schema.OBJECTIVE
    plural = "objectives"
    versions = schema.OBJECT_VERSIONS
    spec_type = schema.ObjectiveSpec
    model = InferenceObjective
    references = (POOL_REFERENCE,)

    def check(self, wanted: Wanted, problems: list[ConfigError]) -> None:
        """That the pool can be one of ours."""
        check_pool_ref(wanted.spec.pool_ref, problems)

    def assign(self, row: InferenceObjective, spec: Any) -> None:
        """Pool and priority."""
        row.pool, row.priority = spec.pool_ref.name, spec.priority

    def spec_of(self, row: InferenceObjective) -> Document:
        """Without a priority where none was given: that is 0, and stays unsaid."""
        spec: Document = {"poolRef": {"name": row.pool}}
        if row.priority is not None:
            spec["priority"] = row.priority
        return spec


class ModelRewriteService(ResourceService[InferenceModelRewrite]):
    """InferenceModelRewrites."""

    kind = schema.REWRITE
    plural = "modelrewrites"
    versions = schema.OBJECT_VERSIONS
    spec_type = schema.RewriteSpec
    model = InferenceModelRewrite
    references = (POOL_REFERENCE,)
    export_order: ClassVar[Sequence[str]] = ("created_at", "pk")
    """The older of two decides, also where they are applied anew."""

    def check(self, wanted: Wanted, problems: list[ConfigError]) -> None:
        """That the pool can be one of ours."""
        check_pool_ref(wanted.spec.pool_ref, problems)

    def assign(self, row: InferenceModelRewrite, spec: Any) -> None:
        """Pool and rules."""
        row.pool = spec.pool_ref.name
        row.rules = [_plain(rule) for rule in spec.rules]

    def spec_of(self, row: InferenceModelRewrite) -> Document:
        """As it was written, defaults left out."""
        return {"poolRef": {"name": row.pool}, "rules": row.rules}


def _plain(rule: msgspec.Struct) -> Document:
    """A rule as the document has it."""
    return encode_struct(rule)
