"""Who goes first and how much there may be: priority classes, and a quota for the job's namespace.

There is no LimitRange: every pod of ours states what it needs, and a default for the others would
hide that they do not.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import core, meta, scheduling

from components.part import Part
from components.platform.gpu import GPU
from components.platform.pods import PART_OF

PLATFORM_CLASS = "everstep-platform"
WORKER_CLASS = "everstep-workers"
PLATFORM_VALUE = 1_000_000  # Kubernetes' own classes begin at 2,000,000,000


@dataclass(frozen=True, kw_only=True)
class GovernanceArgs:
    """What to hold to.

    Attributes:
        pods: most pods in the job's namespace.
        gpus: most GPUs asked for in it; None: no limit.
        namespace: the job's.
    """

    pods: int
    gpus: int | None
    namespace: pulumi.Input[str]


class Governance(Part):
    """Two priority classes and one quota."""

    def __init__(
        self, name: str, args: GovernanceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:Governance", name, opts)
        self._priority(
            "platform",
            PLATFORM_CLASS,
            PLATFORM_VALUE,
            "Everstep's etcd, controller and data preparation: training waits for them.",
        )
        self._priority("workers", WORKER_CLASS, 0, "Workers: they push nobody aside.")
        self._quota(args)
        self.register_outputs({})

    def _priority(self, key: str, name: str, value: int, meaning: str) -> None:
        """Declare one class; only the platform's pods make room for themselves."""
        scheduling.v1.PriorityClass(
            f"{self.name}-{key}",
            metadata=meta.v1.ObjectMetaArgs(name=name, labels=PART_OF),
            value=value,
            global_default=False,
            preemption_policy="PreemptLowerPriority" if value else "Never",
            description=meaning,
            opts=self.child(
                delete_before_replace=True, replace_on_changes=["value", "preemptionPolicy"]
            ),
        )

    def _quota(self, args: GovernanceArgs) -> None:
        """Declare the quota: a runaway controller or a typing error is to cost no fortune."""
        hard = {"pods": str(args.pods)}
        if args.gpus is not None:
            hard[f"requests.{GPU}"] = str(args.gpus)
        core.v1.ResourceQuota(
            f"{self.name}-quota",
            metadata=meta.v1.ObjectMetaArgs(name="everstep", namespace=args.namespace),
            spec=core.v1.ResourceQuotaSpecArgs(hard=hard),
            opts=self.child(delete_before_replace=True),
        )
