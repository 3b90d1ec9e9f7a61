"""What the DaemonSets on GPU nodes share.

They serve the node rather than the job, so each runs from the node's first second to its last:
every taint is put up with, also those that keep workers away until the node is ready and those that
a drain or a fault puts on it. Pulumi does not wait for them: spot nodes come and go, and `up` must
not hang on one that just goes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_kubernetes import apps, core, meta

from components.cluster import Placement
from components.platform.pods import labels

SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """One DaemonSet.

    Attributes:
        name: of the object and, as a label, of its pods.
        namespace: where.
        placement: on which nodes; its tolerations do not matter here.
        container: the only one.
        host_folders: volume name -> folder of the node that it mounts.
        host_network: whether it stands in the node's own network.
        user: user id; 0 where files of the kubelet are root's alone.
        service_account: who it is to the API server; None: nobody, and without a token.
        grace_seconds: between SIGTERM and SIGKILL.
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

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its pods."""
        return labels(self.name)

    def spec(self) -> apps.v1.DaemonSetSpecArgs:
        """Give the DaemonSet's spec."""
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
        """Give the DaemonSet's metadata."""
        return meta.v1.ObjectMetaArgs(
            name=self.name, namespace=self.namespace, labels=self.labels, annotations=SKIP_AWAIT
        )

    def _pod(self) -> core.v1.PodSpecArgs:
        return core.v1.PodSpecArgs(
            service_account_name=self.service_account,
            automount_service_account_token=self.service_account is not None,
            enable_service_links=False,
            host_network=self.host_network or None,
            priority_class_name="system-node-critical",  # built in; without them the node is of no use
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


def confined(*, read_only: bool = True, add: Sequence[str] = ()) -> core.v1.SecurityContextArgs:
    """Give a container's security context: no capabilities but those in `add`.

    `read_only` is about the image's own files: not for images of others, which may write there.
    """
    return core.v1.SecurityContextArgs(
        # The kernel refuses capabilities to a process that may not gain any.
        allow_privilege_escalation=bool(add),
        read_only_root_filesystem=read_only,
        capabilities=core.v1.CapabilitiesArgs(drop=["ALL"], add=list(add) or None),
    )
