"""A cluster that already exists: the twin, kind, minikube, or another team's cluster.

There is deliberately no fallback to ~/.kube/config: a program that creates and deletes
resources needs an explicit target.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
import yaml

from components.component import Component
from components.config import ExistingClusterConfig
from components.config.faults import ConfigFault, ConfigurationError, nearest_hint
from components.interface import Cluster, Placement


@dataclass(frozen=True, kw_only=True)
class ExistingClusterArgs:
    """Arguments of an ExistingCluster.

    Attributes:
        config: the stack's `cluster` section.
        kubeconfig: content of the kubeconfig file, such as the result of `read_kubeconfig`.
    """

    config: ExistingClusterConfig
    kubeconfig: pulumi.Input[str]


class ExistingCluster(Component):
    """A provider for a cluster whose kubeconfig is available.

    Attributes:
        cluster: the cluster, for workloads.
    """

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
            gpu_pool=Placement.from_config(args.config.gpu_pool),
            system_pool=Placement.from_config(args.config.system_pool),
            scales_from_zero=args.config.scales_from_zero,
            kubeconfig=kubeconfig,
        )
        self.register_outputs({"kubeconfig": kubeconfig})


def read_kubeconfig(
    config: ExistingClusterConfig, environment: Mapping[str, str] = os.environ
) -> str:
    """Return the kubeconfig that the stack or $KUBECONFIG names.

    Raises:
        ConfigurationError: no file or several files are named, or the file cannot be read, is not a kubeconfig or
            lacks the configured context.
    """
    file = config.kubeconfig or _only_file(environment.get("KUBECONFIG", ""))
    if not file:
        raise _error(None, "is not set, and neither is $KUBECONFIG", _NO_CLUSTER)
    try:
        content = Path(file).expanduser().read_text(encoding="utf-8")
    except RuntimeError as error:  # `~` of a nonexistent user
        raise _error(file, "cannot be read: its home folder does not exist", _NO_CLUSTER) from error
    except OSError as error:
        rule = f"cannot be read: {error.strerror}"
        raise _error(file, rule, _NO_CLUSTER) from error
    except UnicodeDecodeError as error:
        raise _error(file, _INVALID, _NAME_ANOTHER) from error
    _check(file, content, config.context)
    return content


def _only_file(paths: str) -> str:
    """Return the path in $KUBECONFIG; empty if there is none.

    kubectl and Kubernetes' clients merge several files differently, for example their current contexts.
    """
    files = [path for path in paths.split(os.pathsep) if path]
    if len(files) > 1:
        raise _error(None, f"is not set, and $KUBECONFIG names several files: {paths}", _MERGE)
    return "".join(files)


_MERGE = (
    "merge them with `kubectl config view --flatten > FILE`, and `export KUBECONFIG=FILE` or "
    "set everstep:cluster.kubeconfig"
)
_NO_CLUSTER = (
    "`everstep up` starts a cluster and sets $KUBECONFIG; for a cluster of your own, "
    "`export KUBECONFIG=~/.kube/config` or set everstep:cluster.kubeconfig"
)
_INVALID, _NAME_ANOTHER = "is not a valid kubeconfig", "name a file that `kubectl` accepts"


def _check(file: str, content: str, context: str | None) -> None:
    """Check that a file is a kubeconfig and has the configured context, before Pulumi connects."""
    try:
        parsed: Any = yaml.safe_load(content)
        contexts = [entry["name"] for entry in parsed["contexts"]]
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise _error(file, _INVALID, _NAME_ANOTHER) from error
    if context is not None and context not in contexts:
        fault = ConfigFault(
            "cluster.context", context, f"is not in {file}", nearest_hint(context, contexts)
        )
        raise ConfigurationError([fault])


def _error(value: str | None, rule: str, fix: str) -> ConfigurationError:
    """Return an error about the key `cluster.kubeconfig`."""
    return ConfigurationError([ConfigFault("cluster.kubeconfig", value, rule, fix)])
