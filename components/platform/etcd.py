"""etcd, which stores the membership of the workers.

The members, by default three, run on the system pool in one StatefulSet. They start in parallel, since no member is
ready before a majority runs. The stack selects the storage of each member:

* `volume`: a folder of the shared volume with the name of the member. Only for file systems
  on disks: an object store has neither fsync nor locks.
* `disk`: a disk of its own, provisioned with the StatefulSet and deleted with it.
* `memory`: a tmpfs volume that is deleted with the pod. A member that returns empty under an identity that
  its peers have registered refuses to start ("member has already been bootstrapped"); it is therefore first
  removed from the membership and added again (the package `etcd`). A new cluster starts only when all
  members have reported to each other that they are empty. The simultaneous loss of a majority loses the
  data; after the pods of all members are deleted, an empty etcd starts, with which training continues.
  Members are therefore spread over nodes.

With `authentication: users`, clients and peers connect by mutual TLS, and the workers have a user that may write
only the keys of their run (`etcd_access`).
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import apps, core, meta, policy

from components.component import Component
from components.config import EtcdConfig
from components.config.workload import ETCD_DISK_GIB
from components.interface import Placement, Storage
from components.platform import etcd_access
from components.platform.pods import (
    PULL_POLICY,
    container_security,
    field_env,
    labels,
    pod_security,
    tolerations,
)
from everstep.catalog.names import (
    DOMAIN,
    ETCD,
    ETCD_CLIENT_PORT,
    ETCD_CLIENT_SERVICE,
    ETCD_PEER_PORT,
    HOSTNAME_LABEL,
    PLATFORM_PRIORITY_CLASS,
    POD_NAME_VARIABLE,
)

METRICS_PORT = 2381  # plain HTTP for the kubelet: no network policy allows connections to it
USERS_PORT = 2382  # health check of the container that sets up the users
DATA = "/var/lib/etcd"
CONFIG_FILE = f"{DATA}/etcd.json"  # JSON is YAML, which etcd reads
LABELS = labels(ETCD)

# The shortest lease of etcd is 3/2 of the election timeout, rounded up. Workers request 2 s, so the timeout
# must be below 1.33 s. It must be above the default of 1 s, since members share a busy machine and a volume.
HEARTBEAT_MILLISECONDS = 200
ELECTION_MILLISECONDS = 1200
ETCD_MEMORY_LIMIT = "768Mi"  # includes the data with `memory`
MEMORY_VOLUME_SIZE = "384Mi"
AUTHENTICATION_ANNOTATION = {f"{DOMAIN}/etcd-authentication": "users"}
QUOTA_BYTES = 256 * 2**20  # the membership needs only kilobytes; a bug must not fill the volume


@dataclass(frozen=True, kw_only=True)
class EtcdArgs:
    """Arguments of an Etcd.

    Attributes:
        config: the `etcd` section of a stack.
        namespace: namespace of the members.
        placement: nodes of the members.
        storage: shared volume, for members that store their data there.
        run: name of the run, whose keys the workers may write.
    """

    config: EtcdConfig
    run: str
    namespace: pulumi.Input[str]
    placement: Placement
    storage: Storage


class Etcd(Component):
    """An etcd cluster that tolerates the loss of a minority of its members.

    Attributes:
        endpoint: host and port of the client service.
    """

    endpoint: pulumi.Output[str]

    def __init__(
        self, name: str, args: EtcdArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:Etcd", name, opts)
        prerequisites = [self._peer_service(args), self._budget(args), *self._credentials(args)]
        members = self._members(args, depends_on=prerequisites)
        self._client_service(args, depends_on=[members])
        domain = pulumi.Output.concat(
            ETCD_CLIENT_SERVICE, ".", args.namespace, ".svc.cluster.local"
        )
        self.endpoint = pulumi.Output.concat(domain, f":{ETCD_CLIENT_PORT}")
        self.register_outputs({"endpoint": self.endpoint})

    def _credentials(self, args: EtcdArgs) -> list[pulumi.Resource]:
        """Declare the credentials, without which no member starts; empty without authentication."""
        if not args.config.has_users:
            return []
        domain = pulumi.Output.concat(args.namespace, ".svc.cluster.local")
        credentials = etcd_access.EtcdCredentialsArgs(
            image=args.config.rejoin_image,
            namespace=args.namespace,
            placement=args.placement,
            names=(
                pulumi.Output.concat(f"DNS:*.{ETCD}.", domain),
                pulumi.Output.concat(f"DNS:{ETCD_CLIENT_SERVICE}.", domain),
                "IP:127.0.0.1",
            ),
        )
        return [etcd_access.EtcdCredentials(f"{self.name}-credentials", credentials, self.child())]

    def _peer_service(self, args: EtcdArgs) -> core.v1.Service:
        """Declare the headless service that resolves members, even before they are ready."""
        return core.v1.Service(
            f"{self.name}-peers",
            metadata=_metadata(
                ETCD,
                args.namespace,
                # Otherwise Pulumi would wait for its pods, which are created later.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=core.v1.ServiceSpecArgs(
                cluster_ip="None",
                publish_not_ready_addresses=True,
                selector=LABELS,
                ports=[
                    core.v1.ServicePortArgs(name="client", port=ETCD_CLIENT_PORT),
                    core.v1.ServicePortArgs(name="peer", port=ETCD_PEER_PORT),
                ],
            ),
            opts=self.child(delete_before_replace=True),
        )

    def _client_service(self, args: EtcdArgs, depends_on: list[pulumi.Resource]) -> core.v1.Service:
        """Declare the service for clients, with the members that are ready."""
        return core.v1.Service(
            f"{self.name}-client",
            metadata=_metadata(ETCD_CLIENT_SERVICE, args.namespace),
            spec=core.v1.ServiceSpecArgs(
                selector=LABELS,
                ports=[core.v1.ServicePortArgs(name="client", port=ETCD_CLIENT_PORT)],
            ),
            opts=self.child(delete_before_replace=True, depends_on=depends_on),
        )

    def _budget(self, args: EtcdArgs) -> policy.v1.PodDisruptionBudget:
        """Declare the disruption budget: a drain may evict one member at a time."""
        return policy.v1.PodDisruptionBudget(
            f"{self.name}-budget",
            metadata=_metadata(ETCD, args.namespace),
            spec=policy.v1.PodDisruptionBudgetSpecArgs(
                max_unavailable=1, selector=meta.v1.LabelSelectorArgs(match_labels=LABELS)
            ),
            opts=self.child(delete_before_replace=True),
        )

    def _members(self, args: EtcdArgs, depends_on: list[pulumi.Resource]) -> apps.v1.StatefulSet:
        """Declare the members."""
        return apps.v1.StatefulSet(
            f"{self.name}-members",
            metadata=_metadata(ETCD, args.namespace),
            spec=apps.v1.StatefulSetSpecArgs(
                service_name=ETCD,
                replicas=args.config.members,
                pod_management_policy="Parallel",
                selector=meta.v1.LabelSelectorArgs(match_labels=LABELS),
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(
                        labels=LABELS,
                        annotations=AUTHENTICATION_ANNOTATION if args.config.has_users else None,
                    ),
                    spec=_pod(args),
                ),
                volume_claim_templates=_disks(args.config),
                persistent_volume_claim_retention_policy=_DELETE_DISKS
                if args.config.persistence == "disk"
                else None,
            ),
            # A different number of members is a different cluster with its own folders: members of the old cluster
            # would refuse new members. Members with TLS and members without TLS refuse each other too.
            opts=self.child(
                depends_on=depends_on,
                delete_before_replace=True,
                replace_on_changes=[
                    "spec.replicas",
                    "spec.volumeClaimTemplates",
                    "spec.template.metadata.annotations",
                ],
            ),
        )


def _metadata(
    name: str, namespace: pulumi.Input[str], annotations: dict[str, str] | None = None
) -> meta.v1.ObjectMetaArgs:
    """Return the metadata of an object of etcd."""
    return meta.v1.ObjectMetaArgs(
        name=name, namespace=namespace, labels=LABELS, annotations=annotations
    )


def _pod(args: EtcdArgs) -> core.v1.PodSpecArgs:
    """Return the pod of a member."""
    return core.v1.PodSpecArgs(
        automount_service_account_token=False,
        enable_service_links=False,
        security_context=pod_security(),
        priority_class_name=PLATFORM_PRIORITY_CLASS,
        node_selector=args.placement.selector or None,
        tolerations=tolerations(args.placement),
        topology_spread_constraints=[
            core.v1.TopologySpreadConstraintArgs(
                max_skew=1,
                topology_key=HOSTNAME_LABEL,
                # If other nodes have no room, a node may get a second member. With `memory`, it gets one only if every
                # node has a member already: losing the node would lose the data of both.
                when_unsatisfiable="DoNotSchedule"
                if args.config.persistence == "memory"
                else "ScheduleAnyway",
                # By default, a node that members do not tolerate, such as a control plane node, counts as a node
                # without members. If fewer other nodes than members exist, a member would then stay pending.
                node_taints_policy="Honor",
                label_selector=meta.v1.LabelSelectorArgs(match_labels=LABELS),
            )
        ],
        init_containers=[_rejoin(args)] if args.config.rejoins else None,
        containers=[_container(args), *([_users(args)] if args.config.has_users else [])],
        volumes=_volumes(args),
    )


_DELETE_DISKS = apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicyArgs(
    when_deleted="Delete", when_scaled="Delete"
)


def _disks(config: EtcdConfig) -> list[core.v1.PersistentVolumeClaimArgs] | None:
    """Return the template of each member's claim; None if members have no disk."""
    if config.persistence != "disk":
        return None
    claim = core.v1.PersistentVolumeClaimSpecArgs(
        access_modes=["ReadWriteOnce"],
        storage_class_name=config.storage_class,
        resources=core.v1.VolumeResourceRequirementsArgs(
            requests={"storage": f"{ETCD_DISK_GIB}Gi"}
        ),
    )
    return [
        core.v1.PersistentVolumeClaimArgs(metadata=meta.v1.ObjectMetaArgs(name=ETCD), spec=claim)
    ]


