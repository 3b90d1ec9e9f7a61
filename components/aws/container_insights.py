"""Container Insights of an EKS cluster: metrics of nodes, pods and GPUs, and logs of containers, in CloudWatch.

AWS's add-on runs an agent, Fluent Bit and a DCGM exporter on the nodes. They would create their log groups
themselves; `pulumi destroy` would leave these groups and their logs, which never expire. The add-on therefore
depends on the groups: they are created before it and deleted after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import cloudwatch

from components.aws.addons import AddonIdentity, EksAddons, EksAddonsArgs
from components.component import Component
from components.config.catalog import CLOUDWATCH_ADDON

IDENTITY = AddonIdentity(
    service_account="cloudwatch-agent", managed_policies=["CloudWatchAgentServerPolicy"]
)


@dataclass(frozen=True, kw_only=True)
class EksContainerInsightsArgs:
    """Arguments of EksContainerInsights.

    Attributes:
        cluster: name of the cluster, prefix of the role's name.
        cluster_name: the same name as an output of the cluster, so that the add-on depends on it.
        kubernetes_version: minor version of the cluster, such as 1.36.
        versions: add-on -> version; an absent add-on gets AWS's default version.
        log_groups: names of the log groups.
        log_retention_days: days for which logs are kept.
        kms_key_arn: existing key for the logs; None: a key that CloudWatch manages.
    """

    cluster: str
    cluster_name: pulumi.Input[str]
    kubernetes_version: pulumi.Input[str]
    versions: Mapping[str, pulumi.Input[str]]
    log_groups: Sequence[str]
    log_retention_days: pulumi.Input[int]
    kms_key_arn: pulumi.Input[str] | None = None


class EksContainerInsights(Component):
    """The add-on of CloudWatch, its role and its log groups.

    Attributes:
        addons: the add-on. Objects in the cluster are deleted before it, so that their last logs are kept.
    """

    addons: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: EksContainerInsightsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksContainerInsights", name, opts)
        groups = [
            cloudwatch.LogGroup(
                f"{name}-{group.rpartition('/')[2]}",
                name=group,
                retention_in_days=args.log_retention_days,
                kms_key_id=args.kms_key_arn,
                opts=self.child(delete_before_replace=True),
            )
            for group in args.log_groups
        ]
        addon_args = EksAddonsArgs(
            cluster=args.cluster,
            cluster_name=args.cluster_name,
            kubernetes_version=args.kubernetes_version,
            addons=[CLOUDWATCH_ADDON],
            versions=args.versions,
            identities={CLOUDWATCH_ADDON: IDENTITY},
        )
        self.addons = EksAddons(f"{name}-addon", addon_args, self.child(depends_on=groups)).addons
        self.register_outputs({})
