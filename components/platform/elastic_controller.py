"""The controller that creates the pods of an ElasticJob, and the CRD of ElasticJob.

Two controllers implement the same API: `maintained`, Everstep's own, and `upstream`, the published
TorchElastic controller. They write the status differently, and have different namespaces, permissions
and flags; `ControllerSettings` contains all differences.
"""

import copy
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes import apiextensions, apps, core, meta

from components.component import Component
from components.config import ControllerConfig
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
    field_env,
    labels,
    pod_security,
    scrape_annotations,
    tolerations,
)
from everstep.catalog.names import (
    CONTROLLER,
    CONTROLLER_METRICS_PORT,
    LOCAL_IMAGE,
    PLATFORM_PRIORITY_CLASS,
    POD_NAME_VARIABLE,
)

LABELS = labels(CONTROLLER)
# 30Mi, as in upstream's manifest, is too little for caches of a whole cluster.
CONTROLLER_MEMORY_LIMIT = "256Mi"
MAINTAINED_IMAGE = LOCAL_IMAGE.format("controller")


@dataclass(frozen=True, kw_only=True)
class ElasticControllerArgs:
    """Arguments of an ElasticController.

    Attributes:
        config: the `controller` section of a stack.
        namespace: namespace of the jobs; the maintained controller runs there too.
        system_namespace: namespace in which the upstream controller runs, apart from the jobs.
        placement: nodes on which it runs.
    """

    config: ControllerConfig
    namespace: pulumi.Input[str]
    system_namespace: pulumi.Input[str]
    placement: Placement


@dataclass(frozen=True, kw_only=True)
class ControllerSettings:
    """The differences between the two controllers.

    Attributes:
        status_subresource: whether it writes the status through the subresource.
        namespace: namespace in which it runs.
        rbac: file in manifests/ with its permissions.
        command: the program and its flags.
        health: path of health checks on the metrics port.
    """

    status_subresource: bool
    namespace: pulumi.Input[str]
    rbac: str
    command: tuple[pulumi.Input[str], ...]
    health: str


def controller_settings(args: ElasticControllerArgs) -> ControllerSettings:
    """Return the settings of the configured controller."""
    if args.config.kind == "upstream":
        return ControllerSettings(
            status_subresource=False,
            namespace=args.system_namespace,
            rbac="upstream-controller-rbac.yaml",
            command=(
                "/manager",
                "--enable-leader-election",
                f"--metrics-addr=:{CONTROLLER_METRICS_PORT}",
            ),
            health="/metrics",  # it has no health endpoint
        )
    return ControllerSettings(
        status_subresource=True,
        namespace=args.namespace,
        rbac="controller-rbac.yaml",
        command=(
            "python3",
            "-m",
            "controller",
            pulumi.Output.concat("--namespace=", args.namespace),
            f"--metrics-port={CONTROLLER_METRICS_PORT}",
            "--leader-elect",
        ),
        health="/healthz",
    )


def definition(*, status_subresource: bool) -> dict[str, Any]:
    """Return the CRD of ElasticJob; a status subresource would drop the status that the upstream controller writes."""
    (crd,) = manifests.read("elasticjob-crd.yaml")
    crd = copy.deepcopy(crd)
    if not status_subresource:
        for version in crd["spec"]["versions"]:
            del version["subresources"]["status"]
    return crd


