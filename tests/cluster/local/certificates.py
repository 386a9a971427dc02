"""The cluster's certificate authorities and the certificates they sign.

Kubernetes reads identity from a certificate's subject: the common name is the user, each organisation is a
group. RBAC then decides, so every component gets a certificate of its own.
"""

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY: Final = datetime.timedelta(days=365)
CLOCK_SKEW: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its private key, in PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority that can sign."""

    pair: KeyPair
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_authority(folder: Path, name: str) -> Authority:
    """A new self-signed authority, written as `name`.crt and `name`.key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, ())
    certificate = (
        _builder(subject, subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signing_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(pair=_write(folder, name, certificate, key), certificate=certificate, key=key)


def issue_certificate(
    authority: Authority,
    file_name: str,
    *,
    user: str,
    groups: tuple[str, ...] = (),
    hosts: Iterable[str] = (),
) -> KeyPair:
    """A certificate for `user`; with `hosts` it also serves under those names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject(user, groups), authority.certificate.subject, key.public_key())
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]),
        critical=False,
    ).add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
    )
    names = [_general_name(host) for host in hosts]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    folder = authority.pair.certificate.parent
    return _write(folder, file_name, builder.sign(authority.key, hashes.SHA256()), key)


def make_signing_key(path: Path) -> Path:
    """A private key alone, for service-account tokens."""
    _write_key(path, ec.generate_private_key(ec.SECP256R1()))
    return path


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
    )


def _subject(user: str, groups: tuple[str, ...]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _signing_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> KeyPair:
    pair = KeyPair(certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)
    return pair


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """In the older of two forms: the API server finds no signing key in a PKCS #8 file."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
