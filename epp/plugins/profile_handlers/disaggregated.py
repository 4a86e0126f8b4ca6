"""Serve a request in stages: decode, and where it is worth while prefill and encode on workers of their own.

Each stage is a scheduling profile. Decode is the destination and the only stage a request cannot do without;
the choices of the others travel in headers to the sidecar beside the decode server. A stage that finds no
endpoint is left out and counted: the decode server does its work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final

from dataplane.errors import ConfigError, InternalError, RequestError, ResourceExhaustedError
from dataplane.headers import ENCODERS, PREFILLER
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, TypedName
from epp.interfaces.attributes import PEER_ENDPOINT, PREFIX_MATCH, TOKENIZED_PROMPT
from epp.interfaces.endpoint import Endpoint
from epp.interfaces.handle import Handle
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

_FLAT: Final[Mapping[str, Stage]] = {
    "decode_profile": Stage.DECODE,
    "prefill_profile": Stage.PREFILL,
    "encode_profile": Stage.ENCODE,
}
_FLAT_DECIDERS: Final[Mapping[str, Stage]] = {
    "decider_plugin_name": Stage.PREFILL,
    "prefill_decider_plugin_name": Stage.PREFILL,
    "encode_decider_plugin_name": Stage.ENCODE,
}


class StageProfiles(PluginParams, frozen=True):
    """Names of the scheduling profiles."""

    decode: str = "decode"
    prefill: str = "prefill"
    encode: str = "encode"


class StageDeciders(PluginParams, frozen=True):
    """Names of the plugins that decide; empty = the stage never runs on its own."""

    prefill: str = ""
    encode: str = ""


class DisaggregatedParams(PluginParams, frozen=True):
    """Parameters of disagg-profile-handler."""

    stage_order: str = "decode-first"
    """decode-first or prefill-first."""
    profiles: StageProfiles | None = None
    """Scheduling profile of each stage."""
    deciders: StageDeciders | None = None
    """Decider plugin of prefill and of encode."""
    decode_profile: str = ""
    """Deprecated: profiles.decode."""
    prefill_profile: str = ""
    """Deprecated: profiles.prefill."""
    encode_profile: str = ""
    """Deprecated: profiles.encode."""
    prefill_decider_plugin_name: str = ""
    """Deprecated: deciders.prefill."""
    encode_decider_plugin_name: str = ""
    """Deprecated: deciders.encode."""
    decider_plugin_name: str = ""
    """Deprecated: deciders.prefill."""

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ConfigError(f"must be one of {', '.join(ORDERS)}", path="stageOrder")
        flat = self.flat_fields()
        if flat and (self.profiles is not None or self.deciders is not None):
            raise ConfigError(
                "cannot be mixed with profiles and deciders; move it there", path=_camel(flat[0])
            )
        old, new = self.decider_plugin_name, self.prefill_decider_plugin_name
        if old and new and old != new:
            raise ConfigError("names another decider than prefillDeciderPluginName", path="deciderPluginName")
        names = [name for name in self.profile_names().values() if name]
        if len(set(names)) < len(names):
            raise ConfigError(
                f"each stage needs a profile of its own, got {', '.join(names)}", path="profiles"
            )
        if self.order == "prefill-first":
            for path in self.references():
                if self.decider_stage(path) is Stage.PREFILL:
                    raise ConfigError("prefill-first always prefills first and asks no decider", path=path)

    @property
    def order(self) -> str:
        """``stage_order`` in its usual spelling: case, and what separates the words, do not matter."""
        letters = "".join(c for c in self.stage_order.lower() if c.isalpha())
        return next((order for order in ORDERS if order.replace("-", "") == letters), self.stage_order)

    def flat_fields(self) -> list[str]:
        """The deprecated fields that are in use."""
        return [field for field in (*_FLAT, *_FLAT_DECIDERS) if getattr(self, field)]

    def profile_names(self) -> dict[Stage, str]:
        """Profile of each stage."""
        nested = self.profiles or StageProfiles()
        names = {stage: getattr(nested, stage) for stage in Stage}
        return names | {stage: getattr(self, field) for field, stage in _FLAT.items() if getattr(self, field)}

    def references(self) -> Mapping[str, str]:
        """The deciders by the path of their parameter."""
        nested = self.deciders or StageDeciders()
        named = {f"deciders.{stage}": getattr(nested, stage) for stage in (Stage.PREFILL, Stage.ENCODE)}
        named |= {_camel(field): getattr(self, field) for field in _FLAT_DECIDERS}
        return {path: name for path, name in named.items() if name}

    @staticmethod
    def decider_stage(path: str) -> Stage:
        """The stage that the decider at a path of ``references`` decides about."""
        return Stage.ENCODE if "encode" in path else Stage.PREFILL


class DisaggregatedProfileHandler:
    """Runs decode and, as the deciders say, prefill and encode."""

    info: ClassVar = PluginInfo("disagg-profile-handler", DisaggregatedParams)
    consumes: Sequence[DataKey[Any]] = (TOKENIZED_PROMPT, PREFIX_MATCH)

    def __init__(self, name: TypedName, params: DisaggregatedParams, handle: Handle) -> None:
        self.name = name
        self._names = params.profile_names()
        self._order = ORDERS[params.order]
        self._deciders: dict[Stage, StageDecider] = {}
        for path, plugin_name in params.references().items():
            decider = handle.plugins[plugin_name]
            if not isinstance(decider, StageDecider):
                raise ConfigError(f"the plugin '{plugin_name}' is not a decider", path=path)
            self._deciders[params.decider_stage(path)] = decider
        self.warnings = [
            f"{_camel(f)} is deprecated; use profiles and deciders" for f in params.flat_fields()
        ]
        if not self._deciders and self._order[0] is Stage.DECODE:
            self.warnings.append("no deciders are named, so no request is disaggregated")

    def check_profiles(self, names: Sequence[str]) -> None:
        """Refuses a configuration without the decode profile: no request could be served."""
        decode = self._names[Stage.DECODE]
        if decode not in names:
            raise ConfigError(
                f"disagg-profile-handler '{self.name.name}' needs the decode profile '{decode}', "
                f"got {', '.join(names)}; add it, or name another one in profiles.decode"
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
        """Only a failure of decode is the request's, told with those of the other stages."""
        failed = failures.get(self._names[Stage.DECODE])
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
        decision = "-".join([*split, Stage.DECODE]) if split else "decode-only"
        prefill = self._names[Stage.PREFILL] if Stage.PREFILL in split else ""
        return SchedulingResult(found, decode, decision, left_out, prefill)

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        """Tell the sidecar where prefill and encode run."""
        prefill = result.results.get(self._names[Stage.PREFILL])
        if prefill is not None:
            set_headers[PREFILLER] = prefill.endpoints[0].key
        encode = result.results.get(self._names[Stage.ENCODE])
        if encode is not None:
            set_headers[ENCODERS] = ",".join(endpoint.key for endpoint in encode.endpoints)


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
