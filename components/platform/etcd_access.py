"""TLS and users of etcd: the Job that creates the credentials, and the paths at which pods read them.

Keys are created in the cluster, so that neither the state nor a log contains them. A Job in the namespace writes
two Secrets before etcd starts: `etcd-members`, which only members mount, and `etcd-agent`, which the
workers mount. A second container of each member sets up the users (the package `etcd`).
"""

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes import batch, core, meta

from components.component import Component
from components.interface import Placement
from components.platform import manifests
from components.platform.admission import (
    POD_ANNOTATIONS,
    ServiceAccountGuard,
    ServiceAccountGuardArgs,
)
from components.platform.pods import (
    PULL_POLICY,
    container_security,
    labels,
    pod_security,
    tolerations,
)
from everstep.catalog.names import ETCD_CREDENTIALS, PLATFORM_PRIORITY_CLASS

LABELS = labels(ETCD_CREDENTIALS)
RBAC = "etcd-credentials-rbac.yaml"
MEMBERS_SECRET, AGENT_SECRET = "etcd-members", "etcd-agent"
FOLDER = "/etc/everstep-etcd"  # mount path of the credentials, in members and workers
FILE_MODE = 0o400  # the kubelet adds read permission for the pod's fsGroup
USER = "agent"
RETRIES = 5
SERVER_FILES = (
    *("ca.crt", "server.crt", "server.key"),
    *("peer-ca.crt", "peer.crt", "peer.key", "peer-client.crt", "peer-client.key"),
)


@dataclass(frozen=True, kw_only=True)
class EtcdCredentialsArgs:
    """Arguments of EtcdCredentials.

    Attributes:
        image: image of the etcd helper.
        namespace: namespace of the Secrets.
        placement: nodes on which the Job runs.
        names: subject alternative names of members and services: `DNS:NAME` or `IP:ADDRESS`.
    """

    image: str
    namespace: pulumi.Input[str]
    placement: Placement
    names: tuple[pulumi.Input[str], ...]


class EtcdCredentials(Component):
    """The certificates and passwords of etcd, which a Job creates once."""

    def __init__(
        self, name: str, args: EtcdCredentialsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:EtcdCredentials", name, opts)
        rbac = [
            manifests.declare(name, manifest, self.child()) for manifest in manifests.read(RBAC)
        ]
        command = ("python3", "-m", "etcd.credentials", *args.names)
        guard = ServiceAccountGuard(
            f"{name}-account",
            ServiceAccountGuardArgs(
                namespace=args.namespace,
                account=ETCD_CREDENTIALS,
                image=args.image,
                command=command,
            ),
            self.child(),
        )
        batch.v1.Job(
            f"{name}-job",
            metadata=meta.v1.ObjectMetaArgs(
                name=ETCD_CREDENTIALS, namespace=args.namespace, labels=LABELS
            ),
            spec=batch.v1.JobSpecArgs(
                backoff_limit=RETRIES,
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(labels=LABELS, annotations=POD_ANNOTATIONS),
                    spec=_pod(args, command),
                ),
            ),
            opts=self.child(
                depends_on=[*rbac, guard],
                delete_before_replace=True,
                replace_on_changes=["spec.template"],
            ),
        )
        self.register_outputs({})


def _pod(args: EtcdCredentialsArgs, command: tuple[pulumi.Input[str], ...]) -> core.v1.PodSpecArgs:
    """Return the pod of the Job."""
    container = core.v1.ContainerArgs(
        name="credentials",
        image=args.image,
        image_pull_policy=PULL_POLICY,
        command=list(command),
        security_context=container_security(),
        resources=core.v1.ResourceRequirementsArgs(
            requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "96Mi"}
        ),
        volume_mounts=[core.v1.VolumeMountArgs(name="tmp", mount_path="/tmp")],  # noqa: S108 - private to the pod
    )
    memory = core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit="1Mi")
    return core.v1.PodSpecArgs(
        restart_policy="Never",
        service_account_name=ETCD_CREDENTIALS,
        enable_service_links=False,
        security_context=pod_security(),
        priority_class_name=PLATFORM_PRIORITY_CLASS,
        node_selector=args.placement.selector or None,
        tolerations=tolerations(args.placement),
        containers=[container],
        volumes=[core.v1.VolumeArgs(name="tmp", empty_dir=memory)],
    )


def member_volumes() -> list[core.v1.VolumeArgs]:
    """Return the volumes of a member: `tls` for etcd itself, and `credentials`, which adds the passwords."""
    items = [core.v1.KeyToPathArgs(key=name, path=name) for name in SERVER_FILES]
    return [
        core.v1.VolumeArgs(
            name=volume,
            secret=core.v1.SecretVolumeSourceArgs(
                secret_name=MEMBERS_SECRET, default_mode=FILE_MODE, items=files
            ),
        )
        for volume, files in (("tls", items), ("credentials", None))
    ]


def member_mount(volume: str) -> core.v1.VolumeMountArgs:
    """Return the mount of one of a member's volumes."""
    return core.v1.VolumeMountArgs(name=volume, mount_path=FOLDER, read_only=True)


def server_flags() -> list[str]:
    """Return etcd's flags for TLS: clients and members need a certificate that their CA issued."""
    return [
        f"--cert-file={FOLDER}/server.crt",
        f"--key-file={FOLDER}/server.key",
        f"--trusted-ca-file={FOLDER}/ca.crt",
        "--client-cert-auth",
        f"--peer-cert-file={FOLDER}/peer.crt",
        f"--peer-key-file={FOLDER}/peer.key",
        f"--peer-trusted-ca-file={FOLDER}/peer-ca.crt",
        f"--peer-client-cert-file={FOLDER}/peer-client.crt",
        f"--peer-client-key-file={FOLDER}/peer-client.key",
        "--peer-client-cert-auth",
    ]


def worker_volume() -> dict[str, Any]:
    """Return the volume of a worker with its credentials, with the field names of the API."""
    secret = {"secretName": AGENT_SECRET, "defaultMode": FILE_MODE}
    return {"name": "etcd", "secret": secret}


def worker_mount() -> dict[str, Any]:
    """Return the mount of a worker's credentials, with the field names of the API."""
    return {"name": "etcd", "mountPath": FOLDER, "readOnly": True}


def worker_argument() -> str:
    """Return the launcher's argument with the paths of a worker's credentials.

    It contains no secret, because every user of the cluster who may read pods can read it.
    """
    options = {
        "protocol": "https",
        "cacert": f"{FOLDER}/ca.crt",
        "cert": f"{FOLDER}/agent.crt",
        "key": f"{FOLDER}/agent.key",
        "user": USER,
        "password_file": f"{FOLDER}/agent-password",
    }
    return "--rdzv_conf=" + ",".join(f"{key}={value}" for key, value in options.items())
