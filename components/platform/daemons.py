"""The common specification of the DaemonSets on GPU nodes.

They serve the node rather than the job, so each runs as long as the node: it tolerates all taints,
including taints that repel workers until the node is ready, and taints of a drain or a fault.

Pulumi does not wait for all their pods: spot nodes join and leave, and `up` must not hang on a node that is being
removed. If the number of nodes is fixed, or the cluster already exists, Pulumi waits for the first pod, so that `up`
fails if an image cannot be pulled. If the autoscaler starts the nodes, there may be no node yet; `everstep doctor
--stack STACK` checks the images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_kubernetes import apps, core, meta

from components.interface import Placement
from components.platform.pods import labels

SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
# The API server omits the number while it is 0.
AWAIT_FIRST = {"pulumi.com/waitFor": "jsonpath={.status.numberAvailable}"}


@dataclass(frozen=True, kw_only=True)
class NodeDaemon:
    """The settings of a DaemonSet.

    Attributes:
        name: name of the object and, as a label, of its pods.
        namespace: namespace of the object.
        placement: nodes on which it runs; its tolerations are ignored.
        container: the only container.
        host_folders: volume name -> mounted folder of the node.
        host_network: whether it uses the network of the node.
        user: user id; 0 for files of the kubelet that only root can access.
        service_account: name of its ServiceAccount; None: no access to the API server.
        grace_seconds: time between SIGTERM and SIGKILL.
        awaited: whether Pulumi waits for its first pod; False if there may be no node yet.
    """

    name: str
    namespace: pulumi.Input[str]
    placement: Placement
    container: core.v1.ContainerArgs
    host_folders: Mapping[str, str] = field(default_factory=dict)
    host_network: bool = False
    user: int = 0
    service_account: pulumi.Input[str] | None = None
    grace_seconds: int = 5
    awaited: bool = False

    @property
    def labels(self) -> dict[str, str]:
        """Labels of its pods."""
        return labels(self.name)

    def spec(self) -> apps.v1.DaemonSetSpecArgs:
        """Return the spec of the DaemonSet."""
        rolling = apps.v1.RollingUpdateDaemonSetArgs(max_unavailable="50%")
        return apps.v1.DaemonSetSpecArgs(
            selector=meta.v1.LabelSelectorArgs(match_labels=self.labels),
            update_strategy=apps.v1.DaemonSetUpdateStrategyArgs(
                type="RollingUpdate", rolling_update=rolling
            ),
            template=core.v1.PodTemplateSpecArgs(
                metadata=meta.v1.ObjectMetaArgs(labels=self.labels), spec=self._pod()
            ),
        )

    def metadata(self) -> meta.v1.ObjectMetaArgs:
        """Return the metadata of the DaemonSet."""
        return meta.v1.ObjectMetaArgs(
            name=self.name,
            namespace=self.namespace,
            labels=self.labels,
            annotations=AWAIT_FIRST if self.awaited else SKIP_AWAIT,
        )

    def _pod(self) -> core.v1.PodSpecArgs:
        return core.v1.PodSpecArgs(
            service_account_name=self.service_account,
            automount_service_account_token=self.service_account is not None,
            enable_service_links=False,
            host_network=self.host_network or None,
            priority_class_name="system-node-critical",  # built in: workers cannot preempt these pods
            node_selector=self.placement.selector or None,
            tolerations=[core.v1.TolerationArgs(operator="Exists")],
            termination_grace_period_seconds=self.grace_seconds,
            security_context=core.v1.PodSecurityContextArgs(
                run_as_user=self.user,
                run_as_group=self.user,
                run_as_non_root=self.user != 0,
                seccomp_profile=core.v1.SeccompProfileArgs(type="RuntimeDefault"),
            ),
            containers=[self.container],
            volumes=[
                core.v1.VolumeArgs(name=name, host_path=core.v1.HostPathVolumeSourceArgs(path=path))
                for name, path in self.host_folders.items()
            ]
            or None,
        )


def daemon_security(
    *, read_only: bool = True, capabilities: Sequence[str] = ()
) -> core.v1.SecurityContextArgs:
    """Return the security context of a container.

    Args:
        read_only: whether the root file system is read-only; third-party images may write to it.
        capabilities: the only capabilities of the container.
    """
    return core.v1.SecurityContextArgs(
        # Kubernetes documents that a container with SYS_ADMIN may always escalate its privileges.
        allow_privilege_escalation=bool(capabilities),
        read_only_root_filesystem=read_only,
        capabilities=core.v1.CapabilitiesArgs(drop=["ALL"], add=list(capabilities) or None),
    )
