"""etcd: where the workers agree on who trains.

Three members on the nodes that stay, in one StatefulSet; they start in parallel, since none is ready
before two of them are there. Where each keeps its data is the stack's choice:

* `volume`: a folder of the shared volume that carries the member's name. For volumes that are files
  on a disk: an object store knows neither fsync nor locks.
* `disk`: a disk of its own, provisioned with the StatefulSet and removed with it.
* `memory`: nowhere that outlives the pod. A member that comes back empty under an identity that its
  peers know refuses to start ("member has already been bootstrapped"), so that it is first taken out
  of the membership and let in anew (`spot.rejoin`). A majority lost at once is lost for good:
  deleting all members' pods then starts an empty etcd, from which training goes on. Members
  therefore keep apart as far as they can.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import apps, core, meta, policy

from components.cluster import Placement
from components.config import EtcdConfig
from components.part import Part
from components.platform.governance import PLATFORM_CLASS
from components.platform.pods import (
    PULL_POLICY,
    container_security,
    field_env,
    labels,
    pod_security,
    tolerations,
)
from components.storage import Storage

NAME = "etcd"
CLIENT_SERVICE = "etcd-client"
CLIENT_PORT = 2379
PEER_PORT = 2380
DATA = "/var/lib/etcd"
CONFIG_FILE = f"{DATA}/etcd.json"  # JSON is YAML, which etcd reads
LABELS = labels(NAME)

# The least lease that etcd grants is 3/2 of the election time, rounded up: workers ask for 2 s, so
# this must stay below 1.33 s; and above etcd's default of 1 s, since members share a busy machine
# and a volume.
HEARTBEAT_MILLISECONDS = 200
ELECTION_MILLISECONDS = 1200
MEMORY_LIMIT = "768Mi"  # with `memory`, its data counts
MEMORY_DISK = "384Mi"
DISK = "1Gi"  # the least that either cloud sells
QUOTA_BYTES = 256 * 1024 * 1024  # rendezvous needs kilobytes; a runaway must not fill the volume


@dataclass(frozen=True, kw_only=True)
class EtcdArgs:
    """What to run.

    Attributes:
        config: the stack's `etcd` section.
        namespace: where.
        placement: on which nodes.
        storage: the shared volume, for members that keep their data there.
        rejoin_image: image with `spot.rejoin`, for members that keep their data in memory.
    """

    config: EtcdConfig
    namespace: pulumi.Input[str]
    placement: Placement
    storage: Storage
    rejoin_image: str


class Etcd(Part):
    """An etcd cluster that survives the loss of a minority of its members."""

    endpoint: pulumi.Output[str]

    def __init__(
        self, name: str, args: EtcdArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:Etcd", name, opts)
        members = self._members(args, after=[self._peer_service(args), self._budget(args)])
        self._client_service(args, after=[members])
        domain = pulumi.Output.concat(CLIENT_SERVICE, ".", args.namespace, ".svc.cluster.local")
        self.endpoint = pulumi.Output.concat(domain, f":{CLIENT_PORT}")
        self.register_outputs({"endpoint": self.endpoint})

    def _peer_service(self, args: EtcdArgs) -> core.v1.Service:
        """Declare the headless service that names each member, ready or not: to get ready."""
        return core.v1.Service(
            f"{self.name}-peers",
            metadata=_metadata(
                NAME,
                args.namespace,
                # Pulumi would wait for pods behind it, and they come after it.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=core.v1.ServiceSpecArgs(
                cluster_ip="None",
                publish_not_ready_addresses=True,
                selector=LABELS,
                ports=[
                    core.v1.ServicePortArgs(name="client", port=CLIENT_PORT),
                    core.v1.ServicePortArgs(name="peer", port=PEER_PORT),
                ],
            ),
            opts=self.child(delete_before_replace=True),
        )

    def _client_service(self, args: EtcdArgs, after: list[pulumi.Resource]) -> core.v1.Service:
        """Declare the service that clients use: only members that are ready."""
        return core.v1.Service(
            f"{self.name}-client",
            metadata=_metadata(CLIENT_SERVICE, args.namespace),
            spec=core.v1.ServiceSpecArgs(
                selector=LABELS,
                ports=[core.v1.ServicePortArgs(name="client", port=CLIENT_PORT)],
            ),
            opts=self.child(delete_before_replace=True, after=after),
        )

    def _budget(self, args: EtcdArgs) -> policy.v1.PodDisruptionBudget:
        """Declare that drains take one member at a time."""
        return policy.v1.PodDisruptionBudget(
            f"{self.name}-budget",
            metadata=_metadata(NAME, args.namespace),
            spec=policy.v1.PodDisruptionBudgetSpecArgs(
                max_unavailable=1, selector=meta.v1.LabelSelectorArgs(match_labels=LABELS)
            ),
            opts=self.child(delete_before_replace=True),
        )

    def _members(self, args: EtcdArgs, after: list[pulumi.Resource]) -> apps.v1.StatefulSet:
        """Declare the members."""
        return apps.v1.StatefulSet(
            f"{self.name}-members",
            metadata=_metadata(NAME, args.namespace),
            spec=apps.v1.StatefulSetSpecArgs(
                service_name=NAME,
                replicas=args.config.members,
                pod_management_policy="Parallel",
                selector=meta.v1.LabelSelectorArgs(match_labels=LABELS),
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(labels=LABELS), spec=_pod(args)
                ),
                volume_claim_templates=_disks(args.config),
                persistent_volume_claim_retention_policy=_KEEP_NO_DISK
                if args.config.persistence == "disk"
                else None,
            ),
            # Another number of members is another cluster, with folders of its own: members that
            # knew the old one would refuse the new ones.
            opts=self.child(
                after=after,
                delete_before_replace=True,
                replace_on_changes=["spec.replicas", "spec.volumeClaimTemplates"],
            ),
        )


def _metadata(
    name: str, namespace: pulumi.Input[str], annotations: dict[str, str] | None = None
) -> meta.v1.ObjectMetaArgs:
    """Give the metadata of one of etcd's objects."""
    return meta.v1.ObjectMetaArgs(
        name=name, namespace=namespace, labels=LABELS, annotations=annotations
    )


