"""A cluster that is there already: the twin, kind, minikube, or one that somebody else runs.

There is deliberately no fall-back to ~/.kube/config: a program that creates and destroys must be
told where.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
import yaml

from components.cluster import Cluster, Placement
from components.config import ExistingClusterConfig
from components.faults import ConfigurationError, Fault, nearest
from components.part import Part


@dataclass(frozen=True, kw_only=True)
class ExistingClusterArgs:
    """What to connect to.

    Attributes:
        config: the stack's `cluster` section.
        kubeconfig: the content of the kubeconfig file, from `read_kubeconfig`.
    """

    config: ExistingClusterConfig
    kubeconfig: str


class ExistingCluster(Part):
    """A provider for a cluster whose kubeconfig is at hand."""

    cluster: Cluster

    def __init__(
        self, name: str, args: ExistingClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:ExistingCluster", name, opts)
        kubeconfig = pulumi.Output.secret(args.kubeconfig)
        self.cluster = Cluster(
            provider=kubernetes.Provider(
                f"{name}-kubernetes",
                kubeconfig=kubeconfig,
                context=args.config.context,
                opts=self.child(),
            ),
            gpu_pool=Placement.of(args.config.gpu_pool),
            system_pool=Placement.of(args.config.system_pool),
            kubeconfig=kubeconfig,
        )
        self.register_outputs({"kubeconfig": kubeconfig})


def read_kubeconfig(
    config: ExistingClusterConfig, environment: Mapping[str, str] = os.environ
) -> str:
    """Read the kubeconfig that the stack or $KUBECONFIG names.

    Raises:
        ConfigurationError: none is named, it cannot be read, it is none, or it lacks the context.
    """
    named = config.kubeconfig or environment.get("KUBECONFIG", "")
    if not named:
        raise _fault(None, "is not set, and neither is $KUBECONFIG", _NO_CLUSTER)
    path = Path(named).expanduser()
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise _fault(named, why, _NO_CLUSTER) from error
    _check(named, content, config.context)
    return content


_NO_CLUSTER = (
    "`everstep up` starts a cluster and sets it; for one of your own, "
    "`export KUBECONFIG=~/.kube/config` or set everstep:cluster.kubeconfig"
)


def _check(named: str, content: str, context: str | None) -> None:
    """Make sure that a kubeconfig is one and has the context asked for, before Pulumi connects."""
    try:
        parsed: Any = yaml.safe_load(content)
        contexts = [entry["name"] for entry in parsed["contexts"]]
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise _fault(named, "is no kubeconfig", "name a file that `kubectl` takes") from error
    if context is not None and context not in contexts:
        fault = Fault("cluster.context", context, f"is not in {named}", nearest(context, contexts))
        raise ConfigurationError([fault])


def _fault(value: str | None, rule: str, cure: str) -> ConfigurationError:
    """Speak of the key that names the kubeconfig."""
    return ConfigurationError([Fault("cluster.kubeconfig", value, rule, cure)])
