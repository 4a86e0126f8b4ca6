"""TLS of the discovery server: its own certificate, and who a client's certificate says it is.

A client's certificate may stand in for a token that is bound. A URI among its alternative names says for
what: ``spiffe://DOMAIN/pointsman/pool/NAME``, ``.../gateway/NAME`` or ``.../processor/NAME``, with
``/node/ID`` behind it for one of them. That it comes from an authority that may say so is checked by TLS; the
domain says nothing here.

Files are looked at when somebody connects. A set that cannot be used changes nothing, and that is said once.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from controlplane.core.roles import Actor, Binding, BoundTo, Channel, Role
from controlplane.core.tokens import NODE_ID
from dataplane.errors import ConfigError
from dataplane.files import FileSignature, read_regular_file

log = logging.getLogger(__name__)

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
"""What pools, gateways and processors may be called."""
MAX_PEM_BYTES: Final = 1 << 20
MAX_ACTOR: Final = 253
_OURS: Final = re.compile(r"spiffe://[^/]+/pointsman/(.*)")
_SHAPE: Final = re.compile(
    rf"(?P<kind>{'|'.join(BoundTo)})/(?P<name>{NAME.pattern})(?:/node/(?P<node>{NODE_ID.pattern}))?", re.ASCII
)

Stamp = tuple[FileSignature, ...]


class Certified(NamedTuple):
    """Who somebody is by a certificate."""

    actor: Actor
    until: datetime
    """When its time is over."""

    @property
    def holds(self) -> bool:
        """Whether its time is not over."""
        return datetime.now(UTC) < self.until


def certified(pem: bytes) -> Certified | None:
    """Who a verified certificate says its owner is; None when it does not. ``ConfigError`` when what it says
    makes no sense.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    except (ValueError, x509.DuplicateExtension) as error:
        raise ConfigError(f"the certificate cannot be read: {error}") from None
    ours = [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if _OURS.match(uri)]
    if not ours:
        return None
    found = _OURS.match(ours[0])
    said = _SHAPE.fullmatch(found[1]) if found is not None and len(ours) == 1 else None
    if said is None:
        raise ConfigError(
            "the certificate must have one name "
            f"spiffe://DOMAIN/pointsman/{'|'.join(BoundTo)}/NAME[/node/ID], it has {', '.join(ours)[:300]}"
        )
    binding = Binding(BoundTo(said["kind"]), said["name"], said["node"] or "")
    name = f"certificate {ours[0]}"[:MAX_ACTOR]
    actor = Actor(name, Role.WORKER, Channel.AUTOMATION, binding=binding)
    return Certified(actor, certificate.not_valid_after_utc)


class ServerFiles:
    """The certificate of the server, its key, and the authorities of clients. ``credentials`` blocks."""

    def __init__(self, cert_file: str, key_file: str, client_ca_file: str) -> None:
        self._files = (cert_file, key_file, client_ca_file)
        self._used: Stamp = ()
        self._refused: Stamp = ()

    def credentials(self) -> grpc.ServerCredentials:
        """For a port. ``ConfigError`` when a file is no good."""
        self._used = self._stamp()
        first = self._read()
        return grpc.dynamic_ssl_server_credentials(
            first,
            self._renewed,  # type: ignore[arg-type] # None is what gRPC takes for "as before"
            require_client_authentication=bool(self._files[2]),
        )

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """What is used from now on; None = what was used before. Called by gRPC, on threads of its own."""
        stamp = self._stamp()
        if stamp in (self._used, self._refused):
            return None
        try:
            found = self._read()
        except ConfigError as error:
            log.warning("TLS goes on with the files it has read before: %s", error)
            self._refused = stamp
            return None
        self._used = stamp
        log.info("changed files of TLS are used from now on")
        return found

    def _stamp(self) -> Stamp:
        return tuple(FileSignature.of(name) for name in self._files if name)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        cert_file, key_file, ca_file = self._files
        key, chain = _pem(key_file, "--tls-key"), _pem(cert_file, "--tls-cert")
        authorities = _pem(ca_file, "--client-ca") if ca_file else None
        try:
            shown = x509.load_pem_x509_certificates(chain)[0].public_key()
        except ValueError:
            raise ConfigError("holds no certificate", path=f"--tls-cert {cert_file}") from None
        try:
            private = load_pem_private_key(key, None)
        except (ValueError, TypeError):
            raise ConfigError(
                "holds no private key without a password", path=f"--tls-key {key_file}"
            ) from None
        if private.public_key() != shown:
            raise ConfigError("is not the key of the certificate", path=f"--tls-key {key_file}")
        if authorities is not None:
            try:
                x509.load_pem_x509_certificates(authorities)
            except ValueError:
                raise ConfigError("holds no certificate", path=f"--client-ca {ca_file}") from None
        return grpc.ssl_server_certificate_configuration([(key, chain)], authorities)


def _pem(name: str, flag: str) -> bytes:
    return read_regular_file(name, MAX_PEM_BYTES, path=f"{flag} {name}")