class ElasticController(Component):
    """The CRD of ElasticJob and one controller for it.

    Attributes:
        image: image of the controller.
    """

    image: str

    def __init__(
        self,
        name: str,
        args: ElasticControllerArgs,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("platform:ElasticController", name, opts)
        settings = controller_settings(args)
        self.image = args.config.image or MAINTAINED_IMAGE
        crd = self._definition(settings)
        rbac = [
            manifests.declare(name, manifest, self.child())
            for manifest in manifests.read(settings.rbac)
        ]
        guard = ServiceAccountGuard(
            f"{name}-account",
            ServiceAccountGuardArgs(
                namespace=settings.namespace,
                account=_service_account(settings.rbac),
                image=self.image,
                command=settings.command,
            ),
            self.child(),
        )
        self._deployment(args, settings, depends_on=[crd, *rbac, guard])
        self.register_outputs({"image": self.image})

    def _definition(self, settings: ControllerSettings) -> apiextensions.CustomResource:
        """Declare the CRD of ElasticJob.

        It is an untyped CustomResource: the import of the typed class would add 0.1 s to every preview.
        """
        crd = definition(status_subresource=settings.status_subresource)
        return apiextensions.CustomResource(
            f"{self.name}-definition",
            api_version=crd["apiVersion"],
            kind=crd["kind"],
            metadata=crd["metadata"],
            spec=crd["spec"],
            opts=self.child(),
        )

    def _deployment(
        self,
        args: ElasticControllerArgs,
        settings: ControllerSettings,
        depends_on: list[pulumi.Resource],
    ) -> apps.v1.Deployment:
        """Declare the controller."""
        return apps.v1.Deployment(
            f"{self.name}-deployment",
            metadata=meta.v1.ObjectMetaArgs(
                name=CONTROLLER, namespace=settings.namespace, labels=LABELS
            ),
            spec=apps.v1.DeploymentSpecArgs(
                replicas=1,
                selector=meta.v1.LabelSelectorArgs(match_labels=LABELS),
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(
                        labels=LABELS,
                        annotations=scrape_annotations(CONTROLLER_METRICS_PORT) | POD_ANNOTATIONS,
                    ),
                    spec=self._pod(args, settings),
                ),
            ),
            opts=self.child(depends_on=depends_on, delete_before_replace=True),
        )

    def _pod(
        self, args: ElasticControllerArgs, settings: ControllerSettings
    ) -> core.v1.PodSpecArgs:
        """Return the pod of the controller, which has access to the API server."""
        return core.v1.PodSpecArgs(
            service_account_name=_service_account(settings.rbac),
            enable_service_links=False,
            security_context=pod_security(),
            priority_class_name=PLATFORM_PRIORITY_CLASS,
            node_selector=args.placement.selector or None,
            tolerations=tolerations(args.placement),
            termination_grace_period_seconds=10,
            containers=[self._container(settings)],
            volumes=[core.v1.VolumeArgs(name="tmp", empty_dir=core.v1.EmptyDirVolumeSourceArgs())],
        )

    def _container(self, settings: ControllerSettings) -> core.v1.ContainerArgs:
        """Return the container of the controller."""
        return core.v1.ContainerArgs(
            name="controller",
            image=self.image,
            image_pull_policy=PULL_POLICY,
            command=list(settings.command),
            env=[
                field_env(POD_NAME_VARIABLE, "metadata.name"),
                field_env("POD_NAMESPACE", "metadata.namespace"),
            ],
            ports=[
                core.v1.ContainerPortArgs(name="metrics", container_port=CONTROLLER_METRICS_PORT)
            ],
            readiness_probe=_probe(settings.health, period=2, failures=3),
            liveness_probe=_probe(settings.health, period=20, failures=6),
            security_context=container_security(),
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "50m", "memory": "96Mi"},
                limits={"memory": CONTROLLER_MEMORY_LIMIT},
            ),
            volume_mounts=[
                core.v1.VolumeMountArgs(name="tmp", mount_path="/tmp"),  # noqa: S108 - private to the pod
            ],
        )


def _probe(path: str, *, period: int, failures: int) -> core.v1.ProbeArgs:
    """Return a probe of the metrics port; `period` in seconds."""
    return core.v1.ProbeArgs(
        http_get=core.v1.HTTPGetActionArgs(path=path, port=CONTROLLER_METRICS_PORT),
        period_seconds=period,
        timeout_seconds=5,
        failure_threshold=failures,
    )


def _service_account(rbac: str) -> str:
    """Return the name of the only ServiceAccount that a file of manifests/ declares."""
    (name,) = (
        str(manifest["metadata"]["name"])
        for manifest in manifests.read(rbac)
        if manifest["kind"] == "ServiceAccount"
    )
    return name
