"""The spot watcher: on an interruption notice it cordons and annotates a node, and drains it unless the cloud does.

The program is the `spot` package, which has its own image. It uses the host network: on
EKS, the metadata service responds only within one hop, and no network policy lets other pods reach it, since it
returns the credentials of the node.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import apps, core

from components.component import Component
from components.interface import Placement
from components.platform import manifests
from components.platform.daemons import NodeDaemon, daemon_security
from components.platform.pods import PULL_POLICY, field_env
from everstep.catalog.names import NODE_NAME_VARIABLE, SPOT_WATCHER

NAME = SPOT_WATCHER
SPOT_USER = 10003  # user ID in the image; differs from the workers' ID
RBAC = "spot-rbac.yaml"


@dataclass(frozen=True, kw_only=True)
class SpotWatcherArgs:
    """Arguments of a SpotWatcher.

    Attributes:
        image: image of the watcher.
        namespace: namespace of the watcher, the same as in manifests/spot-rbac.yaml.
        placement: nodes to watch.
        awaited: whether the nodes exist before the stack, so that Pulumi waits for the first pod.
    """

    image: str
    namespace: pulumi.Input[str]
    placement: Placement
    awaited: bool = False


class SpotWatcher(Component):
    """One watcher per node, and its permissions."""

    def __init__(
        self, name: str, args: SpotWatcherArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:SpotWatcher", name, opts)
        rbac = [
            manifests.declare(name, manifest, self.child()) for manifest in manifests.read(RBAC)
        ]
        daemon = watcher(args)
        apps.v1.DaemonSet(
            f"{name}-watcher",
            metadata=daemon.metadata(),
            spec=daemon.spec(),
            opts=self.child(depends_on=rbac, delete_before_replace=True),
        )
        self.register_outputs({})


def watcher(args: SpotWatcherArgs) -> NodeDaemon:
    """Return the DaemonSet of the watcher."""
    return NodeDaemon(
        name=NAME,
        namespace=args.namespace,
        placement=args.placement,
        awaited=args.awaited,
        host_network=True,
        user=SPOT_USER,
        service_account=NAME,
        container=core.v1.ContainerArgs(
            name="watcher",
            image=args.image,
            image_pull_policy=PULL_POLICY,
            command=["python3", "-m", "spot"],
            args=["--cloud=auto"],
            env=[field_env(NODE_NAME_VARIABLE, "spec.nodeName")],
            security_context=daemon_security(),
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "96Mi"}
            ),
        ),
    )
