"""Connecting by TLS to what is polled: whom to trust, and which certificate to present.

Certificates are renewed under a running process, by cert-manager or by hand. Their files are looked at now
and then; changed ones are read into a new context, which the next connections use. Files that cannot be used
change nothing: the certificates there are may still be good.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Literal

from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.plugin.base import PluginParams


class TlsParams(PluginParams, frozen=True):
    """Parameters of who polls."""

    scheme: Literal["http", "https"] = "http"
    """Protocol of the port that is polled."""
    insecure_skip_verify: bool = True
    """With https: accept any server certificate."""
    ca_cert_path: str = ""
    """With https: PEM file of the authorities to trust; empty = the system's."""
    client_cert_path: str = ""
    """With https: PEM file of the certificate to present."""
    client_key_path: str = ""
    """With https: PEM file of that certificate's key."""


class ClientTls:
    """The context of one configuration, kept current. Building one and renewing block on the file system."""

    def __init__(self, params: TlsParams) -> None:
        self._params = params
        names = (params.ca_cert_path, params.client_cert_path, params.client_key_path)
        self.files: Sequence[str] = tuple(name for name in names if name)
        """Files it is made of."""
        self._read = self._looked = self._look()
        self.context = _https_context(params)

    def renew(self) -> bool:
        """Read the files again if they have changed and look the same twice; whether they were read.

        ``ConfigError`` when they cannot be used; then nothing changes, and they are tried again when they do.
        """
        before, self._looked = self._looked, self._look()
        if self._looked == self._read or self._looked != before:
            return False
        self._read = self._looked
        self.context = _https_context(self._params)
        return True

    def _look(self) -> tuple[FileSignature, ...]:
        return tuple(FileSignature.of(name) for name in self.files)


def client_tls(params: TlsParams) -> ClientTls | None:
    """How to connect; None for http. ``ConfigError`` for settings without effect and certificates not had."""
    tls_fields = {
        "caCertPath": params.ca_cert_path,
        "clientCertPath": params.client_cert_path,
        "clientKeyPath": params.client_key_path,
    }
    if params.scheme == "http":
        for field, value in tls_fields.items():
            if value:
                raise ConfigError(
                    "has no effect with scheme http; set scheme: https or remove it", path=field
                )
        return None
    return ClientTls(params)


def _https_context(params: TlsParams) -> ssl.SSLContext:
    """How to connect by https. ``ConfigError`` when a certificate cannot be had."""
    context = ssl.create_default_context()
    if params.ca_cert_path:
        _load(lambda: context.load_verify_locations(params.ca_cert_path), "caCertPath", params.ca_cert_path)
    if params.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if bool(params.client_cert_path) != bool(params.client_key_path):
        absent = "clientKeyPath" if params.client_cert_path else "clientCertPath"
        raise ConfigError(
            "clientCertPath and clientKeyPath belong together; give both or neither", path=absent
        )
    if params.client_cert_path:
        _load(
            lambda: context.load_cert_chain(params.client_cert_path, params.client_key_path),
            "clientCertPath",
            params.client_cert_path,
        )
    return context


def _load(load: Callable[[], None], field: str, file: str) -> None:
    """Run ``load``; ``ConfigError`` at ``field`` when ``file`` cannot be read or holds something else."""
    try:
        load()
    except ssl.SSLError as error:
        what = error.reason or str(error)
        raise ConfigError(f"{file} does not hold what it should in PEM form ({what})", path=field) from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror or error})", path=field) from error
