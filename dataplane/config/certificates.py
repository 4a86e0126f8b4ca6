"""Certificates with their private key, as one PEM text."""

from __future__ import annotations

import re
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from dataplane.errors import ConfigError

TLS_CERTIFICATE: Final = "TLSCertificate"

_BLOCK: Final = re.compile(
    r"-----BEGIN ([A-Z0-9 ]{1,40})-----\r?\n[A-Za-z0-9+/=\s]{1,16000}-----END \1-----", re.ASCII
)


def split_pem(text: str) -> tuple[str, str]:
    """Certificates, and private keys."""
    chain: list[str] = []
    keys: list[str] = []
    for found in _BLOCK.finditer(text):
        (keys if found[1].endswith("PRIVATE KEY") else chain).append(f"{found[0]}\n")
    return "".join(chain), "".join(keys)


def check_certificate(text: str, path: str) -> None:
    """``ConfigError`` unless the text is a chain, the server's certificate first, and its key."""
    chain, key = split_pem(text)
    try:
        certificates = x509.load_pem_x509_certificates(chain.encode())
        private = serialization.load_pem_private_key(key.encode(), password=None)
        same = private.public_key() == certificates[0].public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            "must be PEM: the certificate, those that lead to its authority, and its key without a password",
            path=path,
        ) from None
    if not same:
        raise ConfigError("the key is not that of the first certificate", path=path)
