"""Selection of the environment: a cluster and its storage on AWS or Azure, or existing ones.

Each kind is a package that is imported only when it is chosen: the SDK of a single cloud takes
seconds to import, and a stack on AWS must not wait for Azure's.
"""

import pulumi

from components.config import StackConfig
from components.interface import Environment


def declare(config: StackConfig, stack: str) -> Environment:
    """Declare the cluster and the storage of a stack, and return both.

    Args:
        config: the whole validated configuration.
        stack: name of the stack, for tags and for names that are unique in an account.

    Raises:
        ConfigurationError: an existing cluster cannot be used; nothing is declared then.
    """
    kind = config.cluster.kind
    if kind == "eks":
        from components.aws.environment import EksEnvironment, EksEnvironmentArgs

        return EksEnvironment("eks", EksEnvironmentArgs(config=config, stack=stack)).environment
    if kind == "aks":
        from components.azure.environment import AksEnvironment, AksEnvironmentArgs

        return AksEnvironment("aks", AksEnvironmentArgs(config=config, stack=stack)).environment
    from components.existing.environment import declare_existing

    return declare_existing(config)


def declare_registry(config: StackConfig, stack: str) -> pulumi.Output[str] | None:
    """Declare the registry of a stack without a cluster, and return its host and path; None if there is none.

    Args:
        config: the whole validated configuration.
        stack: name of the stack.
    """
    kind = config.cluster.kind
    if kind == "eks":
        from components.aws.environment import EksEnvironment, EksEnvironmentArgs

        eks = EksEnvironmentArgs(config=config, stack=stack, registry_only=True)
        return EksEnvironment("eks", eks).registry
    if kind == "aks":
        from components.azure.environment import AksEnvironment, AksEnvironmentArgs

        aks = AksEnvironmentArgs(config=config, stack=stack, registry_only=True)
        return AksEnvironment("aks", aks).registry
    return None
