"""An existing cluster and its volume: the twin, kind, minikube, an EKS or AKS cluster, or any other."""

from typing import Annotated, Literal

from pydantic import Field

from components.config.section import (
    LabelKey,
    LabelValue,
    ObjectName,
    Quantity,
    Section,
    matches_pattern,
)


class TolerationConfig(Section):
    """One taint that pods tolerate."""

    key: LabelKey = Field(description="The taint's key.")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="How to compare.")
    value: LabelValue | None = Field(
        default=None, description="The taint's value; none for `Exists`."
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="The taint's effect."
    )


class PoolConfig(Section):
    """Selector and tolerations for the nodes of a pool."""

    selector: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Labels that select the pool's nodes."
    )
    tolerations: tuple[TolerationConfig, ...] = Field(
        default=(), description="Tolerations for the taints of the pool's nodes."
    )


class ExistingClusterConfig(Section):
    """An existing cluster; the stack adds to it and never removes it."""

    kind: Literal["existing"] = Field(
        default="existing", description="`existing`: a cluster that already exists."
    )
    kubeconfig: str | None = Field(
        default=None, description="Path of the kubeconfig file; absent: `$KUBECONFIG`."
    )
    context: str | None = Field(
        default=None, description="Context in the kubeconfig; absent: its current one."
    )
    gpu_pool: PoolConfig = Field(
        default_factory=PoolConfig, description="The GPU nodes, where workers run."
    )
    scales_from_zero: bool = Field(
        default=False,
        description="Whether an autoscaler creates the GPU nodes when workers wait for them: `up` then waits for no "
        "pod on them.",
    )
    system_pool: PoolConfig = Field(
        default_factory=PoolConfig,
        description="The on-demand nodes, where etcd, controller and data preparation run.",
    )


class HostPathConfig(Section):
    """A folder that every node mounts at the same path."""

    kind: Literal["hostpath"] = Field(
        default="hostpath", description="`hostpath`: a folder that every node mounts."
    )
    path: Annotated[str, matches_pattern(r"/\S*", "an absolute path", "/mnt/everstep")] = Field(
        default="/mnt/everstep",
        description="The folder on the nodes; must exist and be writable for uid 10001.",
    )
    size: Quantity = Field(
        default="10Gi", description="Size to claim; a hostpath does not enforce it."
    )


class ClaimConfig(Section):
    """A volume of an existing cluster: a PersistentVolume, or a new volume of a StorageClass."""

    kind: Literal["claim"] = Field(
        default="claim",
        description="`claim`: a ReadWriteMany volume of an existing cluster, with any driver.",
    )
    volume_name: ObjectName | None = Field(
        default=None,
        description="Existing PersistentVolume, which stays when the stack is destroyed; absent: a new volume "
        "of `storageClass`.",
    )
    storage_class: ObjectName | None = Field(
        default=None,
        description="StorageClass; absent: the cluster's default, or no class with `volumeName`. Its "
        "`reclaimPolicy` decides whether a new volume outlives the stack.",
    )
    size: Quantity = Field(
        default="100Gi", description="Size to claim: at most the capacity of an existing volume."
    )
