"""Where a stack runs: a cluster, a volume and perhaps a registry, of a cloud or there already.

Each kind stands in a module of its own, imported only when it is chosen: the SDK of one cloud alone
takes seconds to import, and a stack on AWS must not pay for Azure's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi

from components.cluster import Cluster
from components.config import StackConfig
from components.storage import VolumeSource


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a TrainingStack is put on.

    Attributes:
        cluster: the cluster.
        volume: the volume that its workers are to share.
        registry: where images are pushed, host and path without an image's name; None without one.
        outputs: what `pulumi stack output` shows of it, besides what all stacks show.
    """

    cluster: Cluster
    volume: VolumeSource
    registry: pulumi.Output[str] | None = None
    outputs: Mapping[str, pulumi.Input[object]] = field(default_factory=dict)


def declare(config: StackConfig, stack: str) -> Environment:
    """Declare what the stack's `cluster` and `storage` sections ask for.

    Args:
        config: the whole configuration, checked.
        stack: the stack's name, for tags and for names that are unique in an account.

    Raises:
        ConfigurationError: what is there already cannot be used; nothing is declared then.
    """
    kind = config.cluster.kind
    if kind == "eks":
        from components.environment.eks import declare_eks

        return declare_eks(config, stack)
    if kind == "aks":
        from components.environment.aks import declare_aks

        return declare_aks(config, stack)
    from components.environment.existing import declare_existing

    return declare_existing(config)
