"""The controller that turns an ElasticJob into pods, and the ElasticJob's definition.

Two controllers know the same API: `maintained`, Everstep's own, and `upstream`, the published
TorchElastic one. They differ in how they write the status, what they may be allowed, and their
flags; all three differences are here.
"""

import copy
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes import apiextensions, apps, core, meta

from components.cluster import Placement
from components.config import ControllerConfig
from components.part import Part
from components.platform import manifests
from components.platform.governance import PLATFORM_CLASS
from components.platform.pods import (
    PULL_POLICY,
    container_security,
    field_env,
    labels,
    pod_security,
    tolerations,
)

NAME = "elastic-job-controller"
LABELS = labels(NAME)
METRICS_PORT = 8080
MEMORY_LIMIT = "256Mi"  # upstream's own 30Mi is too little for caches over a whole cluster
MAINTAINED_IMAGE = "localhost/everstep/controller:local"


@dataclass(frozen=True, kw_only=True)
class ElasticControllerArgs:
    """What to run.

    Attributes:
        config: the stack's `controller` section.
        namespace: where the controller runs and, for the maintained one, which it watches.
        placement: on which nodes.
    """

    config: ControllerConfig
    namespace: pulumi.Input[str]
    placement: Placement


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """How the two controllers differ.

    Attributes:
        status_subresource: whether it writes the status through its own door.
        rbac: file in manifests/ with what it may do.
        command: the program and its flags.
        health: path on the metrics port that says whether it is well.
    """

    status_subresource: bool
    rbac: str
    command: tuple[pulumi.Input[str], ...]
    health: str


def flavour(args: ElasticControllerArgs) -> Flavour:
    """Say how the chosen controller differs from the other."""
    if args.config.kind == "upstream":
        return Flavour(
            status_subresource=False,
            rbac="upstream-controller-rbac.yaml",
            command=(
                "/manager",
                "--enable-leader-election",
                f"--metrics-addr=:{METRICS_PORT}",
            ),
            health="/metrics",  # it has nothing better
        )
    return Flavour(
        status_subresource=True,
        rbac="controller-rbac.yaml",
        command=(
            "python3",
            "-m",
            "controller",
            pulumi.Output.concat("--namespace=", args.namespace),
            f"--metrics-port={METRICS_PORT}",
            "--leader-elect",
        ),
        health="/healthz",
    )


def definition(*, status_subresource: bool) -> dict[str, Any]:
    """Give the ElasticJob's CRD; with the subresource, upstream's status would go unseen."""
    (crd,) = manifests.read("elasticjob-crd.yaml")
    crd = copy.deepcopy(crd)
    if not status_subresource:
        for version in crd["spec"]["versions"]:
            del version["subresources"]["status"]
    return crd


class ElasticController(Part):
    """The ElasticJob's definition and one controller for it."""

    image: str

    def __init__(
        self,
        name: str,
        args: ElasticControllerArgs,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("platform:ElasticController", name, opts)
        chosen = flavour(args)
        self.image = args.config.image or MAINTAINED_IMAGE
        crd = self._definition(chosen)
        allowed = [
            manifests.declare(name, manifest, self.child())
            for manifest in manifests.read(chosen.rbac)
        ]
        self._deployment(args, chosen, after=[crd, *allowed])
        self.register_outputs({"image": self.image})

    def _definition(self, chosen: Flavour) -> apiextensions.v1.CustomResourceDefinition:
        """Declare the ElasticJob's definition."""
        crd = definition(status_subresource=chosen.status_subresource)
        return apiextensions.v1.CustomResourceDefinition(
            f"{self.name}-definition",
            metadata=crd["metadata"],
            spec=crd["spec"],
            opts=self.child(),
        )

    def _deployment(
        self, args: ElasticControllerArgs, chosen: Flavour, after: list[pulumi.Resource]
    ) -> apps.v1.Deployment:
        """Declare the controller itself."""
        return apps.v1.Deployment(
            f"{self.name}-deployment",
            metadata=meta.v1.ObjectMetaArgs(name=NAME, namespace=args.namespace, labels=LABELS),
            spec=apps.v1.DeploymentSpecArgs(
                replicas=1,
                selector=meta.v1.LabelSelectorArgs(match_labels=LABELS),
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(labels=LABELS),
                    spec=self._pod(args, chosen),
                ),
            ),
            opts=self.child(after=after, delete_before_replace=True),
        )

    def _pod(self, args: ElasticControllerArgs, chosen: Flavour) -> core.v1.PodSpecArgs:
        """Give the controller's pod; the only one of ours that may speak to the API server."""
        return core.v1.PodSpecArgs(
            service_account_name=_service_account(chosen.rbac),
            enable_service_links=False,
            security_context=pod_security(),
            priority_class_name=PLATFORM_CLASS,
            node_selector=args.placement.selector or None,
            tolerations=tolerations(args.placement),
            termination_grace_period_seconds=10,
            containers=[self._container(chosen)],
            volumes=[core.v1.VolumeArgs(name="tmp", empty_dir=core.v1.EmptyDirVolumeSourceArgs())],
        )

    def _container(self, chosen: Flavour) -> core.v1.ContainerArgs:
        """Give the controller's container."""
        return core.v1.ContainerArgs(
            name="controller",
            image=self.image,
            image_pull_policy=PULL_POLICY,
            command=list(chosen.command),
            env=[
                field_env("POD_NAME", "metadata.name"),
                field_env("POD_NAMESPACE", "metadata.namespace"),
            ],
            ports=[core.v1.ContainerPortArgs(name="metrics", container_port=METRICS_PORT)],
            readiness_probe=_probe(chosen.health, period=2, failures=3),
            liveness_probe=_probe(chosen.health, period=20, failures=6),
            security_context=container_security(),
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "50m", "memory": "96Mi"}, limits={"memory": MEMORY_LIMIT}
            ),
            volume_mounts=[
                core.v1.VolumeMountArgs(name="tmp", mount_path="/tmp"),  # noqa: S108 - a pod's own
            ],
        )


def _probe(path: str, *, period: int, failures: int) -> core.v1.ProbeArgs:
    """Give a probe of the metrics port; `period` in seconds."""
    return core.v1.ProbeArgs(
        http_get=core.v1.HTTPGetActionArgs(path=path, port=METRICS_PORT),
        period_seconds=period,
        timeout_seconds=5,
        failure_threshold=failures,
    )


def _service_account(rbac: str) -> str:
    """Give the name of the one service account that a file of manifests/ declares."""
    (name,) = (
        str(manifest["metadata"]["name"])
        for manifest in manifests.read(rbac)
        if manifest["kind"] == "ServiceAccount"
    )
    return name
