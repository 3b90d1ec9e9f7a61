"""Decide whether a cloud allows a volume to be mounted: pure functions of the account's contents.

The account's providers write `cloud/volumes.json`: for each volume handle an entry with

    folder      folder of the volume's files, below the shared disk
    allowed     true; false; a list of client ids; or an object: client id -> federated subjects
    attributes  required values of the volume's attributes, such as `dnsname`; optional
    reason      the cloud's message if it is not allowed; optional
    mode        mode of a new folder, octal digits; default: writable by all users
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

TOKENS = "csi.storage.k8s.io/serviceAccount.tokens"
DEFAULT_MODE = "1777"


@dataclass(frozen=True)
class Grant:
    """Permission to mount a volume.

    Attributes:
        folder: its folder below the shared disk.
        mode: mode of the folder if it is created.
    """

    folder: str
    mode: int


@dataclass(frozen=True)
class Refusal:
    """Refusal to mount a volume.

    Attributes:
        status: name of a gRPC status.
        reason: message for the pod's events.
    """

    status: Literal["NOT_FOUND", "INVALID_ARGUMENT", "PERMISSION_DENIED"]
    reason: str


def decide(
    volumes: Mapping[str, Any], handle: str, context: Mapping[str, str], audience: str = ""
) -> Grant | Refusal:
    """Return the permission to mount a volume, or the reason why it may not be mounted.

    Args:
        volumes: contents of `volumes.json`.
        handle: the volume's handle.
        context: its attributes, and the tokens that the kubelet adds.
        audience: required audience of a token; empty for a driver without workload identity.
    """
    entry = volumes.get(handle)
    if not isinstance(entry, Mapping):
        return Refusal("NOT_FOUND", f"the account has no volume {handle!r}")
    attributes = {key.lower(): value for key, value in context.items()}
    for name, expected in dict(entry.get("attributes", {})).items():
        if (actual := attributes.get(name.lower())) != expected:
            reason = (
                f"{handle!r}: attribute {name!r} is {actual!r}, but {expected!r} in the account"
            )
            return Refusal("INVALID_ARGUMENT", reason)
    if refusal := _refuse_identity(entry, handle, attributes, audience):
        return refusal
    return Grant(str(entry["folder"]), int(str(entry.get("mode", DEFAULT_MODE)), 8))


def _refuse_identity(
    entry: Mapping[str, Any], handle: str, attributes: Mapping[str, str], audience: str
) -> Refusal | None:
    permission = entry.get("allowed", False)
    if isinstance(permission, bool):
        default_reason = f"access to {handle!r} is denied"
        reason = str(entry.get("reason") or default_reason)
        return None if permission else Refusal("PERMISSION_DENIED", reason)
    client = attributes.get("clientid", "")
    if client not in permission:
        reason = (
            f"AuthorizationPermissionMismatch: the identity {client or '(no clientID)'} may not use"
            f" {handle!r}; it needs the role Storage Blob Data Contributor there"
        )
        return Refusal("PERMISSION_DENIED", reason)
    if not isinstance(permission, Mapping):
        return None
    subject = subject_of(attributes.get(TOKENS.lower(), ""), audience)
    if subject in permission[client]:
        return None
    if attributes.get("mountwithworkloadidentitytoken", "").lower() != "true" and not subject:
        return Refusal("PERMISSION_DENIED", f"{handle!r}: no workload identity token was given")
    reason = (
        "AADSTS700213: no matching federated identity record found for the presented assertion subject"
        f" {subject!r} of the identity {client}; it is federated with {', '.join(permission[client]) or 'no subject'}"
    )
    return Refusal("PERMISSION_DENIED", reason)


def subject_of(tokens: str, audience: str) -> str:
    """Return the subject of the token for an audience, such as `system:serviceaccount:...`; empty for none.

    The signature is not checked: the kubelet has just received the token from the API server.
    """
    try:
        token = json.loads(tokens)[audience]["token"]
        claims = token.split(".")[1]
        padded_claims = claims + "=" * (-len(claims) % 4)
        return str(json.loads(base64.urlsafe_b64decode(padded_claims))["sub"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, binascii.Error):
        return ""
