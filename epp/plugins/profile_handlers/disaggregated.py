"""Serve a request in stages: decode, and where it is worth while prefill and encode on workers of their own.

Each stage is a scheduling profile. Decode is the destination and the only stage a request cannot do without;
the choices of the others travel in headers to the sidecar beside the decode server (``epp.plugins.stages``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from epp.interfaces.handle import Handle
from epp.plugins.stages import ORDERS, Stage, StagedProfiles, stage_decider

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
    """Profile that chooses the destination; must exist."""
    prefill: str = "prefill"
    """Profile that chooses who computes the prompt; the stage is left out without it."""
    encode: str = "encode"
    """Profile that chooses who encodes media; the stage is left out without it."""


class StageDeciders(PluginParams, frozen=True):
    """Names of the plugins that decide; empty = the stage never runs on its own."""

    prefill: str = ""
    """Decides whether the prompt is computed apart."""
    encode: str = ""
    """Decides whether media are encoded apart."""


class DisaggregatedParams(PluginParams, frozen=True):
    """Parameters of disagg-profile-handler."""

    stage_order: str = "decode-first"
    """decode-first or prefill-first."""
    profiles: StageProfiles | None = None
    """Scheduling profile of each stage."""
    deciders: StageDeciders | None = None
    """Decider plugin of prefill and of encode."""
    on_no_prefill: Literal["decode", "fail"] = "decode"
    """When a prefill stage is wanted and no endpoint can: decode = the decode server does it, fail = 503."""
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


class DisaggregatedProfileHandler(StagedProfiles):
    """Runs decode and, as the deciders say, prefill and encode."""

    info: ClassVar = PluginInfo("disagg-profile-handler", DisaggregatedParams)

    def __init__(self, name: TypedName, params: DisaggregatedParams, handle: Handle) -> None:
        named = params.references().items()
        deciders = {params.decider_stage(path): stage_decider(handle.plugins, n, path) for path, n in named}
        order = ORDERS[params.order]
        required = params.on_no_prefill == "fail"
        super().__init__(name, params.profile_names(), deciders, order, prefill_required=required)
        self.warnings = [
            f"{_camel(f)} is deprecated; use profiles and deciders" for f in params.flat_fields()
        ]
        if not deciders and order[0] is Stage.DECODE:
            self.warnings.append("no deciders are named, so no request is disaggregated")


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
