"""Conversion of the YAML in manifests/ to Pulumi resources.

Pulumi's ConfigFile registers objects in no defined order, under names that cannot be chosen; this module declares
each object as an ordinary child. It declares only the kinds in `_KINDS`, so that a new kind is a deliberate decision.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes import admissionregistration, core, rbac

from everstep.resources import data_path

FOLDER = data_path("manifests")
_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""PyYAML's C parser if it is available: the Python parser would take about 3 % of the time of a preview."""

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
    """Return the objects of a file in manifests/, in the order of the file."""
    with (FOLDER / file).open(encoding="utf-8") as stream:
        documents = yaml.load_all(stream, _LOADER)  # a SafeLoader
        return [document for document in documents if document is not None]


def declare(
    prefix: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    """Declare an object under a name that consists of `prefix`, its kind and its own name.

    Raises:
        ValueError: the kind is not supported.
    """
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    resource_class = _KINDS.get(kind)
    if resource_class is None:
        raise ValueError(
            f"manifests/ contains a {kind} ({name}); supported kinds are {', '.join(_KINDS)}"
        )
    properties = {key: manifest[key] for key in manifest if key not in {"apiVersion", "kind"}}
    argument_names = {
        "roleRef": "role_ref",
        "automountServiceAccountToken": "automount_service_account_token",
    }
    arguments = {argument_names.get(key, key): value for key, value in properties.items()}
    return resource_class(f"{prefix}-{_kebab(kind)}-{name}", **arguments, opts=opts)


def _kebab(kind: str) -> str:
    """Return a kind as part of a resource name: ClusterRole becomes cluster-role."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind)[1:]
