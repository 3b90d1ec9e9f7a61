"""Turns the YAML of manifests/ into Pulumi resources.

Pulumi's own ConfigFile would do it too, but registers its objects under names we do not choose and
without an order among them; here each object becomes an ordinary child. Only the kinds that our
files hold are known, so that a new one is a decision.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes import admissionregistration, core, rbac

FOLDER = Path(__file__).resolve().parents[2] / "manifests"

_KINDS: dict[str, Callable[..., pulumi.CustomResource]] = {
    "ServiceAccount": core.v1.ServiceAccount,
    "Role": rbac.v1.Role,
    "RoleBinding": rbac.v1.RoleBinding,
    "ClusterRole": rbac.v1.ClusterRole,
    "ClusterRoleBinding": rbac.v1.ClusterRoleBinding,
    "ValidatingAdmissionPolicy": admissionregistration.v1.ValidatingAdmissionPolicy,
    "ValidatingAdmissionPolicyBinding": admissionregistration.v1.ValidatingAdmissionPolicyBinding,
}


def read(file: str) -> list[dict[str, Any]]:
    """Give the objects of a file in manifests/, in its order."""
    with (FOLDER / file).open(encoding="utf-8") as stream:
        return [document for document in yaml.safe_load_all(stream) if document is not None]


def declare(
    prefix: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    """Declare one object; its name is made of `prefix`, its kind and its own name.

    Raises:
        ValueError: an object of a kind that is not expected in our files.
    """
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    make = _KINDS.get(kind)
    if make is None:
        raise ValueError(f"manifests/ holds a {kind} ({name}); known are {', '.join(_KINDS)}")
    properties = {key: manifest[key] for key in manifest if key not in {"apiVersion", "kind"}}
    renamed = {
        "roleRef": "role_ref",
        "automountServiceAccountToken": "automount_service_account_token",
    }
    arguments = {renamed.get(key, key): value for key, value in properties.items()}
    return make(f"{prefix}-{_kebab(kind)}-{name}", **arguments, opts=opts)


def _kebab(kind: str) -> str:
    """Write a kind as part of a resource's name: ClusterRole becomes cluster-role."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind)[1:]
