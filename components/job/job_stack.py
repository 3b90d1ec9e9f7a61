"""JobStack: a training job on the platform of another stack.

It declares a priority class and, in the namespace of that platform, a quota, the data preparation, the ElasticJob
and, for a cache, a network policy, but no cloud resource: its user needs permissions only for that namespace and for
priority classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes import core, meta, networking, scheduling

from components.component import Component
from components.config import JobConfig, PlatformStackConfig, StackConfig
from components.config.faults import ConfigurationError
from components.interface import Placement, data_folder
from components.job import shared_platform
from components.job.data_prep import DataPrep, DataPrepArgs
from components.job.elastic_job import ElasticTrainingJob, ElasticTrainingJobArgs
from components.job.shared_platform import SharedPlatform
from components.platform.image_pull import add_image_pull_secrets
from components.platform.network import store_rule
from components.platform.pods import PART_OF, WORKER
from components.spending import job_spending
from everstep.catalog.names import JOB_NAME_LABEL, MOUNT


@dataclass(frozen=True, kw_only=True)
class JobStackArgs:
    """Arguments of a JobStack.

    Attributes:
        config: the whole validated configuration.
        priority: priority of the workers.
        platform: the platform of another stack.
        provider: provider of its cluster.
    """

    config: StackConfig
    priority: int
    platform: SharedPlatform
    provider: kubernetes.Provider


class JobStack(Component):
    """A training job with its priority and its quota.

    Attributes:
        outputs: stack outputs.
    """

    outputs: Mapping[str, pulumi.Input[str]]

    def __init__(
        self, name: str, args: JobStackArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        inherited = pulumi.ResourceOptions(
            provider=args.provider,
            transformations=[add_image_pull_secrets(args.platform.registries)],
        )
        super().__init__("stack:JobStack", name, pulumi.ResourceOptions.merge(opts, inherited))
        self._args, self._platform = args, args.platform
        self._config = _job_config(args.config.job, args.platform)
        prerequisites = [
            self._declare_priority(),
            self._declare_quota(),
            *self._declare_store_access(),
        ]
        data = self._declare_data(prerequisites)
        self.outputs = self._declare_job([*prerequisites, *data], self._folder(data)).outputs
        self.register_outputs(dict(self.outputs))

    @property
    def _zones(self) -> tuple[str, ...]:
        """Zones of which the job uses one at a time; empty if it may spread over several."""
        return () if self._config.spread_zones else self._platform.zones

    @property
    def _moves(self) -> bool:
        """Whether the controller may move the job to another zone."""
        return len(self._zones) > 1 and not self._platform.upstream

    def _declare_priority(self) -> scheduling.v1.PriorityClass:
        """Declare the priority of the workers, which preempt other workers only if it is above 0."""
        value = self._args.priority
        return scheduling.v1.PriorityClass(
            f"{self.name}-priority",
            metadata=meta.v1.ObjectMetaArgs(
                name=_priority_class(self._config.name), labels=PART_OF
            ),
            value=value,
            global_default=False,
            preemption_policy="PreemptLowerPriority" if value > 0 else "Never",
            description=f"Workers of the job {self._config.name}.",
            opts=self.child(
                delete_before_replace=True, replace_on_changes=["value", "preemptionPolicy"]
            ),
        )

    def _declare_quota(self) -> core.v1.ResourceQuota:
        """Declare the maximum number of workers; a quota by priority class cannot count GPUs.

        In a move between zones, the old workers train until the new workers do.
        """
        selector = core.v1.ScopedResourceSelectorRequirementArgs(
            scope_name="PriorityClass", operator="In", values=[_priority_class(self._config.name)]
        )
        return core.v1.ResourceQuota(
            f"{self.name}-quota",
            metadata=meta.v1.ObjectMetaArgs(
                name=_priority_class(self._config.name), namespace=self._platform.namespace
            ),
            spec=core.v1.ResourceQuotaSpecArgs(
                hard={"pods": str(self._config.max_replicas * (2 if self._moves else 1))},
                scope_selector=core.v1.ScopeSelectorArgs(match_expressions=[selector]),
            ),
            opts=self.child(delete_before_replace=True, replace_on_changes=["spec.scopeSelector"]),
        )

    def _declare_store_access(self) -> list[networking.v1.NetworkPolicy]:
        """Let the workers reach the object store of a cache: a platform without a cache lets no worker reach it."""
        if not (self._args.config.data.cache and self._platform.network_policies):
            return []  # without other policies, this one would deny the workers all other traffic
        policy = f"job-{self._config.name}-to-store"
        rule = store_rule({**WORKER, JOB_NAME_LABEL: self._config.name}, name=policy)
        return [
            networking.v1.NetworkPolicy(
                f"{self.name}-to-store",
                metadata=meta.v1.ObjectMetaArgs(name=policy, namespace=self._platform.namespace),
                spec=rule.spec(),
                opts=self.child(delete_before_replace=True),
            )
        ]

    def _declare_data(self, depends_on: Sequence[pulumi.Resource]) -> list[DataPrep]:
        """Declare the preparation of a data set that the platform's own stack has not prepared."""
        data = self._args.config.data
        if self._config.command or data.cache or data.dataset == self._platform.dataset:
            return []
        args = DataPrepArgs(
            config=data,
            image=data.image or self._config.image,
            namespace=self._platform.namespace,
            placement=Placement.from_config(self._platform.system_pool),
            storage=self._platform.storage,
            job=self._config.name,
        )
        return [DataPrep(f"{self.name}-data", args, self.child(depends_on=depends_on))]

    def _folder(self, prepared: Sequence[DataPrep]) -> str | None:
        """Return the path of the data set in a worker; None for the user's own program, and with a cache."""
        data = self._args.config.data
        if self._config.command or data.cache:
            return None
        platform_folder = f"{MOUNT}/{data_folder(data.dataset)}"
        return next((preparation.folder for preparation in prepared), platform_folder)

    def _declare_job(
        self, depends_on: Sequence[pulumi.Resource], folder: str | None
    ) -> ElasticTrainingJob:
        platform, data = self._platform, self._args.config.data
        args = ElasticTrainingJobArgs(
            config=self._config,
            dataset=None if self._config.command else data.dataset,
            data=folder,
            cache=data.cache,
            spending=job_spending(self._args.config),
            endpoint=platform.endpoint,
            etcd_users=platform.etcd_users,
            namespace=platform.namespace,
            placement=Placement.from_config(platform.gpu_pool),
            storage=platform.storage,
            upstream=platform.upstream,
            efa_interfaces=platform.efa_interfaces,
            zones=self._zones,
            zone_prices=platform.zone_prices,
            zone_ceilings=platform.zone_ceilings,
            scales_from_zero=platform.scales_from_zero,
        )
        return ElasticTrainingJob(f"{self.name}-job", args, self.child(depends_on=depends_on))


