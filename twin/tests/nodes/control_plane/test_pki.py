"""Certificates and kubeconfigs of a control plane."""

import base64
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import yaml
from cloudtwin.nodes.control_plane import certificates, pki
from cloudtwin.nodes.control_plane.pki import KeyPair
from cloudtwin.nodes.layout import Layout
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@pytest.fixture(scope="module")
def ca() -> KeyPair:
    return pki.new_ca("test-ca")


def certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def purposes(pair: KeyPair) -> set[x509.ObjectIdentifier]:
    return set(certificate(pair).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_the_certificate_of_a_node_has_the_subject_that_the_node_authorizer_requires(
    ca: KeyPair,
) -> None:
    pair = pki.issue(
        ca,
        "system:node:gpu-0",
        "system:nodes",
        names=["gpu-0"],
        addresses=[IPv4Address("10.0.0.1")],
    )

    subject = certificate(pair).subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:gpu-0"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    assert purposes(pair) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    alternative_names = (
        certificate(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    )
    assert alternative_names.get_values_for_type(x509.DNSName) == ["gpu-0"]
    assert alternative_names.get_values_for_type(x509.IPAddress) == [IPv4Address("10.0.0.1")]


def test_a_certificate_without_names_and_addresses_is_for_clients_only(ca: KeyPair) -> None:
    assert purposes(pki.issue(ca, "client")) == {ExtendedKeyUsageOID.CLIENT_AUTH}


def test_an_issued_certificate_is_signed_by_the_authority_and_cannot_sign(
    ca: KeyPair,
) -> None:
    client_certificate, authority_certificate = (
        certificate(pki.issue(ca, "client")),
        certificate(ca),
    )

    client_certificate.verify_directly_issued_by(authority_certificate)
    assert authority_certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not client_certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_kubeconfig_contains_the_server_and_the_credentials(ca: KeyPair) -> None:
    pair = pki.issue(ca, "client")

    document = yaml.safe_load(pki.kubeconfig("https://127.0.0.1:1", ca.certificate, pair, "here"))

    user = document["users"][0]["user"]
    assert base64.b64decode(user["client-key-data"]) == pair.key
    assert base64.b64decode(user["client-certificate-data"]) == pair.certificate
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert document["current-context"] == document["contexts"][0]["name"]


def test_a_public_key_belongs_to_its_private_key() -> None:
    key = pki.new_key()

    private_key = serialization.load_pem_private_key(key, password=None)
    public_key = serialization.load_pem_public_key(pki.public_key_of(key))
    assert public_key == private_key.public_key()


def test_keys_of_a_control_plane_are_private_and_do_not_change_when_written_again(
    tmp_path: Path,
) -> None:
    layout = Layout(tmp_path / "t")
    certificates.write(layout)
    files_before = {path.name: path.read_bytes() for path in layout.pki.iterdir()}
    certificates.write(layout)

    assert {path.name: path.read_bytes() for path in layout.pki.iterdir()} == files_before
    secrets = [*layout.pki.glob("*.key"), *layout.pki.glob("*.kubeconfig")]
    assert len(secrets) >= 8
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