def _volumes(args: EtcdArgs) -> list[core.v1.VolumeArgs] | None:
    """Return the volumes of a member, except the disk, which the StatefulSet adds."""
    volumes = etcd_access.member_volumes() if args.config.has_users else []
    if args.config.persistence == "volume":
        volumes.append(args.storage.volume())
    elif args.config.persistence == "memory":
        memory = core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit=MEMORY_VOLUME_SIZE)
        volumes.append(core.v1.VolumeArgs(name=ETCD, empty_dir=memory))
    return volumes or None


def _mount(args: EtcdArgs) -> core.v1.VolumeMountArgs:
    """Return the mount of a member's data."""
    if args.config.persistence == "volume":
        # A different number of members is a different cluster, which needs its own folder.
        folder = f"{ETCD}/of-{args.config.members}/$(POD_NAME)"
        return args.storage.mount_folder(folder, DATA)
    return core.v1.VolumeMountArgs(name=ETCD, mount_path=DATA)


def _rejoin(args: EtcdArgs) -> core.v1.ContainerArgs:
    """Return the init container that updates the membership and writes the configuration of etcd."""
    command = ["python3", "-m", "etcd", f"--config={CONFIG_FILE}"]
    command += [f"--credentials={etcd_access.FOLDER}"] if args.config.has_users else []
    return core.v1.ContainerArgs(
        name="rejoin",
        image=args.config.rejoin_image,
        image_pull_policy=PULL_POLICY,
        command=[*command, "--", *_flags(args)],
        env=[field_env(POD_NAME_VARIABLE, "metadata.name")],
        security_context=container_security(),
        resources=core.v1.ResourceRequirementsArgs(
            requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "96Mi"}
        ),
        volume_mounts=_mounts(args, "credentials"),
    )


