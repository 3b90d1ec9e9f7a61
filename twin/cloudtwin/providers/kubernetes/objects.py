"""Names of Kubernetes objects, and the annotations that control how Pulumi handles them."""

import hashlib
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

from cloudtwin.providers.protocol.values import Object, PropertyValue, Secret, Unknown, plain

SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
PATCH_FORCE = "pulumi.com/patchForce"
DELETION_PROPAGATION = "pulumi.com/deletionPropagationPolicy"
FIELD_MANAGER = "pulumi.com/patchFieldManager"
WAIT_FOR = "pulumi.com/waitFor"
AUTO_NAMED = "pulumi.com/autonamed"
DEFAULT_NAMESPACE = "default"
NAME_LIMIT = 253  # Kubernetes: the length of a DNS subdomain
SUFFIX_LENGTH = 8

# Built-in cluster-scoped kinds: the scope of a built-in kind is determined without a request.
CLUSTER_SCOPED = frozenset({
    "APIService", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding", "ClusterTrustBundle",
    "ComponentStatus", "CSIDriver", "CSINode", "CustomResourceDefinition", "DeviceClass", "DeviceTaintRule",
    "FlowSchema", "IngressClass", "IPAddress", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume", "PriorityClass",
    "PriorityLevelConfiguration", "ResourceSlice", "RuntimeClass", "SelfSubjectAccessReview",
    "SelfSubjectReview", "SelfSubjectRulesReview", "ServiceCIDR", "StorageClass", "SubjectAccessReview", "TokenReview",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration", "VolumeAttachment", "VolumeAttributesClass",
})  # fmt: skip


@dataclass(frozen=True)
class ObjectReference:
    """The identity of an object. `namespace` is None for a cluster-scoped kind."""

    api_version: str
    kind: str
    namespace: str | None
    name: str

    @property
    def id(self) -> str:
        """The object's id in Pulumi's state."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


def parse_id(identity: str) -> tuple[str | None, str]:
    """Split `namespace/name` or `name`.

    Raises:
        ValueError: the text has another form.
    """
    parts = identity.split("/")
    if len(parts) > 2 or not all(parts):
        raise ValueError(
            f"{identity!r} is not a valid ID of a Kubernetes object; write NAMESPACE/NAME, "
            "or NAME for a cluster-scoped kind"
        )
    return (parts[0], parts[1]) if len(parts) == 2 else (None, parts[0])


def kind_of_type(token: str) -> tuple[str, str]:
    """Return apiVersion and kind of a type token such as `kubernetes:apps/v1:Deployment`."""
    _, group_version, kind = token.split(":", 2)
    return group_version.removeprefix("core/"), kind


def metadata(value: Mapping[str, PropertyValue]) -> Object:
    """Return an object's metadata without secret marks; empty if it is absent or unknown."""
    result = plain(value.get("metadata"))
    return result if isinstance(result, dict) else {}


def annotation(value: Mapping[str, PropertyValue], name: str) -> str:
    """Return an annotation; empty if it is absent or unknown."""
    annotations = metadata(value).get("annotations")
    text = annotations.get(name) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) else ""


def is_enabled(value: Mapping[str, PropertyValue], name: str) -> bool:
    """Return True if an annotation is "true"."""
    return annotation(value, name).lower() == "true"


def timeout_seconds(value: Mapping[str, PropertyValue], option: float, default: float) -> float:
    """Return the timeout in seconds: from the resource options, else from the annotation, else the default."""
    if option > 0:
        return option
    text = annotation(value, TIMEOUT_SECONDS)
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else default


def with_name(
    inputs: Object, resource: str, seed: bytes, old: Mapping[str, PropertyValue]
) -> Object:
    """Return the inputs with a name: their own, the old generated name, or a new one.

    A new name is generateName, or the name of the Pulumi resource and a dash, followed by eight hexadecimal digits.

    Args:
        inputs: the program's inputs; not modified.
        resource: the name of the Pulumi resource.
        seed: the engine's random bytes: the same in a preview and the update that follows its plan.
        old: the last inputs, empty for a new object.
    """
    declared_metadata = metadata(inputs)
    if declared_metadata.get("name") or (
        "metadata" in inputs and isinstance(plain(inputs["metadata"]), Unknown)
    ):
        return inputs
    if is_enabled(old, AUTO_NAMED):
        name = metadata(old)["name"]
    else:
        stem = declared_metadata.get("generateName") or f"{resource.lower()}-"
        suffix = hashlib.sha256(seed + resource.encode()).hexdigest()[:SUFFIX_LENGTH]
        name = stem[: NAME_LIMIT - SUFFIX_LENGTH] + suffix
    return _with_metadata(inputs, name=name, annotations={AUTO_NAMED: "true"})


def with_namespace(inputs: Object, namespace: str) -> Object:
    """Return the inputs with a namespace."""
    return _with_metadata(inputs, namespace=namespace)


def _with_metadata(
    inputs: Object, annotations: Mapping[str, str] | None = None, **fields: PropertyValue
) -> Object:
    result = deepcopy(inputs)
    if annotations:
        declared_metadata = result.get("metadata")
        existing = (
            declared_metadata.value if isinstance(declared_metadata, Secret) else declared_metadata
        ) or {}
        fields["annotations"] = _with_fields(existing.get("annotations"), annotations)
    result["metadata"] = _with_fields(result.get("metadata"), fields)
    return result


def _with_fields(value: PropertyValue, fields: Mapping[str, PropertyValue]) -> PropertyValue:
    """Return an object with additional fields; a secret object stays secret."""
    if isinstance(value, Secret):
        return Secret(_with_fields(value.value, fields))
    return {**(value if isinstance(value, dict) else {}), **fields}


def is_patch_or_list(token: str) -> bool:
    """Return True for the SDK's Patch and List types of a built-in kind."""
    group_version, kind = kind_of_type(token)
    group = group_version.rpartition("/")[0]
    built_in = "." not in group or group.endswith(".k8s.io")
    return built_in and kind.endswith(("Patch", "List"))
