"""Where things run: each kind of cluster ends in the same small `Cluster`.

Nothing downstream asks which kind it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from components.config import PoolConfig, TolerationConfig


@dataclass(frozen=True, kw_only=True)
class Placement:
    """How pods find a pool's nodes: labels the nodes carry and taints the pods put up with."""

    selector: Mapping[str, str]
    tolerations: Sequence[TolerationConfig]

    @classmethod
    def of(cls, pool: PoolConfig) -> "Placement":
        """Read it from a stack's configuration."""
        return cls(selector=pool.selector, tolerations=pool.tolerations)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster, as everything that runs on it sees it.

    Attributes:
        provider: through which all objects in the cluster are made.
        gpu_pool: the spot nodes, for workers.
        system_pool: the nodes that stay, for everything else.
        kubeconfig: secret; its content, not its path.
        region: the cloud's region; None where there is no cloud.
        zone: the zone that workers share; None where there is no cloud.
        name: the cloud's name for the cluster; None where there is no cloud.
        endpoint: address of its API server; None where only the kubeconfig says it.
        efa_interfaces: Elastic Fabric Adapters of a GPU node; 0 without EFA.
    """

    provider: kubernetes.Provider
    gpu_pool: Placement
    system_pool: Placement
    kubeconfig: pulumi.Output[str]
    region: str | None = None
    zone: str | None = None
    name: pulumi.Input[str] | None = None
    endpoint: pulumi.Input[str] | None = None
    efa_interfaces: int = 0