def _mounts(args: EtcdArgs, volume: str) -> list[core.v1.VolumeMountArgs]:
    """Return the mounts of a member's data and, with authentication, of a volume with credentials."""
    return [_mount(args), *([etcd_access.member_mount(volume)] if args.config.has_users else [])]


def _users(args: EtcdArgs) -> core.v1.ContainerArgs:
    """Return the container that sets up the users; the pod is ready only while authentication is enabled."""
    return core.v1.ContainerArgs(
        name="users",
        image=args.config.rejoin_image,
        image_pull_policy=PULL_POLICY,
        command=["python3", "-m", "etcd.users"],
        args=[
            f"--address=https://127.0.0.1:{ETCD_CLIENT_PORT}",
            f"--run={args.run}",
            f"--credentials={etcd_access.FOLDER}",
            f"--health-port={USERS_PORT}",
        ],
        security_context=container_security(),
        resources=core.v1.ResourceRequirementsArgs(
            requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "96Mi"}
        ),
        volume_mounts=[etcd_access.member_mount("credentials")],
        readiness_probe=_probe("/", port=USERS_PORT, period=2, failures=3),
    )


def _container(args: EtcdArgs) -> core.v1.ContainerArgs:
    """Return the container of a member."""
    health = METRICS_PORT if args.config.has_users else ETCD_CLIENT_PORT
    return core.v1.ContainerArgs(
        name=ETCD,
        image=args.config.image,
        image_pull_policy=PULL_POLICY,
        command=["etcd"],
        args=[f"--config-file={CONFIG_FILE}"] if args.config.rejoins else _flags(args),
        env=[field_env(POD_NAME_VARIABLE, "metadata.name")],
        ports=[
            core.v1.ContainerPortArgs(name="client", container_port=ETCD_CLIENT_PORT),
            core.v1.ContainerPortArgs(name="peer", container_port=ETCD_PEER_PORT),
        ],
        security_context=container_security(),
        resources=core.v1.ResourceRequirementsArgs(
            requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": ETCD_MEMORY_LIMIT}
        ),
        volume_mounts=_mounts(args, "tls"),
        # The first start waits for DNS and for a quorum.
        startup_probe=_probe("/health", port=health, period=1, failures=120),
        readiness_probe=_probe("/health", port=health, period=2, failures=3),
        # `serializable` checks only this member, so that the loss of a quorum does not restart all members.
        liveness_probe=_probe("/health?serializable=true", port=health, period=10, failures=6),
    )