def _pod(args: EtcdArgs) -> core.v1.PodSpecArgs:
    """Give a member's pod."""
    return core.v1.PodSpecArgs(
        automount_service_account_token=False,
        enable_service_links=False,
        security_context=pod_security(),
        priority_class_name=PLATFORM_CLASS,
        node_selector=args.placement.selector or None,
        tolerations=tolerations(args.placement),
        topology_spread_constraints=[
            core.v1.TopologySpreadConstraintArgs(
                max_skew=1,
                topology_key="kubernetes.io/hostname",
                # Over what is there, be it one node; but two members in one memory are one.
                when_unsatisfiable="DoNotSchedule"
                if args.config.persistence == "memory"
                else "ScheduleAnyway",
                label_selector=meta.v1.LabelSelectorArgs(match_labels=LABELS),
            )
        ],
        init_containers=[_rejoin(args)] if _comes_back_empty(args.config) else None,
        containers=[_container(args)],
        volumes=_volumes(args),
    )


_KEEP_NO_DISK = apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicyArgs(
    when_deleted="Delete", when_scaled="Delete"
)


def _disks(config: EtcdConfig) -> list[core.v1.PersistentVolumeClaimArgs] | None:
    """Give the claim that each member gets one of; None where it gets no disk."""
    if config.persistence != "disk":
        return None
    claim = core.v1.PersistentVolumeClaimSpecArgs(
        access_modes=["ReadWriteOnce"],
        storage_class_name=config.storage_class,
        resources=core.v1.VolumeResourceRequirementsArgs(requests={"storage": DISK}),
    )
    return [
        core.v1.PersistentVolumeClaimArgs(metadata=meta.v1.ObjectMetaArgs(name=NAME), spec=claim)
    ]


def _volumes(args: EtcdArgs) -> list[core.v1.VolumeArgs] | None:
    """Give a member's volumes, but for the disk, which the StatefulSet adds."""
    if args.config.persistence == "volume":
        return [args.storage.volume()]
    if args.config.persistence == "disk":
        return None
    memory = core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit=MEMORY_DISK)
    return [core.v1.VolumeArgs(name=NAME, empty_dir=memory)]


def _mount(args: EtcdArgs) -> core.v1.VolumeMountArgs:
    """Give the mount of a member's data."""
    if args.config.persistence == "volume":
        # Members of another number are another cluster, hence another folder.
        folder = f"{NAME}/of-{args.config.members}/$(POD_NAME)"
        return args.storage.mount_part(folder, DATA)
    return core.v1.VolumeMountArgs(name=NAME, mount_path=DATA)


