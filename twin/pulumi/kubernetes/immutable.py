"""Which fields of which kinds Kubernetes will not change in place: a change means a new object.

The lists follow the API server's own validation and, for ConfigMap and Secret, the official
provider: their data is treated as immutable unless the provider is told otherwise, so that what
uses them is rolled.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from twin.pulumi.provider.convert import Path, Plain


@dataclass(frozen=True)
class Rule:
    """Paths that are frozen, and paths below them that are free.

    `*` stands for any key or position.
    """

    frozen: tuple[str, ...] = ()
    free: tuple[str, ...] = ()

    def holds(self, path: Path) -> bool:
        """Tell whether a change at this path needs a new object."""
        return _under(path, self.frozen) and not _under(path, self.free)


def _under(path: Path, prefixes: tuple[str, ...]) -> bool:
    return any(_starts(path, prefix.split(".")) for prefix in prefixes)


def _starts(path: Path, prefix: list[str]) -> bool:
    return len(path) >= len(prefix) and all(
        want in ("*", step) for step, want in zip(path, prefix, strict=False)
    )


IDENTITY = Rule(("kind", "metadata.name", "metadata.namespace"))
SELECTOR = Rule(("spec.selector",))
ROLE = Rule(("roleRef",))
POD_FREE = (
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "tolerations",
    "schedulingGates",
    "containers.*.image",
    "initContainers.*.image",
)
STATEFUL_SET_FREE = (
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "revisionHistoryLimit",
)
VOLUME_FREE = (
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
)

RULES: Mapping[tuple[str, str], Rule] = {
    ("", "PersistentVolume"): Rule(("spec",), tuple(f"spec.{field}" for field in VOLUME_FREE)),
    ("", "PersistentVolumeClaim"): Rule(
        ("spec",), ("spec.resources", "spec.volumeAttributesClassName")
    ),
    ("", "Pod"): Rule(("spec",), tuple(f"spec.{field}" for field in POD_FREE)),
    ("", "ReplicationController"): Rule(),
    ("", "Service"): Rule(("spec.clusterIP", "spec.clusterIPs")),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Rule(
        ("spec.group", "spec.names.kind", "spec.names.plural", "spec.scope")
    ),
    ("apps", "DaemonSet"): SELECTOR,
    ("apps", "Deployment"): SELECTOR,
    ("apps", "ReplicaSet"): SELECTOR,
    ("apps", "StatefulSet"): Rule(("spec",), tuple(f"spec.{field}" for field in STATEFUL_SET_FREE)),
    ("batch", "Job"): Rule(
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
    ("networking.k8s.io", "IngressClass"): Rule(("spec.controller",)),
    ("node.k8s.io", "RuntimeClass"): Rule(("handler",)),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ROLE,
    ("rbac.authorization.k8s.io", "RoleBinding"): ROLE,
    ("scheduling.k8s.io", "PriorityClass"): Rule(("preemptionPolicy", "value")),
    ("storage.k8s.io", "StorageClass"): Rule(
        ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode", "allowedTopologies")
    ),
    ("storage.k8s.io", "CSIDriver"): Rule(("spec.attachRequired", "spec.volumeLifecycleModes")),
}
DATA = Rule(("binaryData", "data", "immutable", "stringData"))
SECRET_TYPE = Rule(("type",))


@dataclass(frozen=True)
class Mutable:
    """What the provider is told to change in place although the default is to replace."""

    config_maps: bool = False
    secrets: bool = False


def needs_new_object(old: Mapping[str, Plain], path: Path, mutable: Mutable) -> bool:
    """Decide whether a change at a path cannot be made in place.

    Args:
        old: the last inputs, plain: they say the kind, and whether the object is marked immutable.
        path: what changes.
        mutable: the provider's wishes for ConfigMap and Secret.
    """
    group, kind = str(old.get("apiVersion", "")).rpartition("/")[0], str(old.get("kind", ""))
    if IDENTITY.holds(path):
        return True
    if (group, kind) == ("", "ConfigMap"):
        return _data_frozen(old, changeable=mutable.config_maps) and DATA.holds(path)
    if (group, kind) == ("", "Secret"):
        return SECRET_TYPE.holds(path) or (
            _data_frozen(old, changeable=mutable.secrets) and DATA.holds(path)
        )
    return RULES.get((group, kind), Rule()).holds(path)


def _data_frozen(old: Mapping[str, Plain], *, changeable: bool) -> bool:
    return old.get("immutable") is True or not changeable
