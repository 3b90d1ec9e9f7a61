"""Metrics of an EKS cluster in Amazon Managed Service for Prometheus.

A Prometheus in agent mode scrapes the workers, the data preparation, the controller and the exporters of GPU nodes,
and sends the samples to a workspace. It keeps samples only until they are sent. Its role may only write to this
workspace.

AWS's own scraper needs no pod, but is billed per collector and hour, and its network interfaces have no labels by which
network policies could admit them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import yaml
from pulumi_aws import amp, eks
from pulumi_kubernetes import apps, core, meta, rbac

from components.aws.iam import Statement
from components.aws.identity import PodIdentityArgs, declare_pod_identity
from components.component import Component
from components.interface import Placement
from components.platform.pods import (
    PULL_POLICY,
    container_security,
    labels,
    pod_security,
    tolerations,
)
from components.platform.scraping import scrape_job
from everstep.catalog.names import DOMAIN

NAME = "metrics-agent"
NAMESPACE = "kube-system"
LABELS = labels(NAME)
PORT = 9090
FILE = "prometheus.yml"
CONFIG_FOLDER = "/etc/prometheus"
STORAGE_FOLDER = "/prometheus"


@dataclass(frozen=True, kw_only=True)
class EksMetricsAgentArgs:
    """Arguments of an EksMetricsAgent.

    Attributes:
        cluster: name of the cluster, and of the workspace.
        cluster_name: the same name as an output of the cluster, so that the agent depends on it.
        region: AWS region.
        image: image of Prometheus.
        scrape_seconds: seconds between two scrapes of a pod.
        rules: recording rules and alerts, in the format of a Prometheus rule file.
        placement: nodes on which it runs.
    """

    cluster: str
    cluster_name: pulumi.Input[str]
    region: str
    image: str
    scrape_seconds: int
    rules: str
    placement: Placement


class EksMetricsAgent(Component):
    """A workspace for metrics, and the agent that fills it.

    Attributes:
        endpoint: address of the workspace, with a trailing slash.
    """

    endpoint: pulumi.Output[str]

    def __init__(
        self, name: str, args: EksMetricsAgentArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksMetricsAgent", name, opts)
        self._args = args
        workspace = amp.Workspace(f"{name}-workspace", alias=args.cluster, opts=self.child())
        self.endpoint = workspace.prometheus_endpoint
        amp.RuleGroupNamespace(
            f"{name}-rules",
            name="everstep",
            workspace_id=workspace.id,
            data=args.rules,
            opts=self.child(delete_before_replace=True),
        )
        account = core.v1.ServiceAccount(
            f"{name}-account",
            metadata=self._metadata(),
            automount_service_account_token=False,  # its pod mounts the token explicitly
            opts=self.child(delete_before_replace=True),
        )
        permissions = [self._identity(workspace), self._discovery()]
        self._deployment(self._config(), [account, *permissions])
        self.register_outputs({"endpoint": self.endpoint})

    def _metadata(self) -> meta.v1.ObjectMetaArgs:
        return meta.v1.ObjectMetaArgs(name=NAME, namespace=NAMESPACE, labels=LABELS)

    def _identity(self, workspace: amp.Workspace) -> eks.PodIdentityAssociation:
        """Declare the role of the agent's pod on AWS."""
        write = Statement(actions=["aps:RemoteWrite"], resources=[workspace.arn])
        return declare_pod_identity(
            self,
            PodIdentityArgs(
                cluster_name=self._args.cluster_name,
                namespace=NAMESPACE,
                service_account=NAME,
                guarded=True,
                role_name=f"{self._args.cluster}-metrics",
                statements={"write": [write]},
            ),
        )

    def _discovery(self) -> rbac.v1.ClusterRoleBinding:
        """Declare the permission to find pods in the whole cluster, because their namespaces are created later."""
        metadata = meta.v1.ObjectMetaArgs(name=f"everstep-{NAME}", labels=LABELS)
        role = rbac.v1.ClusterRole(
            f"{self.name}-pods",
            metadata=metadata,
            rules=[
                rbac.v1.PolicyRuleArgs(
                    api_groups=[""], resources=["pods"], verbs=["get", "list", "watch"]
                )
            ],
            opts=self.child(),
        )
        return rbac.v1.ClusterRoleBinding(
            f"{self.name}-pods-binding",
            metadata=metadata,
            role_ref=rbac.v1.RoleRefArgs(
                api_group="rbac.authorization.k8s.io",
                kind="ClusterRole",
                name=f"everstep-{NAME}",
            ),
            subjects=[
                rbac.v1.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=NAMESPACE),
            ],
            opts=self.child(depends_on=[role]),
        )

    def _config(self) -> core.v1.ConfigMap:
        """Declare the configuration of Prometheus."""
        content = self.endpoint.apply(lambda endpoint: configuration(endpoint, self._args))
        return core.v1.ConfigMap(
            f"{self.name}-config",
            metadata=self._metadata(),
            data={FILE: content},
            opts=self.child(delete_before_replace=True),
        )

    def _deployment(
        self, config: core.v1.ConfigMap, depends_on: Sequence[pulumi.Resource]
    ) -> apps.v1.Deployment:
        """Declare the Deployment; the agent needs its identity when its pod starts."""
        digest = config.data.apply(lambda data: hashlib.sha256(data[FILE].encode()).hexdigest())
        return apps.v1.Deployment(
            f"{self.name}-deployment",
            metadata=self._metadata(),
            spec=apps.v1.DeploymentSpecArgs(
                replicas=1,
                strategy=apps.v1.DeploymentStrategyArgs(type="Recreate"),
                selector=meta.v1.LabelSelectorArgs(match_labels=LABELS),
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(
                        labels=LABELS,
                        # A changed file restarts the pod.
                        annotations={f"{DOMAIN}/config": digest},
                    ),
                    spec=self._pod(),
                ),
            ),
            opts=self.child(depends_on=depends_on, delete_before_replace=True),
        )

    def _pod(self) -> core.v1.PodSpecArgs:
        return core.v1.PodSpecArgs(
            service_account_name=NAME,
            automount_service_account_token=True,
            node_selector=dict(self._args.placement.selector),
            tolerations=tolerations(self._args.placement),
            security_context=pod_security(),
            containers=[self._container()],
            volumes=[
                core.v1.VolumeArgs(
                    name="config", config_map=core.v1.ConfigMapVolumeSourceArgs(name=NAME)
                ),
                core.v1.VolumeArgs(
                    name="storage", empty_dir=core.v1.EmptyDirVolumeSourceArgs(size_limit="2Gi")
                ),
            ],
        )

    def _container(self) -> core.v1.ContainerArgs:
        return core.v1.ContainerArgs(
            name=NAME,
            image=self._args.image,
            image_pull_policy=PULL_POLICY,
            args=[
                "--agent",
                f"--config.file={CONFIG_FOLDER}/{FILE}",
                f"--storage.agent.path={STORAGE_FOLDER}",
            ],
            ports=[core.v1.ContainerPortArgs(name="http", container_port=PORT)],
            readiness_probe=core.v1.ProbeArgs(
                http_get=core.v1.HTTPGetActionArgs(path="/-/ready", port=PORT)
            ),
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "512Mi"}
            ),
            security_context=container_security(),
            volume_mounts=[
                core.v1.VolumeMountArgs(name="config", mount_path=CONFIG_FOLDER, read_only=True),
                core.v1.VolumeMountArgs(name="storage", mount_path=STORAGE_FOLDER),
            ],
        )


def configuration(endpoint: str, args: EksMetricsAgentArgs) -> str:
    """Return the configuration of Prometheus: its scrape job, and the workspace that gets the samples.

    Args:
        endpoint: address of the workspace, with a trailing slash.
        args: the arguments of the agent.
    """
    remote_write = {"url": f"{endpoint}api/v1/remote_write", "sigv4": {"region": args.region}}
    document = {
        "global": {"external_labels": {"cluster": args.cluster}},
        "scrape_configs": [scrape_job(args.scrape_seconds)],
        "remote_write": [remote_write],
    }
    return yaml.safe_dump(document, sort_keys=False)
