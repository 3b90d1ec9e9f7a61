"""The interface between the clouds and the workloads.

Each kind of cluster yields a `Cluster` and each kind of storage a `VolumeSource`; an `Environment`
combines both. `platform.claim.SharedClaim` creates the same volume and claim from any `VolumeSource`;
the workloads use only the resulting `Storage`. No code downstream depends on the kind of cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes import core

from components.config import PoolConfig, TolerationConfig
from everstep.catalog.names import MOUNT

_VOLUME = "everstep"
DATA_ACCOUNT = "data-preparation"
"""ServiceAccount of the data preparation, if it has its own identity; clouds trust this name."""

DATA_RETRIES = 3
"""Retries of the data preparation."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The nodes of a pool, for pods: labels that the nodes have and taints that the pods tolerate."""

    selector: Mapping[str, str]
    tolerations: Sequence[TolerationConfig]

    @classmethod
    def from_config(cls, pool: PoolConfig) -> "Placement":
        """Return the placement that a stack's configuration describes."""
        return cls(selector=pool.selector, tolerations=pool.tolerations)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster, as all workloads use it.

    Attributes:
        provider: Kubernetes provider, through which all objects in the cluster are created.
        gpu_pool: GPU nodes, for workers.
        system_pool: nodes that are never interrupted, for everything else.
        kubeconfig: secret content of a kubeconfig file, not its path.
        region: cloud region; None without a cloud.
        zone: availability zone of the workers; None without a cloud, or if they may be in several.
        name: name of the cluster in the cloud; None without a cloud.
        identifier: ARN or ARM id of the cluster, which a new certificate does not change; None without a cloud.
        endpoint: address of the API server; None if only the kubeconfig contains it.
        efa_interfaces: number of Elastic Fabric Adapters of a GPU node; 0 without EFA.
        gpu_zones: zone labels of the GPU nodes, the preferred pool's first; empty if they are not known, and on AKS
            with `cluster.gpuPool`.
        scales_from_zero: whether GPU nodes are created when workers wait for them.
    """

    provider: kubernetes.Provider
    gpu_pool: Placement
    system_pool: Placement
    kubeconfig: pulumi.Output[str]
    region: str | None = None
    zone: str | None = None
    name: pulumi.Input[str] | None = None
    identifier: pulumi.Input[str] | None = None
    endpoint: pulumi.Input[str] | None = None
    efa_interfaces: int = 0
    gpu_zones: Sequence[str] = ()
    scales_from_zero: bool = False


@dataclass(frozen=True, kw_only=True)
class VolumeSource:
    """A volume, independent of any cluster.

    The kubelet or a CSI driver mounts it on the node. Pods never connect to the storage themselves,
    and no network policy allows it.

    Attributes:
        spec: source of the PersistentVolume and nothing else, as an argument of
            `core.v1.PersistentVolumeSpecArgs`: `{"csi": core.v1.CSIPersistentVolumeSourceArgs(...)}`.
            A change replaces the PersistentVolume, whose source is immutable. Empty if the stack
            declares no PersistentVolume, because the cluster has or provisions one.
        location: path, share or bucket in which a user finds the files.
        size: capacity to declare and to claim, as a Kubernetes quantity.
        volume_name: existing PersistentVolume that the claim binds; None if `spec` describes it or a
            class provisions it.
        storage_class: StorageClass of the claim; empty for none; None for the cluster's default.
        annotations: annotations of the PersistentVolume.
        mount_options: mount options of the PersistentVolume.
        service_account_annotations: annotations of the ServiceAccount whose pods mount it.
        service_account_labels: labels of that ServiceAccount.
        pod_labels: labels of the pods that mount it.
        prerequisites: resources that must exist from before the first mount until after the last mount: a CSI
            driver, a role, a federated credential.
    """

    spec: Mapping[str, Any]
    location: pulumi.Output[str]
    size: str
    volume_name: pulumi.Input[str] | None = None
    storage_class: str | None = ""
    annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    mount_options: Sequence[str] = ()
    service_account_annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    service_account_labels: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    prerequisites: Sequence[pulumi.Resource] = ()


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The volume that all workers share, as pods use it.

    Attributes:
        claim: name of the PersistentVolumeClaim.
        location: path, share or bucket in which a user finds the files.
        service_account: name of the ServiceAccount whose pods may mount it.
        pod_labels: labels that pods need to mount it.
    """

    claim: pulumi.Output[str]
    location: pulumi.Output[str]
    service_account: pulumi.Output[str]
    pod_labels: Mapping[str, str] = field(default_factory=dict)

    def volume(self) -> core.v1.VolumeArgs:
        """Return the volume of a pod."""
        source = core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=self.claim)
        return core.v1.VolumeArgs(name=_VOLUME, persistent_volume_claim=source)

    def mount(self) -> core.v1.VolumeMountArgs:
        """Return a container's mount of the whole volume."""
        return core.v1.VolumeMountArgs(name=_VOLUME, mount_path=MOUNT)

    def mount_folder(self, sub_path_expr: str, mount_path: str) -> core.v1.VolumeMountArgs:
        """Return the mount of one folder, created if missing; `$(NAME)` is expanded."""
        return core.v1.VolumeMountArgs(
            name=_VOLUME, mount_path=mount_path, sub_path_expr=sub_path_expr
        )


@dataclass(frozen=True, kw_only=True)
class DataAccess:
    """A cloud identity that may read data in an object store.

    With `data.source` its ServiceAccount is DATA_ACCOUNT; with `data.cache`, the workers' account.

    Attributes:
        env: environment variables of the pods that read.
        pod_labels: labels that give these pods the identity.
        service_account_annotations: annotations of the ServiceAccount that name the identity.
        uses_pod_identity_agent: whether these pods get credentials from the EKS Pod Identity Agent on their node.
        proxy_port: port of the proxy through which these pods reach the store or get credentials; None without one.
        retries: retries of the data preparation, enough until the cloud has applied the identity's permissions.
        prerequisites: resources that must exist before these pods start.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    service_account_annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    uses_pod_identity_agent: bool = False
    proxy_port: int | None = None
    retries: int = DATA_RETRIES
    prerequisites: Sequence[pulumi.Resource] = ()


def data_folder(dataset: str, owner: str | None = None) -> str:
    """Return the folder of a prepared data set, relative to the volume.

    Args:
        dataset: name of the data set.
        owner: the only job that uses the folder; None: all jobs use it.
    """
    return f"data/{dataset}.{owner}" if owner else f"data/{dataset}"  # no name of a job has a dot


def run_folder(job: str) -> str:
    """Return the folder of a job's checkpoints, journal and result, relative to the volume."""
    return f"runs/{job}"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A cluster with a volume, on which a TrainingStack is declared.

    Attributes:
        cluster: the cluster.
        volume: the volume that the workers share.
        registry: host and path of the image registry, without an image's name; None if there is none.
        data_access: identity that may read `data.source` or `data.cache.source`; None if no identity is needed.
        outputs: stack outputs of the environment, in addition to the outputs of all stacks.
    """

    cluster: Cluster
    volume: VolumeSource
    registry: pulumi.Output[str] | None = None
    data_access: DataAccess | None = None
    outputs: Mapping[str, pulumi.Input[object]] = field(default_factory=dict)
