"""X.509 certificates and kubeconfigs: one CA for each twin, one key pair for each client or server.

Keys are elliptic-curve keys, since a dozen RSA keys take seconds. Private files are readable by their owner only.
"""

import base64
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cloudtwin import files

VALID_DAYS = 365
MASTERS = "system:masters"


@dataclass(frozen=True)
class KeyPair:
    """A key and its certificate, both PEM."""

    certificate: bytes
    key: bytes

    def save(self, folder: Path, name: str) -> None:
        """Write `<name>.key`, then `<name>.crt`: a reader that finds the certificate finds the key too."""
        files.write(folder / f"{name}.key", self.key, files.PRIVATE)
        files.write(folder / f"{name}.crt", self.certificate)


def new_key() -> bytes:
    """Return a new private key, PEM."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def public_key_of(key: bytes) -> bytes:
    """Return the public key of a private key, PEM."""
    return (
        _load(key)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def new_ca(name: str) -> KeyPair:
    """Return a new CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = _usage(certificates=True)
    certificate = (
        _certificate(subject, subject, key.public_key(), signer=key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def issue(
    ca: KeyPair,
    user: str,
    group: str | None = None,
    *,
    names: Sequence[str] = (),
    addresses: Sequence[IPv4Address] = (),
) -> KeyPair:
    """Return a client key pair for `user` in `group`; with names or addresses, it is valid for a server too."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    issuer, signer = x509.load_pem_x509_certificate(ca.certificate), _load(ca.key)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _certificate(
        x509.Name(parts), issuer.subject, key.public_key(), signer=signer.public_key()
    )
    if names or addresses:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        alternative_names = [*map(x509.DNSName, names), *map(x509.IPAddress, addresses)]
        builder = builder.add_extension(
            x509.SubjectAlternativeName(alternative_names), critical=False
        )
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def kubeconfig(server: str, ca: bytes, client: KeyPair, name: str) -> str:
    """Return a self-contained kubeconfig; it is a secret."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": _base64(ca)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _base64(client.certificate),
                    "client-key-data": _base64(client.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    signer: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    """Return the builder of a certificate. Python 3.13 and newer refuse certificates that do not identify both keys."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # tolerates a clock that is set back
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=certificates,
        crl_sign=certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load(key: bytes) -> ec.EllipticCurvePrivateKey:
    private_key = serialization.load_pem_private_key(key, password=None)
    if not isinstance(private_key, ec.EllipticCurvePrivateKey):
        raise TypeError("not an elliptic-curve key")
    return private_key


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
