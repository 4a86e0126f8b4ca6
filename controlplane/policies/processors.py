"""How configurations of payload processors are kept; they are judged by the processor's own structs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from controlplane.core.canonical import canonical
from controlplane.core.resources import ENVELOPE, Document, ResourceService
from controlplane.policies.models import PayloadProcessorConfig
from dataplane.config import ipp
from dataplane.errors import ConfigError


class PayloadProcessorConfigService(ResourceService[PayloadProcessorConfig]):
    """PayloadProcessorConfigs: the processor's own file with a name in ``metadata``."""

    kind = ipp.KIND
    plural = "payloadprocessorconfigs"
    versions = (ipp.API_VERSION,)
    spec_type = ipp.PayloadProcessorConfig
    model = PayloadProcessorConfig
    flat: ClassVar[bool] = True

    def judge_spec(self, document: Mapping[str, Any], problems: list[ConfigError]) -> str | None:
        """The sections as canonical JSON."""
        said = {key: value for key, value in document.items() if key not in ENVELOPE}
        text = canonical(said, problems)
        return None if ipp.read_ipp_config(said, problems) is None else text

    def assign(self, row: PayloadProcessorConfig, spec: str) -> None:
        """The sections."""
        row.content = spec

    def spec_of(self, row: PayloadProcessorConfig) -> Document:
        """The sections as they were written."""
        said: Document = json.loads(row.content)
        return said

    def document(self, row: PayloadProcessorConfig) -> Document:
        """The processor's file with its name."""
        shown = super().document(row)
        return {**{key: shown[key] for key in ("apiVersion", "kind", "metadata")}, **shown["spec"]}
