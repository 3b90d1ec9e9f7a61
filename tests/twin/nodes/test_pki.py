import base64
from ipaddress import IPv4Address

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from twin.nodes import control_plane, pki
from twin.nodes.layout import Layout


@pytest.fixture(scope="module")
def authority():
    return pki.new_authority("test-ca")


def certificate(pair):
    return x509.load_pem_x509_certificate(pair.certificate)


def purposes(pair):
    return set(certificate(pair).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_a_node_s_certificate_names_it_as_the_node_authorizer_wants(authority):
    pair = pki.issue(
        authority,
        "system:node:gpu-0",
        "system:nodes",
        names=["gpu-0"],
        addresses=[IPv4Address("10.0.0.1")],
    )

    subject = certificate(pair).subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:gpu-0"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    assert purposes(pair) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    known_as = (
        certificate(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    )
    assert known_as.get_values_for_type(x509.DNSName) == ["gpu-0"]
    assert known_as.get_values_for_type(x509.IPAddress) == [IPv4Address("10.0.0.1")]


def test_a_client_without_addresses_may_not_pose_as_a_server(authority):
    assert purposes(pki.issue(authority, "client")) == {ExtendedKeyUsageOID.CLIENT_AUTH}


def test_what_is_issued_is_signed_by_the_authority_and_cannot_sign(authority):
    issued, signer = certificate(pki.issue(authority, "client")), certificate(authority)

    issued.verify_directly_issued_by(signer)
    assert signer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_kubeconfig_holds_all_a_client_needs(authority):
    pair = pki.issue(authority, "client")

    document = yaml.safe_load(
        pki.kubeconfig("https://127.0.0.1:1", authority.certificate, pair, "here")
    )

    user = document["users"][0]["user"]
    assert base64.b64decode(user["client-key-data"]) == pair.key
    assert base64.b64decode(user["client-certificate-data"]) == pair.certificate
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert document["current-context"] == document["contexts"][0]["name"]


def test_the_public_half_belongs_to_its_key():
    key = pki.new_key()

    assert pki.public_half(key).startswith(b"-----BEGIN PUBLIC KEY-----")
    assert isinstance(pki._load(key), ec.EllipticCurvePrivateKey)


def test_no_key_of_a_control_plane_is_readable_by_others_and_none_changes_when_asked_again(
    tmp_path,
):
    layout = Layout(tmp_path / "t")
    control_plane.write_certificates(layout)
    before = {path.name: path.read_bytes() for path in layout.pki.iterdir()}
    control_plane.write_certificates(layout)

    assert {path.name: path.read_bytes() for path in layout.pki.iterdir()} == before
    secrets = [*layout.pki.glob("*.key"), *layout.pki.glob("*.kubeconfig")]
    assert len(secrets) >= 8
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
