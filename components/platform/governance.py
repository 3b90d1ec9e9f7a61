"""Priority classes, and a quota for the namespace of the job.

There is no LimitRange: every pod of Everstep has explicit requests, and defaults would hide that the
requests of other pods are missing.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import core, meta, scheduling

from components.component import Component
from components.platform.pods import PART_OF
from everstep.catalog.names import (
    GPU_RESOURCE,
    PLACEHOLDER_PRIORITY_CLASS,
    PLATFORM_PRIORITY_CLASS,
    WORKER_PRIORITY_CLASS,
)

PLACEHOLDER_VALUE = (
    -10
)  # the lowest for which the cluster autoscaler adds nodes; MIN_PRIORITY of jobs is higher
PLATFORM_VALUE = 1_000_000  # Kubernetes' own classes begin at 2,000,000,000


@dataclass(frozen=True, kw_only=True)
class GovernanceArgs:
    """Arguments of a Governance.

    Attributes:
        pods: maximum number of pods in the namespace.
        gpus: maximum number of GPUs requested in it; None: no limit.
        namespace: namespace of the job.
    """

    pods: int
    gpus: int | None
    namespace: pulumi.Input[str]


class Governance(Component):
    """Three priority classes and one quota."""

    def __init__(
        self, name: str, args: GovernanceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:Governance", name, opts)
        self._priority(
            "platform",
            PLATFORM_PRIORITY_CLASS,
            PLATFORM_VALUE,
            "Everstep's etcd, controller and data preparation: training waits for them.",
        )
        self._priority("workers", WORKER_PRIORITY_CLASS, 0, "Workers: never preempt other pods.")
        self._priority(
            "placeholders",
            PLACEHOLDER_PRIORITY_CLASS,
            PLACEHOLDER_VALUE,
            "Placeholders: request machines in other zones; no pod of Everstep has a lower priority.",
        )
        self._quota(args)
        self.register_outputs({})

    def _priority(self, key: str, name: str, value: int, description: str) -> None:
        """Declare a priority class; only pods of the platform preempt other pods."""
        scheduling.v1.PriorityClass(
            f"{self.name}-{key}",
            metadata=meta.v1.ObjectMetaArgs(name=name, labels=PART_OF),
            value=value,
            global_default=False,
            preemption_policy="PreemptLowerPriority" if value > 0 else "Never",
            description=description,
            opts=self.child(
                delete_before_replace=True, replace_on_changes=["value", "preemptionPolicy"]
            ),
        )

    def _quota(self, args: GovernanceArgs) -> None:
        """Declare the quota, which limits the cost of a bug or a typo."""
        hard = {"pods": str(args.pods)}
        if args.gpus is not None:
            hard[f"requests.{GPU_RESOURCE}"] = str(args.gpus)
        core.v1.ResourceQuota(
            f"{self.name}-quota",
            metadata=meta.v1.ObjectMetaArgs(name="everstep", namespace=args.namespace),
            spec=core.v1.ResourceQuotaSpecArgs(hard=hard),
            opts=self.child(delete_before_replace=True),
        )
