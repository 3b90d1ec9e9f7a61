"""The watcher of spot nodes: hears the cloud's notice, cordons, annotates, drains what nobody drains.

The program is the `spot` package with an image of its own. It stands in the node's network, because
EKS lets the metadata service answer one hop only, and because no pod of a network of its own may
reach that service: it hands out the node's credentials.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import apps, core

from components.cluster import Placement
from components.part import Part
from components.platform import manifests
from components.platform.daemons import Daemon, confined
from components.platform.pods import PULL_POLICY, field_env

NAME = "spot"
USER = 10003  # the image's own; another than the workers'
RBAC = "spot-rbac.yaml"


@dataclass(frozen=True, kw_only=True)
class SpotWatcherArgs:
    """What to run.

    Attributes:
        image: the watcher's image.
        namespace: where; manifests/spot-rbac.yaml names the same.
        placement: the nodes to watch.
    """

    image: str
    namespace: pulumi.Input[str]
    placement: Placement


class SpotWatcher(Part):
    """One watcher a node, and what it may do."""

    def __init__(
        self, name: str, args: SpotWatcherArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:SpotWatcher", name, opts)
        allowed = [
            manifests.declare(name, manifest, self.child()) for manifest in manifests.read(RBAC)
        ]
        daemon = watcher(args)
        apps.v1.DaemonSet(
            f"{name}-watcher",
            metadata=daemon.metadata(),
            spec=daemon.spec(),
            opts=self.child(after=allowed, delete_before_replace=True),
        )
        self.register_outputs({})


def watcher(args: SpotWatcherArgs) -> Daemon:
    """Give the watcher."""
    return Daemon(
        name=NAME,
        namespace=args.namespace,
        placement=args.placement,
        host_network=True,
        user=USER,
        service_account=NAME,
        container=core.v1.ContainerArgs(
            name="watcher",
            image=args.image,
            image_pull_policy=PULL_POLICY,
            command=["python3", "-m", "spot"],
            args=["--cloud=auto"],
            env=[field_env("NODE_NAME", "spec.nodeName")],
            security_context=confined(),
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "96Mi"}
            ),
        ),
    )
