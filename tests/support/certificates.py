"""Certificates for tests of TLS."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A new self-signed certificate for 127.0.0.1 and its key, as tls.crt and tls.key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("model server")
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built = (
        _builder(name, name, key)
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "tls.crt", folder / "tls.key"
    cert_file.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(key.private_bytes(*_FORM))
    return cert_file, key_file


class Authority:
    """Issues certificates; its own is in ``ca.crt`` of its folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        own = _builder(self._name, self._name, self._key).add_extension(constraint, critical=True)
        self.file = folder / "ca.crt"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *uris: str,
        lasts: datetime.timedelta = datetime.timedelta(days=1),
        dns: tuple[str, ...] = (),
    ) -> tuple[Path, Path]:
        """``NAME.crt`` for 127.0.0.1, these hosts and URIs, and its key ``NAME.key``."""
        key = ec.generate_private_key(ec.SECP256R1())
        built = self.certify(name, key, *uris, lasts=lasts, dns=dns)
        cert_file, key_file = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        cert_file.write_bytes(built.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(key.private_bytes(*_FORM))
        return cert_file, key_file

    def certify(
        self,
        name: str,
        key: PrivateKey,
        *uris: str,
        lasts: datetime.timedelta = datetime.timedelta(days=1),
        dns: tuple[str, ...] = (),
    ) -> x509.Certificate:
        """The certificate of a key."""
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [x509.DNSName(each) for each in dns]
        return (
            _builder(_named(name), self._name, key, lasts)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )


_FORM = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    lasts: datetime.timedelta = datetime.timedelta(days=1),
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + lasts)
    )
