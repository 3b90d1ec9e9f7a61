"""The environment of a cluster that exists already, with a folder that all its nodes mount."""

from components.config import ExistingClusterConfig, HostPathConfig, StackConfig, as_kind
from components.existing.cluster import ExistingCluster, ExistingClusterArgs, read_kubeconfig
from components.existing.hostpath import host_path
from components.interface import Environment


def declare_existing(config: StackConfig) -> Environment:
    """Return the environment of the cluster that the stack file or $KUBECONFIG names.

    Raises:
        ConfigurationError: no kubeconfig is named, or it cannot be used.
    """
    cluster = as_kind(config.cluster, ExistingClusterConfig)
    storage = as_kind(config.storage, HostPathConfig)
    args = ExistingClusterArgs(config=cluster, kubeconfig=read_kubeconfig(cluster))
    return Environment(
        cluster=ExistingCluster("cluster", args).cluster,
        volume=host_path(storage.path, storage.size),
    )
