"""A cluster that is there already, with a folder that all its nodes have mounted."""

from components.cluster.existing import ExistingCluster, ExistingClusterArgs, read_kubeconfig
from components.config import ExistingClusterConfig, HostPathConfig, StackConfig, as_kind
from components.environment import Environment
from components.storage.hostpath import host_path


def declare_existing(config: StackConfig) -> Environment:
    """Connect to the cluster that the stack file or $KUBECONFIG names.

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
