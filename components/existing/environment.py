"""The environment of a cluster that already exists, with its own volume or a folder of its nodes."""

from components.config import (
    ClaimConfig,
    ExistingClusterConfig,
    HostPathConfig,
    StackConfig,
    StorageConfig,
    as_kind,
)
from components.existing.claim import claim
from components.existing.cluster import ExistingCluster, ExistingClusterArgs, read_kubeconfig
from components.existing.hostpath import host_path
from components.existing.operator import require_operator
from components.interface import Cluster, Environment, VolumeSource


def declare_existing(config: StackConfig) -> Environment:
    """Return the environment of the cluster that the stack file or $KUBECONFIG names.

    Raises:
        ConfigurationError: no kubeconfig is named, it cannot be used, or the cluster lacks the Prometheus
            operator that `platform.monitoring` needs.
    """
    cluster_config = as_kind(config.cluster, ExistingClusterConfig)
    kubeconfig = read_kubeconfig(cluster_config)
    require_operator(config, kubeconfig)
    args = ExistingClusterArgs(config=cluster_config, kubeconfig=kubeconfig)
    cluster = ExistingCluster("cluster", args).cluster
    return Environment(cluster=cluster, volume=volume_source(config.storage, cluster))


def volume_source(storage: StorageConfig, cluster: Cluster) -> VolumeSource:
    """Return the volume that the stack's `storage` section describes."""
    if isinstance(storage, ClaimConfig):
        return claim(storage, cluster)
    folder = as_kind(storage, HostPathConfig)
    return host_path(folder.path, folder.size)
