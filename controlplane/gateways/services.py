"""The rules of gateways."""

from __future__ import annotations

from typing import Any, Final

from controlplane.core.resources import Document, Reference, ResourceService
from controlplane.gateways.models import Gateway
from controlplane.gateways.specs import GatewaySpec
from controlplane.providers.credentials import CREDENTIAL
from controlplane.providers.models import ProviderCredential
from dataplane.config.certificates import TLS_CERTIFICATE
from dataplane.config.encode import encode_struct
from dataplane.errors import ConfigError
from epp.objects import schema

GATEWAY: Final = "Gateway"


class GatewayService(ResourceService[Gateway]):
    """Gateways."""

    kind = GATEWAY
    plural = "gateways"
    versions = (schema.OWN_VERSION,)
    spec_type = GatewaySpec
    model = Gateway
    references = (Reference(CREDENTIAL, "credential", "spec.tls.credentialRef.name", required=True),)

    def check_change(self, row: Gateway | None, spec: GatewaySpec, problems: list[ConfigError]) -> None:
        """The credential is a certificate."""
        if spec.tls is None:
            return
        name = spec.tls.credential_ref.name
        held = ProviderCredential.objects.filter(name=name).values_list("type", flat=True).first()
        if held is not None and held != TLS_CERTIFICATE:
            message = f"{name} is of type {held}; a gateway takes {TLS_CERTIFICATE}"
            problems.append(ConfigError(message, path="spec.tls.credentialRef.name"))

    def assign(self, row: Gateway, spec: Any) -> None:
        """The whole spec, and the credential for whoever wants to delete it."""
        row.spec = encode_struct(spec)
        row.credential = "" if spec.tls is None else spec.tls.credential_ref.name

    def spec_of(self, row: Gateway) -> Document:
        """With defaults."""
        spec: Document = row.spec
        return spec
