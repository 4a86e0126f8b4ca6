"""Serving a request in stages: what the profile handlers that do so have in common.

Each stage is a scheduling profile. Decode is the destination and the only stage a request cannot do without;
the choices of the others travel in headers to the sidecar beside the decode server. A stage that finds no
endpoint is left out and counted, and the decode server does its work; unless prefill is required.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from dataplane.errors import (
    ConfigError,
    InternalError,
    RequestError,
    ResourceExhaustedError,
    ServiceUnavailableError,
)
from dataplane.headers import ENCODERS, PREFILLER
from dataplane.plugin.base import DataKey, TypedName
from epp.interfaces.attributes import PEER_ENDPOINT, PREFIX_MATCH, TOKENIZED_PROMPT
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingProfile, SchedulingResult, StageDecider


class Stage(StrEnum):
    """What a stage does for a request."""

    DECODE = "decode"
    ENCODE = "encode"
    PREFILL = "prefill"


ORDERS: Final[Mapping[str, tuple[Stage, ...]]] = {
    "decode-first": (Stage.DECODE, Stage.ENCODE, Stage.PREFILL),
    "prefill-first": (Stage.PREFILL, Stage.ENCODE, Stage.DECODE),
}

_SPLIT: Final = (Stage.ENCODE, Stage.PREFILL)
"""Stages that may run on endpoints of their own, in the order in which a request passes them."""


class StagedProfiles:
    """Runs decode and, as the deciders say, prefill and encode. Base of profile handlers."""

    name: TypedName
    consumes: Sequence[DataKey[Any]] = (TOKENIZED_PROMPT, PREFIX_MATCH)

    def __init__(
        self,
        name: TypedName,
        names: Mapping[Stage, str],
        deciders: Mapping[Stage, StageDecider],
        order: Sequence[Stage] = ORDERS["decode-first"],
        *,
        prefill_required: bool = False,
    ) -> None:
        self.name = name
        self._names = names
        self._deciders = deciders
        self._order = order
        self._prefill_required = prefill_required

    def check_profiles(self, names: Sequence[str]) -> None:
        """Refuses a configuration without the decode profile, or without prefill where that is required."""
        required = {Stage.DECODE, Stage.PREFILL} if self._prefill_required else {Stage.DECODE}
        for stage in sorted(required):
            if self._names[stage] not in names:
                raise ConfigError(
                    f"{self.name.type} '{self.name.name}' needs the {stage} profile '{self._names[stage]}', "
                    f"got {', '.join(names)}; add it, or name another one in the handler's parameters"
                )

    def profiles(
        self,
        request: InferenceRequest,
        available: Mapping[str, SchedulingProfile],
        results: Mapping[str, ProfileResult | None],
    ) -> Sequence[SchedulingProfile]:
        """The next stage in order whose profile exists and that is wanted; none once decode has failed."""
        ran = [self._names[stage] in results for stage in self._order]
        done = max((i for i, has_run in enumerate(ran, 1) if has_run), default=0)
        decode = self._names[Stage.DECODE]
        if decode in results and results[decode] is None:
            return ()
        endpoint = self._first_endpoint(results)
        if endpoint is not None and self._order[0] is Stage.PREFILL:
            request.put(PEER_ENDPOINT, endpoint)
        for stage in self._order[done:]:
            profile = available.get(self._names[stage])
            if profile is not None and self._wants(stage, request, endpoint):
                return (profile,)
        return ()

    def _first_endpoint(self, results: Mapping[str, ProfileResult | None]) -> Endpoint | None:
        """What the stage that comes first in order has chosen."""
        first = results.get(self._names[self._order[0]])
        return first.endpoints[0] if first is not None else None

    def _wants(self, stage: Stage, request: InferenceRequest, endpoint: Endpoint | None) -> bool:
        """Whether a stage shall run: decode always, the first one always, others if their decider says so."""
        if stage is Stage.DECODE or stage is self._order[0]:
            return True
        decider = self._deciders.get(stage)
        return decider is not None and decider.wants_stage(request, endpoint)

    def judge(self, failures: Mapping[str, RequestError]) -> RequestError | None:
        """A failure of decode is the request's, told with those of the other stages, and so is one of
        prefill where that is required.
        """
        failed = failures.get(self._names[Stage.DECODE])
        if failed is None and self._prefill_required:
            return _no_prefill(failures.get(self._names[Stage.PREFILL]))
        if failed is None or not isinstance(failed, ResourceExhaustedError):
            return failed
        reasons = "; ".join(error.message for error in failures.values())
        return ResourceExhaustedError(f"failed to find available decode workers: {reasons}")

    def process(
        self, request: InferenceRequest, results: Mapping[str, ProfileResult | None]
    ) -> SchedulingResult:
        """Decode as the primary result, and which stages there are."""
        decode = self._names[Stage.DECODE]
        if results.get(decode) is None:
            raise InternalError("the decode profile did not run")
        found = {name: result for name, result in results.items() if result is not None}
        left_out = [stage for stage in _SPLIT if self._names[stage] in results.keys() - found.keys()]
        split = [stage for stage in _SPLIT if self._names[stage] in found]
        if Stage.PREFILL in split and _is_same(found[self._names[Stage.PREFILL]], found[decode]):
            split.remove(Stage.PREFILL)
        decision = "-".join([*split, Stage.DECODE]) if split else "decode-only"
        prefill, encode = (
            self._names[stage] if stage in split else "" for stage in (Stage.PREFILL, Stage.ENCODE)
        )
        return SchedulingResult(found, decode, decision, left_out, prefill, encode)

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Tell the sidecar where prefill and encode run."""
        tell_sidecar(result, self._names[Stage.PREFILL], self._names[Stage.ENCODE], set_headers)


def tell_sidecar(
    result: SchedulingResult, prefill_profile: str, encode_profile: str, set_headers: dict[str, str]
) -> None:
    """Set the sidecar's headers from the results of these profiles, as far as there are any.

    A server of both roles may be chosen for both: it is not told to ask itself.
    """
    prefill = result.results.get(prefill_profile)
    if prefill is not None and not _is_same(prefill, result.results[result.primary]):
        set_headers[PREFILLER] = prefill.endpoints[0].key
    encode = result.results.get(encode_profile)
    if encode is not None:
        set_headers[ENCODERS] = ",".join(endpoint.key for endpoint in encode.endpoints)


def _is_same(stage: ProfileResult, decode: ProfileResult) -> bool:
    """Whether a stage would run where decode runs."""
    return stage.endpoints[0] is decode.endpoints[0]


def stage_decider(plugins: Mapping[str, Any], name: str, path: str) -> StageDecider:
    """The decider that a parameter names. ``ConfigError`` when the plugin is none."""
    decider = plugins[name]
    if not isinstance(decider, StageDecider):
        raise ConfigError(f"the plugin '{name}' is not a decider", path=path)
    return decider


def _no_prefill(failed: RequestError | None) -> RequestError | None:
    """The error of a request that must be prefilled on an endpoint of its own, and found none."""
    if not isinstance(failed, ResourceExhaustedError):
        return failed
    return ServiceUnavailableError(
        f"no prefill endpoint is available: {failed.message}", error_code="no_prefill_endpoints"
    )
