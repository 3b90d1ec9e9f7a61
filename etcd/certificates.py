"""Certificates of etcd, its members and its clients, generated with the `openssl` of the image.

There are two CAs: one for clients and the servers that they reach, one between members. A
client's certificate therefore opens no connection between members. The keys of the CAs are
discarded: no further certificate can be issued, and a rotation replaces all certificates.

No certificate has a common name: etcd's JSON gateway refuses clients that have one as soon as users
are enabled.
"""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

VALIDITY_DAYS = 3650
CURVE = "P-256"


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A certificate to issue.

    Attributes:
        name: name of its files.
        names: names and addresses of the server, as in `DNS:etcd` or `IP:127.0.0.1`; empty for a client.
    """

    name: str
    names: Sequence[str] = ()


def issue(ca: str, certificates: Sequence[Certificate]) -> dict[str, str]:
    """Create a CA and the certificates that it issues.

    Args:
        ca: name of the CA's file, without its suffix.
        certificates: certificates to issue.

    Returns:
        Name of a file -> PEM: `.crt` and `.key` of each certificate, `.crt` of the CA.

    Raises:
        SystemExit: openssl refuses, for example because a name is not valid.
    """
    with tempfile.TemporaryDirectory() as folder_name:  # readable by its owner only
        folder = Path(folder_name)
        _openssl(folder, ca, _CA_EXTENSIONS)
        for certificate in certificates:
            signer = ("-CA", f"{ca}.crt", "-CAkey", f"{ca}.key")
            _openssl(folder, certificate.name, _leaf(certificate), *signer)
        (folder / f"{ca}.key").unlink()
        return {file.name: file.read_text() for file in folder.iterdir() if file.suffix != ".cnf"}


_CA_EXTENSIONS: Mapping[str, str] = {
    "basicConstraints": "critical,CA:TRUE,pathlen:0",
    "keyUsage": "critical,keyCertSign,cRLSign",
    "subjectKeyIdentifier": "hash",
}


def _leaf(certificate: Certificate) -> dict[str, str]:
    """Return the extensions of a certificate; members also connect to themselves and to each other."""
    names = {"subjectAltName": ",".join(certificate.names)} if certificate.names else {}
    usage = "serverAuth,clientAuth" if certificate.names else "clientAuth"
    return {
        "basicConstraints": "critical,CA:FALSE",
        "keyUsage": "critical,digitalSignature",
        "extendedKeyUsage": usage,
        "subjectKeyIdentifier": "hash",
        "authorityKeyIdentifier": "keyid",
        **names,
    }


def _openssl(folder: Path, name: str, extensions: Mapping[str, str], *signer: str) -> None:
    """Create a key and its certificate.

    Raises:
        SystemExit: openssl refuses, for example because a name is not valid.
    """
    lines = ["[req]", "distinguished_name=subject", "prompt=no", "x509_extensions=extensions"]
    lines += ["[subject]", "O=everstep", f"OU={name}", "[extensions]"]
    lines += [f"{key}={value}" for key, value in extensions.items()]
    (folder / f"{name}.cnf").write_text("\n".join(lines))
    command = [
        "openssl",
        "req",
        "-x509",
        "-config",
        f"{name}.cnf",
        "-days",
        str(VALIDITY_DAYS),
        *signer,
    ]
    command += ["-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{CURVE}", "-noenc"]
    command += ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"openssl cannot create {name}.crt: {result.stderr.strip()}")
