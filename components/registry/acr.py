"""A registry on Azure (ACR), from which the cluster's nodes pull and into which people push.

Nodes pull as their kubelet's identity, which is allowed nothing else. There is no admin user: its
password would be one that everybody shares. A task of the registry's own removes old images every
week: retention rules of ACR touch only what has no tag, and only in its dearest tier.
"""

import base64
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import containerregistry

from components.cluster.aks_roles import Role, grant
from components.config import RegistryConfig
from components.part import Part

PURGE_MINUTES = 60
EVERY_WEEK = "0 3 * * Sun"  # cron, UTC
OLD_DAYS = 7  # younger images stay, however many: a running job may restart from them


@dataclass(frozen=True, kw_only=True)
class AcrArgs:
    """What to make, and who pulls.

    Attributes:
        config: the stack's `registry` section.
        group: name of the resource group.
        location: where.
        kubelet_id: object id of the nodes' identity.
        tags: of the registry and its task.
    """

    config: RegistryConfig
    group: pulumi.Output[str]
    location: str
    kubelet_id: pulumi.Output[str]
    tags: dict[str, str]


class AzureRegistry(Part):
    """A registry, the nodes' right to pull, and the sweeping of old images.

    Attributes:
        host: its name in an image's reference.
    """

    host: pulumi.Output[str]

    def __init__(
        self, name: str, args: AcrArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("registry:AzureRegistry", name, opts)
        registry = containerregistry.Registry(
            f"{name}-registry",
            registry_name=args.config.name,
            resource_group_name=args.group,
            location=args.location,
            sku=containerregistry.SkuArgs(name="Standard"),
            admin_user_enabled=False,
            anonymous_pull_enabled=False,
            tags=args.tags,
            opts=self.child(delete_before_replace=True),
        )
        grant(
            f"{name}-pull",
            Role.ACR_PULL,
            scope=registry.id,
            principal_id=args.kubelet_id,
            opts=self.child(delete_before_replace=True),
        )
        self._sweep(args, registry)
        self.host = registry.login_server
        self.register_outputs({"host": self.host})

    def _sweep(self, args: AcrArgs, registry: containerregistry.Registry) -> None:
        """Declare the weekly removal of old images."""
        containerregistry.Task(
            f"{self.name}-sweep",
            task_name="sweep",
            registry_name=registry.name,
            resource_group_name=args.group,
            location=args.location,
            platform=containerregistry.PlatformPropertiesArgs(os="Linux", architecture="amd64"),
            agent_configuration=containerregistry.AgentPropertiesArgs(cpu=2),
            timeout=PURGE_MINUTES * 60,
            status="Enabled",
            step=containerregistry.EncodedTaskStepArgs(
                type="EncodedTask", encoded_task_content=sweep(args.config.keep_images)
            ),
            trigger=containerregistry.TriggerPropertiesArgs(
                timer_triggers=[
                    containerregistry.TimerTriggerArgs(
                        name="weekly", schedule=EVERY_WEEK, status="Enabled"
                    )
                ]
            ),
            tags=args.tags,
            opts=self.child(delete_before_replace=True),
        )


def sweep(keep: int) -> str:
    """Give the task that keeps the newest `keep` images of each repository, in base64."""
    command = f"acr purge --filter '.*:.*' --ago {OLD_DAYS}d --keep {keep} --untagged"
    task = (
        "version: v1.1.0\n"
        "steps:\n"
        f"  - cmd: {command}\n"
        "    disableWorkingDirectoryOverride: true\n"
        f"    timeout: {PURGE_MINUTES * 60}\n"
    )
    return base64.b64encode(task.encode()).decode()
