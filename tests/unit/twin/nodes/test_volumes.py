"""Whether a cloud lets a volume be mounted."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis.strategies import text

from twin.nodes import volumes
from twin.nodes.drivers import AUDIENCE
from twin.nodes.volumes import Grant, Refusal

CLIENT = "11111111-2222-3333-4444-555555555555"
TRAINER = "system:serviceaccount:elastic-job:trainer"
ACCOUNT = {
    "open": {"folder": "a", "allowed": True, "attributes": {"mountname": "abcd"}, "mode": "0755"},
    "shut": {"folder": "b", "allowed": False, "reason": "the security group has no rule for 988"},
    "named": {"folder": "c", "allowed": [CLIENT]},
    "federated": {"folder": "d", "allowed": {CLIENT: [TRAINER]}},
}


def tokens(subject=TRAINER, audience=AUDIENCE):
    claims = base64.urlsafe_b64encode(json.dumps({"sub": subject}).encode()).decode().rstrip("=")
    return json.dumps({audience: {"token": f"head.{claims}.signature"}})


def judge(handle, **context):
    given_ = {volumes.TOKENS if k == "tokens" else k: v for k, v in context.items()}
    return volumes.judge(ACCOUNT, handle, given_, AUDIENCE)


def test_an_open_volume_is_its_folder():
    assert judge("open", mountname="abcd", dnsname="any") == Grant("a", 0o755)


@pytest.mark.parametrize(
    ("handle", "context", "status", "why"),
    [
        ("none", {}, "NOT_FOUND", "nothing that is called 'none'"),
        ("open", {"mountname": "zzzz"}, "INVALID_ARGUMENT", "account says 'abcd'"),
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
def test_what_may_not_be_is_refused_with_the_reason(handle, context, status, why):
    refusal = judge(handle, **context)

    assert isinstance(refusal, Refusal)
    assert refusal.status == status
    assert why in refusal.why


def test_attributes_are_found_whatever_their_case_as_the_drivers_do():
    assert judge("named", clientid=CLIENT) == Grant("c", 0o1777)
    assert judge("federated", ClientID=CLIENT, tokens=tokens()) == Grant("d", 0o1777)


@given(noise=text())
def test_no_token_however_broken_is_somebody(noise):
    assert volumes.subject_of(noise, AUDIENCE) == ""
    broken = json.dumps({AUDIENCE: {"token": f"a.{noise}.c"}})
    assert volumes.subject_of(broken, AUDIENCE) == ""