def _priority_class(job: str) -> str:
    """Return the name of a job's priority class and quota."""
    return f"everstep-job-{job}"


def _job_config(job: JobConfig, platform: SharedPlatform) -> JobConfig:
    """Return the job with its priority class, and with the defaults of the platform's cluster."""
    defaults = {"image": platform.image, "grace_seconds": platform.grace_seconds}
    missing = {key: value for key, value in defaults.items() if key not in job.model_fields_set}
    return job.model_copy(update={**missing, "priority_class": _priority_class(job.name)})


async def declare(config: StackConfig, stack: PlatformStackConfig) -> pulumi.Inputs:
    """Declare the job of a stack on the platform of another stack, and return the outputs of the job.

    Raises:
        RunError: the other stack shares no platform on which this job can run.
    """
    path = f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack.name}"
    reference = pulumi.StackReference(path)
    output = await reference.get_output_details(shared_platform.OUTPUT)
    try:
        platform = shared_platform.read(stack.name, output.value, config)
    except ConfigurationError as error:
        raise pulumi.RunError(str(error)) from None  # for the user to fix: no traceback
    kubeconfig: pulumi.Output[str] = reference.require_output("kubeconfig")  # secret in both stacks
    args = JobStackArgs(
        config=config,
        priority=stack.priority,
        platform=platform,
        provider=provider_of(platform, kubeconfig),
    )
    return JobStack("training", args).outputs


def provider_of(
    platform: shared_platform.SharedPlatform, kubeconfig: pulumi.Input[str]
) -> kubernetes.Provider:
    """Declare the Kubernetes provider for the cluster of a platform; a new certificate replaces no objects."""
    return kubernetes.Provider(
        "platform-kubernetes",
        kubeconfig=kubeconfig,
        context=platform.context,
        cluster_identifier=platform.cluster_identifier,
    )
