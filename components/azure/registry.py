"""A registry on Azure (ACR) for the images of a cluster.

Nodes pull with the identity of their kubelet, which has no other role. There is no admin user, whose
password would be shared. A task of the registry removes old images every week: retention policies of
ACR apply only to untagged images, and exist only in the most expensive tier.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import containerregistry

from components.azure.roles import BuiltInRole, grant
from components.component import Component
from components.config import RegistryConfig

PURGE_MINUTES = 60
WEEKLY_SCHEDULE = "0 3 * * Sun"  # cron, UTC
MIN_AGE_DAYS = 7  # all younger images are kept, because a running job may restart from them


@dataclass(frozen=True, kw_only=True)
class AzureRegistryArgs:
    """Arguments of an AzureRegistry.

    Attributes:
        config: the `registry` section of a stack.
        group: name of the resource group.
        location: Azure region.
        kubelet_id: object id of the nodes' identity; None: no identity may pull yet.
        protect: whether the registry, with its images, is protected against deletion.
        tags: tags of the registry and its task.
    """

    config: RegistryConfig
    group: pulumi.Input[str]
    location: str
    kubelet_id: pulumi.Input[str] | None
    protect: bool
    tags: Mapping[str, str]


class AzureRegistry(Component):
    """A registry, the pull role of the nodes, and the removal of old images.

    Attributes:
        host: host name of the registry in image references.
    """

    host: pulumi.Output[str]

    def __init__(
        self, name: str, args: AzureRegistryArgs, opts: pulumi.ResourceOptions | None = None
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
            opts=self.child(delete_before_replace=True, protect=args.protect),
        )
        if args.kubelet_id is not None:
            grant(
                f"{name}-pull",
                BuiltInRole.ACR_PULL,
                scope=registry.id,
                principal_id=args.kubelet_id,
                opts=self.child(delete_before_replace=True),
            )
        self._declare_purge(args, registry)
        self.host = registry.login_server
        self.register_outputs({"host": self.host})

    def _declare_purge(self, args: AzureRegistryArgs, registry: containerregistry.Registry) -> None:
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
                type="EncodedTask", encoded_task_content=purge_task(args.config.keep_images)
            ),
            trigger=containerregistry.TriggerPropertiesArgs(
                timer_triggers=[
                    containerregistry.TimerTriggerArgs(
                        name="weekly", schedule=WEEKLY_SCHEDULE, status="Enabled"
                    )
                ]
            ),
            tags=args.tags,
            opts=self.child(delete_before_replace=True),
        )


def purge_task(keep_images: int) -> str:
    """Return the task, in base64, that keeps the newest `keep_images` images of each repository."""
    command = f"acr purge --filter '.*:.*' --ago {MIN_AGE_DAYS}d --keep {keep_images} --untagged"
    task = (
        "version: v1.1.0\n"
        "steps:\n"
        f"  - cmd: {command}\n"
        "    disableWorkingDirectoryOverride: true\n"
        f"    timeout: {PURGE_MINUTES * 60}\n"
    )
    return base64.b64encode(task.encode()).decode()
