"""What a document of a gateway may say.

apiVersion: pointsman.dev/v1
kind: Gateway
metadata: {name: public}
spec:
  listener: {address: 0.0.0.0, port: 8080}
  tls: {credentialRef: {name: public-certificate}}
  poolSelector: {matchLabels: {exposed: "yes"}}
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal

import msgspec

from dataplane.config.providers import CredentialRef
from dataplane.config.values import DurationText, Name, seconds
from dataplane.errors import ConfigError

MIB: Final = 1 << 20
MAX_BODY_BYTES: Final = 64 * MIB
MAX_IDLE_S: Final = 3600.0

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
LogPath = Annotated[str, msgspec.Meta(pattern=r"^/[^\x00-\x1f\x7f]{1,1000}$")]


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A part of a document."""


class Listener(_Section, frozen=True, kw_only=True):
    """Where clients connect."""

    address: str = "127.0.0.1"
    """IP address. The gateway asks nobody who he is: loopback keeps it private."""
    port: Port = 8080

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_address(self.address)
        except ValueError:
            raise ConfigError(f"{self.address[:60]!r} is no IP address", path="address") from None


class Tls(_Section, frozen=True, kw_only=True):
    """TLS towards clients."""

    credential_ref: CredentialRef
    """A ProviderCredential of type TLSCertificate."""


class PoolSelector(_Section, frozen=True, kw_only=True):
    """Which pools clients reach."""

    match_labels: dict[str, str]


class ExternalPickers(_Section, frozen=True, kw_only=True):
    """How pickers are reached that no driver here runs: those that pools name in ``endpointPickerRef``."""

    tls: bool = False
    """TLS with certificates that pickers draw themselves, and that nobody checks."""
    health_port: Port = 9003
    """Of gRPC health checks, in clear."""


class PayloadProcessor(_Section, frozen=True, kw_only=True):
    """The payload processor that every request passes before a pool is chosen."""

    name: Name = "default"
    """Its PayloadProcessorConfig."""
    address: Annotated[str, msgspec.Meta(min_length=1, max_length=253)] = "127.0.0.1"
    """IP address or host name."""
    port: Port = 9004
    health_port: Port = 9005
    """Of gRPC health checks, in clear."""
    tls: bool = False
    """TLS with a certificate that the processor draws itself, and that nobody checks."""
    failure_mode: Literal["FailOpen", "FailClose"] = "FailClose"
    """FailOpen lets requests pass unchecked when it is not there."""
    responses: bool = True
    """Show it responses, for guardrails on answers and headers on responses. False saves CPU."""


class GatewaySpec(_Section, frozen=True, kw_only=True):
    """``Gateway.spec``."""

    listener: Listener = Listener()
    max_request_body_bytes: Annotated[int, msgspec.Meta(ge=MIB, le=MAX_BODY_BYTES)] = 16 * MIB
    """Beyond it the answer is 413. Also what one connection may buffer."""
    stream_idle_timeout: DurationText = "300s"
    """A request or response without a byte for this long is ended; at most an hour."""
    observe_responses: bool = True
    """Show response bodies to pickers, for usage, time to first token and cached tokens. False saves CPU.

    They are shown in any case where a pool has rewrites: models are named in them.
    """
    access_log: LogPath = "/dev/stdout"
    """File on the gateway's machine, one JSON object per request."""
    tls: Tls | None = None
    pool_selector: PoolSelector | None = None
    """None = all pools."""
    external_pickers: ExternalPickers = ExternalPickers()
    payload_processor: PayloadProcessor | None = None
    """None = requests go to their pools as they are."""

    def __post_init__(self) -> None:
        if self.stream_idle_timeout_s > MAX_IDLE_S:
            raise ConfigError("must be at most 1h", path="streamIdleTimeout")

    @property
    def stream_idle_timeout_s(self) -> float:
        """In seconds."""
        return seconds(self.stream_idle_timeout, "streamIdleTimeout") or 0.0
