"""Whether a cloud lets a volume be mounted: pure decisions over what the account holds.

The account's providers write `cloud/volumes.json`: by volume handle an entry of

    folder      below the shared disk, holds the volume's files
    allowed     true; or false; or the client ids that may; or by client id the subjects it is federated with
    attributes  what the volume's own attributes must say, such as `dnsname`; optional
    reason      why it is not allowed, in the cloud's words; optional
    mode        of the folder when it is made, octal digits; by default open to all
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

TOKENS = "csi.storage.k8s.io/serviceAccount.tokens"
OPEN = "1777"


@dataclass(frozen=True)
class Grant:
    """A volume may be mounted.

    Attributes:
        folder: below the shared disk.
        mode: of the folder, should it have to be made.
    """

    folder: str
    mode: int


@dataclass(frozen=True)
class Refusal:
    """A volume may not be mounted.

    Attributes:
        status: a gRPC status, by name.
        why: in words that will stand in the pod's events.
    """

    status: Literal["NOT_FOUND", "INVALID_ARGUMENT", "PERMISSION_DENIED"]
    why: str


def judge(
    volumes: Mapping[str, Any], handle: str, context: Mapping[str, str], audience: str = ""
) -> Grant | Refusal:
    """Decide on a mount.

    Args:
        volumes: what the account holds.
        handle: of the volume.
        context: its attributes, and the tokens that the kubelet adds.
        audience: for which a token must be; a driver without workload identity needs none.
    """
    entry = volumes.get(handle)
    if not isinstance(entry, Mapping):
        return Refusal("NOT_FOUND", f"the account has nothing that is called {handle!r}")
    given = {key.lower(): value for key, value in context.items()}
    for name, expected in dict(entry.get("attributes", {})).items():
        if (found := given.get(name.lower())) != expected:
            why = f"{handle!r}: attribute {name!r} is {found!r}, but the account says {expected!r}"
            return Refusal("INVALID_ARGUMENT", why)
    if refusal := _identity_refused(entry, handle, given, audience):
        return refusal
    return Grant(str(entry["folder"]), int(str(entry.get("mode", OPEN)), 8))


def _identity_refused(
    entry: Mapping[str, Any], handle: str, given: Mapping[str, str], audience: str
) -> Refusal | None:
    allowed = entry.get("allowed", False)
    if isinstance(allowed, bool):
        reason = entry.get("reason") or f"access to {handle!r} is denied"
        return None if allowed else Refusal("PERMISSION_DENIED", str(reason))
    client = given.get("clientid", "")
    if client not in allowed:
        why = (
            f"AuthorizationPermissionMismatch: the identity {client or '(no clientID)'} may not use"
            f" {handle!r}; it needs the role Storage Blob Data Contributor there"
        )
        return Refusal("PERMISSION_DENIED", why)
    if not isinstance(allowed, Mapping):
        return None
    subject = subject_of(given.get(TOKENS.lower(), ""), audience)
    if subject in allowed[client]:
        return None
    if given.get("mountwithworkloadidentitytoken", "").lower() != "true" and not subject:
        return Refusal("PERMISSION_DENIED", f"{handle!r}: no workload identity token was given")
    why = (
        "AADSTS700213: no matching federated identity record found for the presented assertion subject"
        f" {subject!r} of the identity {client}; it is federated with {', '.join(allowed[client]) or 'nobody'}"
    )
    return Refusal("PERMISSION_DENIED", why)


def subject_of(tokens: str, audience: str) -> str:
    """Return whose token for an audience the kubelet has passed on: `system:serviceaccount:...`; empty for none.

    The signature is not looked at: the kubelet took the token from the API server a moment ago.
    """
    try:
        token = json.loads(tokens)[audience]["token"]
        claims = token.split(".")[1]
        padded = claims + "=" * (-len(claims) % 4)
        return str(json.loads(base64.urlsafe_b64decode(padded))["sub"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, binascii.Error):
        return ""