def _probe(path: str, *, port: int, period: int, failures: int) -> core.v1.ProbeArgs:
    """Return a probe; `period` in seconds."""
    return core.v1.ProbeArgs(
        http_get=core.v1.HTTPGetActionArgs(path=path, port=port),
        period_seconds=period,
        timeout_seconds=5,
        failure_threshold=failures,
    )


def _flags(args: EtcdArgs) -> list[pulumi.Input[str]]:
    """Return the command line of etcd; the kubelet expands $(POD_NAME).

    Each member advertises its own name: with a shared address, or 0.0.0.0, clients could not fail over.
    """
    domain = pulumi.Output.concat(ETCD, ".", args.namespace, ".svc.cluster.local")
    scheme = "https" if args.config.has_users else "http"
    host = pulumi.Output.concat(f"{scheme}://$(POD_NAME).", domain)
    peers = [
        pulumi.Output.concat(
            f"{ETCD}-{index}={scheme}://{ETCD}-{index}.", domain, f":{ETCD_PEER_PORT}"
        )
        for index in range(args.config.members)
    ]
    return [
        "--name=$(POD_NAME)",
        f"--data-dir={DATA}/member",
        f"--listen-client-urls={scheme}://0.0.0.0:{ETCD_CLIENT_PORT}",
        f"--listen-peer-urls={scheme}://0.0.0.0:{ETCD_PEER_PORT}",
        pulumi.Output.concat("--advertise-client-urls=", host, f":{ETCD_CLIENT_PORT}"),
        pulumi.Output.concat("--initial-advertise-peer-urls=", host, f":{ETCD_PEER_PORT}"),
        pulumi.Output.all(*peers).apply(lambda urls: "--initial-cluster=" + ",".join(urls)),
        pulumi.Output.concat("--initial-cluster-token=", args.namespace, f"-{args.config.members}"),
        "--initial-cluster-state=new",
        "--enable-v2",  # the etcd backends of torch support only v2
        f"--heartbeat-interval={HEARTBEAT_MILLISECONDS}",
        f"--election-timeout={ELECTION_MILLISECONDS}",
        f"--quota-backend-bytes={QUOTA_BYTES}",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        "--logger=zap",
        "--log-level=warn",
        *(
            [*etcd_access.server_flags(), f"--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}"]
            if args.config.has_users
            else []
        ),
    ]
