"""Which stages of a request an endpoint serves: the values of its role label.

A role is named after its stages, joined by hyphens. ``both`` is the deprecated spelling of
``prefill-decode``. An endpoint with an unknown role serves no stage.
"""

from __future__ import annotations

from typing import Final

from epp.interfaces.endpoint import EndpointSpec

ROLE_LABEL: Final = "llm-d.ai/role"

DECODE_ROLES: Final = frozenset(
    {"decode", "prefill-decode", "encode-decode", "encode-prefill-decode", "both"}
)
PREFILL_ROLES: Final = frozenset(
    {"prefill", "encode-prefill", "prefill-decode", "encode-prefill-decode", "both"}
)
ENCODE_ROLES: Final = frozenset({"encode", "encode-prefill", "encode-decode", "encode-prefill-decode"})


def shown_role(spec: EndpointSpec) -> str:
    """The role in words, for people who ask why an endpoint was not considered."""
    role = spec.labels.get(ROLE_LABEL)
    return "an endpoint without a role" if role is None else f"role {role}"


def serves_decode(spec: EndpointSpec) -> bool:
    """Whether the endpoint generates tokens; one without the label does."""
    role = spec.labels.get(ROLE_LABEL)
    return role is None or role in DECODE_ROLES


def serves_prefill(spec: EndpointSpec) -> bool:
    """Whether the endpoint computes prompts for others; the label must say so."""
    return spec.labels.get(ROLE_LABEL) in PREFILL_ROLES


def serves_encode(spec: EndpointSpec) -> bool:
    """Whether the endpoint encodes images, audio and video for others; the label must say so."""
    return spec.labels.get(ROLE_LABEL) in ENCODE_ROLES
