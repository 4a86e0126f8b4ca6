"""``inference-token-extractor``: counts tokens and requests by who asked, for what, and who answered.

For telling where tokens go. It refuses nothing: what a tenant may use is limited elsewhere.
"""

from __future__ import annotations

import os
from typing import Annotated, ClassVar, Final

import msgspec

from dataplane.extproc.exchange import Ending
from dataplane.observability.numbers import LabelCap
from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.selection import AskedFor, serving_model
from ipp.plugins.header_names import check_header_name

Header = Annotated[str, msgspec.Meta(max_length=128)]
MAX_LENGTH: Final = 128


class InferenceTokenExtractorParams(PluginParams, frozen=True, kw_only=True):
    """All have defaults."""

    workload_header: Header = "x-workload-id"
    """Header that says for what a request is, set by an edge that clients cannot get past; empty = none."""
    namespace: Annotated[str, msgspec.Meta(max_length=253)] = ""
    """Value of the label ``namespace``; empty = that of the environment variable NAMESPACE."""

    def __post_init__(self) -> None:
        if self.workload_header:
            check_header_name(self.workload_header, "workloadHeader")


class InferenceTokenExtractor:
    """Only answers of status 200 to 299 count."""

    info: ClassVar = PluginInfo("inference-token-extractor", InferenceTokenExtractorParams)
    needs_first_byte: ClassVar[bool] = False
    needs_usage: ClassVar[bool] = True

    def __init__(self, name: TypedName, params: InferenceTokenExtractorParams, handle: Handle) -> None:
        self.name = name
        self._header = params.workload_header.lower()
        self._namespace = params.namespace or os.environ.get("NAMESPACE", "")
        self._metrics = handle.metrics.of_models
        self._tenants, self._workloads = LabelCap(), LabelCap()

    def request_sent(self, request: RequestMessage) -> None:
        """Nothing is known yet."""

    def first_byte(self, request: RequestMessage, status: int) -> None:
        """Never asked for."""

    def answer_used(self, request: RequestMessage, usage: Usage | None) -> None:
        """Count it."""
        served = serving_model(request)
        asked: str = request.state.get(AskedFor) or served
        fold = self._metrics.models.fold
        workload = request.headers.get(self._header)[:MAX_LENGTH] if self._header else ""
        labels = (
            self._tenants.fold(request.tenant),
            self._workloads.fold(workload),
            fold(asked),
            fold(served),
            self._namespace,
        )
        self._metrics.inference_requests.child(*labels).inc()
        if usage is not None:
            self._metrics.prompt_tokens.child(*labels).inc(usage.prompt_tokens or 0)
            self._metrics.completion_tokens.child(*labels).inc(usage.completion_tokens or 0)

    def exchange_over(self, request: RequestMessage, _: Ending) -> None:
        """All is known already."""