def _comes_back_empty(config: EtcdConfig) -> bool:
    """Say whether a member comes back without its data to peers that remember it."""
    return config.persistence == "memory" and config.members > 1


def _rejoin(args: EtcdArgs) -> core.v1.ContainerArgs:
    """Give the container that settles the membership and writes down how etcd is to start."""
    command = ["python3", "-m", "spot.rejoin", f"--config={CONFIG_FILE}", "--"]
    return core.v1.ContainerArgs(
        name="rejoin",
        image=args.rejoin_image,
        image_pull_policy=PULL_POLICY,
        command=[*command, *_flags(args)],
        env=[field_env("POD_NAME", "metadata.name")],
        security_context=container_security(),
        resources=core.v1.ResourceRequirementsArgs(
            requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "96Mi"}
        ),
        volume_mounts=[_mount(args)],
    )


def _container(args: EtcdArgs) -> core.v1.ContainerArgs:
    """Give a member's container."""
    return core.v1.ContainerArgs(
        name=NAME,
        image=args.config.image,
        image_pull_policy=PULL_POLICY,
        command=["etcd"],
        args=[f"--config-file={CONFIG_FILE}"] if _comes_back_empty(args.config) else _flags(args),
        env=[field_env("POD_NAME", "metadata.name")],
        ports=[
            core.v1.ContainerPortArgs(name="client", container_port=CLIENT_PORT),
            core.v1.ContainerPortArgs(name="peer", container_port=PEER_PORT),
        ],
        security_context=container_security(),
        resources=core.v1.ResourceRequirementsArgs(
            requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": MEMORY_LIMIT}
        ),
        volume_mounts=[_mount(args)],
        # The first start waits for names and for a quorum.
        startup_probe=_probe("/health", period=1, failures=120),
        readiness_probe=_probe("/health", period=2, failures=3),
        # Serializable: asks this member alone, so that a lost quorum does not have all members
        # killed.
        liveness_probe=_probe("/health?serializable=true", period=10, failures=6),
    )


def _probe(path: str, *, period: int, failures: int) -> core.v1.ProbeArgs:
    """Give a probe of the client port; `period` in seconds."""
    return core.v1.ProbeArgs(
        http_get=core.v1.HTTPGetActionArgs(path=path, port=CLIENT_PORT),
        period_seconds=period,
        timeout_seconds=5,
        failure_threshold=failures,
    )


def _flags(args: EtcdArgs) -> list[pulumi.Input[str]]:
    """Give etcd's command line; the kubelet fills in $(POD_NAME).

    Each member advertises its own name: with one shared address, or 0.0.0.0, clients could not fail
    over.
    """
    domain = pulumi.Output.concat(NAME, ".", args.namespace, ".svc.cluster.local")
    host = pulumi.Output.concat("http://$(POD_NAME).", domain)
    peers = [
        pulumi.Output.concat(f"{NAME}-{index}=http://{NAME}-{index}.", domain, f":{PEER_PORT}")
        for index in range(args.config.members)
    ]
    return [
        "--name=$(POD_NAME)",
        f"--data-dir={DATA}/member",
        f"--listen-client-urls=http://0.0.0.0:{CLIENT_PORT}",
        f"--listen-peer-urls=http://0.0.0.0:{PEER_PORT}",
        pulumi.Output.concat("--advertise-client-urls=", host, f":{CLIENT_PORT}"),
        pulumi.Output.concat("--initial-advertise-peer-urls=", host, f":{PEER_PORT}"),
        pulumi.Output.all(*peers).apply(lambda urls: "--initial-cluster=" + ",".join(urls)),
        pulumi.Output.concat("--initial-cluster-token=", args.namespace, f"-{args.config.members}"),
        "--initial-cluster-state=new",
        "--enable-v2",  # torch's own etcd backends know nothing newer
        f"--heartbeat-interval={HEARTBEAT_MILLISECONDS}",
        f"--election-timeout={ELECTION_MILLISECONDS}",
        f"--quota-backend-bytes={QUOTA_BYTES}",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        "--logger=zap",
        "--log-level=warn",
    ]
