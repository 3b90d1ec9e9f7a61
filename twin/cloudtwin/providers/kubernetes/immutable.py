"""The fields that cannot be updated in place: a change requires a new object.

The lists follow the API server's validation and, for ConfigMap and Secret, the official provider:
their data is immutable by default, so that the pods that use them are replaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cloudtwin.providers.protocol.values import Path, PropertyValue, path_starts_with


@dataclass(frozen=True)
class ImmutableFields:
    """The immutable fields of a kind. In a path `*` matches any key or index.

    Attributes:
        immutable: paths of fields that cannot be updated.
        mutable: paths below them that can be updated.
    """

    immutable: tuple[str, ...] = ()
    mutable: tuple[str, ...] = ()

    def covers(self, path: Path) -> bool:
        """Return True if the field at a path cannot be updated."""
        return _is_under(path, self.immutable) and not _is_under(path, self.mutable)


def _is_under(path: Path, prefixes: tuple[str, ...]) -> bool:
    return any(path_starts_with(path, prefix.split(".")) for prefix in prefixes)


IDENTITY = ImmutableFields(("kind", "metadata.name", "metadata.namespace"))
SELECTOR = ImmutableFields(("spec.selector",))
ROLE = ImmutableFields(("roleRef",))
DATA = ImmutableFields(("binaryData", "data", "immutable", "stringData"))
POD_MUTABLE = (
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "tolerations",
    "schedulingGates",
    "containers.*.image",
    "initContainers.*.image",
)
STATEFUL_SET_MUTABLE = (
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "revisionHistoryLimit",
)
VOLUME_MUTABLE = (
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
)

FIELDS: Mapping[tuple[str, str], ImmutableFields] = {
    ("", "PersistentVolume"): ImmutableFields(
        ("spec",), tuple(f"spec.{field}" for field in VOLUME_MUTABLE)
    ),
    ("", "PersistentVolumeClaim"): ImmutableFields(
        ("spec",), ("spec.resources", "spec.volumeAttributesClassName")
    ),
    ("", "Pod"): ImmutableFields(("spec",), tuple(f"spec.{field}" for field in POD_MUTABLE)),
    ("", "ConfigMap"): DATA,
    ("", "Secret"): ImmutableFields(("type", *DATA.immutable)),
    ("", "Service"): ImmutableFields(("spec.clusterIP", "spec.clusterIPs")),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): ImmutableFields(
        ("spec.group", "spec.names.kind", "spec.names.plural", "spec.scope")
    ),
    ("apps", "DaemonSet"): SELECTOR,
    ("apps", "Deployment"): SELECTOR,
    ("apps", "ReplicaSet"): SELECTOR,
    ("apps", "StatefulSet"): ImmutableFields(
        ("spec",), tuple(f"spec.{field}" for field in STATEFUL_SET_MUTABLE)
    ),
    ("batch", "Job"): ImmutableFields(
        (
            "spec.completionMode",
            "spec.completions",
            "spec.managedBy",
            "spec.manualSelector",
            "spec.podFailurePolicy",
            "spec.selector",
            "spec.successPolicy",
            "spec.template",
        )
    ),
    ("networking.k8s.io", "IngressClass"): ImmutableFields(("spec.controller",)),
    ("node.k8s.io", "RuntimeClass"): ImmutableFields(("handler",)),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ROLE,
    ("rbac.authorization.k8s.io", "RoleBinding"): ROLE,
    ("scheduling.k8s.io", "PriorityClass"): ImmutableFields(("preemptionPolicy", "value")),
    ("storage.k8s.io", "StorageClass"): ImmutableFields(
        ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode", "allowedTopologies")
    ),
    ("storage.k8s.io", "CSIDriver"): ImmutableFields(
        ("spec.attachRequired", "spec.volumeLifecycleModes")
    ),
}


def needs_new_object(old: Mapping[str, PropertyValue], path: Path) -> bool:
    """Return True if a change at a path requires a new object.

    Args:
        old: the last inputs, without secret marks.
        path: the field that changes.
    """
    group, kind = str(old.get("apiVersion", "")).rpartition("/")[0], str(old.get("kind", ""))
    return IDENTITY.covers(path) or FIELDS.get((group, kind), ImmutableFields()).covers(path)
