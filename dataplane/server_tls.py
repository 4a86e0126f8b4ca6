"""TLS of a port: a certificate from files or made up, ALPN, client certificates, reload without a restart.

Without a certificate path the server makes a self-signed certificate in memory, as llm-d does: Envoy
encrypts and does not verify. With one, ``tls.crt`` and ``tls.key`` in that directory are used; with reload
on they are looked at once a second (in a thread, since a directory may be on a network). A pair is tried in
a scratch context first, so a bad one, or half of one, changes nothing; new connections use the new
certificate, open ones keep theirs. Authorities of client certificates are read once, when the port opens.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from dataplane.aside import aside
from dataplane.errors import ConfigError, did_you_mean

log = logging.getLogger(__name__)

RELOAD_INTERVAL_S: Final = 1.0
MAX_PEM_BYTES: Final = 1024 * 1024
SELF_SIGNED_DAYS: Final = 3650

_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1_2,
    "VersionTLS11": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

_TLS13_SUITES: Final = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)

# IANA names, which is what the flag takes, to OpenSSL's.
_SUITES: Final = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """What the flags say about TLS."""

    cert_path: str = ""
    """Directory with tls.crt and tls.key; empty for a self-signed certificate."""

    reload: bool = False
    """Take changed files without a restart."""

    min_version: str = ""
    """VersionTLS10 to VersionTLS13; HTTP/2 needs 1.2, so less than that means 1.2."""

    cipher_suites: tuple[str, ...] = ()
    """IANA names for TLS 1.2; empty for OpenSSL's defaults. The suites of TLS 1.3 are always on."""

    alpn: tuple[str, ...] = ("h2",)
    """Protocols to agree on, preferred ones first."""

    client_ca_file: str = ""
    """Authorities one of which must have signed a client's certificate; empty = clients need none."""

    path_flag: str = "--cert-path"
    """Flag that ``cert_path`` comes from, for errors; so the next one."""

    client_ca_flag: str = ""


class ReloadCounts(Protocol):
    """Where reloads are counted."""

    tls_reloads: int
    tls_reload_failures: int


class ServerTls:
    """The SSL context of a server, kept up to date with its files."""

    def __init__(self, options: TlsOptions, metrics: ReloadCounts) -> None:
        self._options = options
        self._minimum_version = _minimum_version(options)
        self._metrics = metrics
        self._files = (
            [Path(options.cert_path, name) for name in ("tls.crt", "tls.key")] if options.cert_path else []
        )
        self._seen: object = None
        self._watcher: asyncio.Task[None] | None = None
        self.context = self._new_context()
        if options.client_ca_file:
            self._require_clients()
        if self._files:
            self._seen = _signature(self._files)
            self._load_first()
        else:
            certificate, key = self_signed(use_rsa=_wants_rsa(options.cipher_suites))
            _load(self.context, certificate, key)

    def start(self) -> None:
        """Watch the files if reload is on."""
        if self._options.reload and self._files and self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch(), name="tls-reload")

    def stop(self) -> None:
        """End the watching."""
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    def reload(self, pair: tuple[bytes, bytes]) -> None:
        """Use another certificate and key (PEM) for new connections; raises ssl.SSLError and changes
        nothing when they do not fit together."""
        _load(self._new_context(), *pair)
        _load(self.context, *pair)

    def _load_first(self) -> None:
        try:
            self.reload(_read(self._files))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"cannot use {error.filename or self._options.cert_path}: {reason}; "
                "the directory must hold a matching tls.crt and tls.key in PEM form",
                path=self._options.path_flag,
            ) from error

    def _require_clients(self) -> None:
        options = self._options
        try:
            self.context.load_verify_locations(options.client_ca_file)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"cannot use {options.client_ca_file}: {reason}; it must hold certificates in PEM form",
                path=options.client_ca_flag,
            ) from error
        self.context.verify_mode = ssl.CERT_REQUIRED

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_INTERVAL_S)
            try:
                changed = await aside(self._changed)
                if changed is None:
                    continue
                self._seen, pair = changed
                self.reload(pair)
            except OSError as error:
                self._metrics.tls_reload_failures += 1
                log.error("keeping the old certificate, the new one cannot be used: %s", error)
            else:
                self._metrics.tls_reloads += 1
                log.info("took the changed certificate in %s", self._options.cert_path)

    def _changed(self) -> tuple[object, tuple[bytes, bytes]] | None:
        """Signature and contents of the files when they are not those seen last. Runs in a thread."""
        signature = _signature(self._files)
        if signature == self._seen:
            return None
        return signature, _read(self._files)

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum_version
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(list(self._options.alpn))
        ciphers = _openssl_names(self._options.cipher_suites)
        if ciphers:
            try:
                context.set_ciphers(":".join(ciphers))
            except ssl.SSLError as error:
                reason = "none of these suites is available here"
                raise ConfigError(reason, path="--tls-cipher-suites") from error
        return context


def _minimum_version(options: TlsOptions) -> ssl.TLSVersion:
    version = _VERSIONS.get(options.min_version)
    if version is None:
        known = ", ".join(name for name in _VERSIONS if name)
        hint = did_you_mean(options.min_version, _VERSIONS)
        raise ConfigError(f"{options.min_version!r} is not one of {known}{hint}", path="--tls-min-version")
    if options.min_version in ("VersionTLS10", "VersionTLS11"):
        log.warning("--tls-min-version %s: HTTP/2 needs TLS 1.2, which is used instead", options.min_version)
    # With suites of TLS 1.3 alone nothing below could be agreed on anyway.
    if options.cipher_suites and not _openssl_names(options.cipher_suites):
        return ssl.TLSVersion.TLSv1_3
    return version


def _openssl_names(suites: tuple[str, ...]) -> list[str]:
    for suite in suites:
        if suite not in _SUITES and suite not in _TLS13_SUITES:
            hint = did_you_mean(suite, (*_SUITES, *_TLS13_SUITES))
            raise ConfigError(f"{suite!r} is not a known cipher suite{hint}", path="--tls-cipher-suites")
    return [_SUITES[suite] for suite in suites if suite in _SUITES]


def _wants_rsa(suites: tuple[str, ...]) -> bool:
    names = _openssl_names(suites)
    return bool(names) and not any("ECDSA" in name for name in names)


def self_signed(*, use_rsa: bool = False) -> tuple[bytes, bytes]:
    """A certificate for ``localhost`` and its key, both PEM."""
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if use_rsa:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    else:
        key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Pointsman")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=SELF_SIGNED_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Put a pair into a context; raises ssl.SSLError when it is unusable."""
    with _as_file(certificate + b"\n" + key) as path:
        # An encrypted key would make OpenSSL ask at the terminal; an empty password makes it fail instead.
        context.load_cert_chain(path, password=b"")


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path to read ``content`` from, as the ssl module takes nothing else; in memory where Linux allows."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        with open(os.memfd_create("pem"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def _read(files: list[Path]) -> tuple[bytes, bytes]:
    certificate, key = (file.read_bytes() for file in files)
    if max(len(certificate), len(key)) > MAX_PEM_BYTES:
        raise OSError(f"a file is larger than {MAX_PEM_BYTES} bytes")
    return certificate, key


def _signature(files: list[Path]) -> object:
    """Changes when a file, or what its symbolic link points to, changes; None for one that is missing."""
    signature: list[tuple[int, int, int, int] | None] = []
    for file in files:
        try:
            found = file.stat()
        except OSError:
            signature.append(None)
        else:
            signature.append((found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))
    return signature
