"""Decisions of a cloud about access to volumes."""

import base64
import json

import pytest
from cloudtwin.nodes.kubelet import volume_access
from cloudtwin.nodes.kubelet.csi_drivers import AUDIENCE
from cloudtwin.nodes.kubelet.volume_access import Grant, Refusal
from hypothesis import given
from hypothesis.strategies import text

CLIENT = "11111111-2222-3333-4444-555555555555"
TRAINER = "system:serviceaccount:elastic-job:trainer"
ACCOUNT = {
    "open": {"folder": "a", "allowed": True, "attributes": {"mountname": "abcd"}, "mode": "0755"},
    "shut": {"folder": "b", "allowed": False, "reason": "the security group has no rule for 988"},
    "named": {"folder": "c", "allowed": [CLIENT]},
    "federated": {"folder": "d", "allowed": {CLIENT: [TRAINER]}},
}


def tokens(subject: str = TRAINER, audience: str = AUDIENCE) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"sub": subject}).encode()).decode().rstrip("=")
    return json.dumps({audience: {"token": f"head.{claims}.signature"}})


def decide(handle: str, **context: str) -> Grant | Refusal:
    attributes = {volume_access.TOKENS if k == "tokens" else k: v for k, v in context.items()}
    return volume_access.decide(ACCOUNT, handle, attributes, AUDIENCE)


def test_access_to_an_open_volume_is_granted_with_its_folder_and_mode() -> None:
    assert decide("open", mountname="abcd", dnsname="any") == Grant("a", 0o755)


@pytest.mark.parametrize(
    ("handle", "context", "status", "reason"),
    [
        ("none", {}, "NOT_FOUND", "no volume 'none'"),
        ("open", {"mountname": "zzzz"}, "INVALID_ARGUMENT", "but 'abcd' in the account"),
        ("open", {}, "INVALID_ARGUMENT", "is None"),
        ("shut", {}, "PERMISSION_DENIED", "no rule for 988"),
        ("named", {}, "PERMISSION_DENIED", "no clientID"),
        ("named", {"clientID": "x"}, "PERMISSION_DENIED", "Storage Blob Data Contributor"),
        ("federated", {"clientID": "x", "tokens": tokens()}, "PERMISSION_DENIED", "identity x"),
        ("federated", {"clientID": CLIENT, "tokens": tokens("o")}, "PERMISSION_DENIED", "AADSTS700213"),
        ("federated", {"clientID": CLIENT}, "PERMISSION_DENIED", "no workload identity token"),
        (
            "federated",
            {"clientID": CLIENT, "tokens": tokens(audience="other")},
            "PERMISSION_DENIED",
            "no workload identity token",
        ),
    ],
)  # fmt: skip
def test_a_refusal_has_a_status_and_a_reason(
    handle: str, context: dict[str, str], status: str, reason: str
) -> None:
    refusal = decide(handle, **context)

    assert isinstance(refusal, Refusal)
    assert refusal.status == status
    assert reason in refusal.reason


def test_attribute_names_are_case_insensitive_as_in_the_blob_driver() -> None:
    assert decide("named", clientid=CLIENT) == Grant("c", 0o1777)
    assert decide("federated", ClientID=CLIENT, tokens=tokens()) == Grant("d", 0o1777)


@given(noise=text())
def test_an_invalid_token_has_no_subject(noise: str) -> None:
    assert volume_access.subject_of(noise, AUDIENCE) == ""
    token = json.dumps({AUDIENCE: {"token": f"a.{noise}.c"}})
    assert volume_access.subject_of(token, AUDIENCE) == ""
