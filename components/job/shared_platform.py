"""The stack output `platform`, through which a stack shares its platform with jobs of other stacks.

A job stack needs plain values, since they decide which fields its objects have. It therefore reads the output
as it was deployed, through a StackReference, and never the file of the other stack, which may have changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pulumi
from pydantic import ConfigDict, Field, ValidationError

from components.config import PoolConfig, Section, StackConfig
from components.config.faults import ConfigFault, ConfigurationError
from components.config.job_rules import controller_supports_scaling
from components.config.limits_rules import controller_supports_limits
from components.interface import Cluster, Placement, Storage
from components.spending import zone_ceilings, zone_prices

OUTPUT = "platform"
STACK_KEY = "platformStack.name"


class SharedPlatform(Section):
    """The platform of a stack.

    Attributes:
        job: name of the job of that stack.
        context: context in its kubeconfig; None: the current one.
        cluster_identifier: ARN or ARM id of its cluster; None without a cloud.
        namespace: namespace of the controller and of all jobs.
        claim: name of the claim on the shared volume.
        location: path, share or bucket in which a user finds the files.
        service_account: ServiceAccount whose pods may mount the volume.
        pod_labels: labels that pods need to mount it.
        endpoint: host and port of etcd.
        etcd_users: whether etcd requires a certificate and a user.
        upstream: whether the published TorchElastic controller runs the jobs.
        gpu_pool: nodes of workers.
        system_pool: nodes of the data preparation.
        zones: zones of the GPU nodes, the preferred one first.
        zone_prices: price of a machine in USD per hour in each zone; a zone is absent if its price is unknown.
        zone_ceilings: maximum price in USD per hour at which a job may move to a zone; a zone is absent if it has no
            maximum.
        efa_interfaces: number of Elastic Fabric Adapters of a GPU node.
        scales_from_zero: whether GPU nodes are created when workers wait for them.
        dataset: data set that the stack has prepared; None if there is none.
        image: image of that stack's job, the default for other jobs.
        grace_seconds: termination grace period of that stack's workers in seconds, the default for other jobs.
        registries: hosts of the third-party registries for which the namespace has logins.
        network_policies: whether network policies deny the workers all traffic that is not allowed.
    """

    model_config = ConfigDict(extra="ignore")  # a newer version of Everstep may export more fields

    job: str
    context: str | None = None  # Pulumi omits None in outputs
    cluster_identifier: str | None = None
    namespace: str
    claim: str
    location: str
    service_account: str
    pod_labels: dict[str, str]
    endpoint: str
    etcd_users: bool
    upstream: bool
    gpu_pool: PoolConfig
    system_pool: PoolConfig
    zones: tuple[str, ...]
    zone_prices: dict[str, float] = Field(default_factory=dict)
    zone_ceilings: dict[str, float] = Field(default_factory=dict)
    efa_interfaces: int
    scales_from_zero: bool
    dataset: str | None = None
    image: str
    grace_seconds: int
    registries: tuple[str, ...] = ()
    network_policies: bool = True

    @property
    def storage(self) -> Storage:
        """The volume, as pods use it."""
        return Storage(
            claim=pulumi.Output.from_input(self.claim),
            location=pulumi.Output.from_input(self.location),
            service_account=pulumi.Output.from_input(self.service_account),
            pod_labels=self.pod_labels,
        )


def platform_output(
    config: StackConfig,
    cluster: Cluster,
    storage: Storage,
    namespace: pulumi.Input[str],
    endpoint: pulumi.Input[str],
) -> dict[str, pulumi.Input[Any]]:
    """Return the output `platform` of a stack."""
    return {
        "job": config.job.name,
        "context": config.cluster.context if config.cluster.kind == "existing" else None,
        "clusterIdentifier": cluster.identifier,
        "namespace": namespace,
        "claim": storage.claim,
        "location": storage.location,
        "serviceAccount": storage.service_account,
        "podLabels": dict(storage.pod_labels),
        "endpoint": endpoint,
        "etcdUsers": config.etcd.has_users,
        "upstream": config.controller.kind == "upstream",
        "gpuPool": _pool(cluster.gpu_pool),
        "systemPool": _pool(cluster.system_pool),
        "zones": list(cluster.gpu_zones),
        "zonePrices": _of_zones(zone_prices(config), cluster),
        "zoneCeilings": _of_zones(zone_ceilings(config), cluster),
        "efaInterfaces": cluster.efa_interfaces,
        "scalesFromZero": cluster.scales_from_zero,
        "dataset": None if config.job.command or config.data.cache else config.data.dataset,
        "image": config.job.image,
        "graceSeconds": config.job.grace_seconds,
        "registries": list(config.platform.registry_logins),
        "networkPolicies": config.platform.network_policies,
    }


def _of_zones(prices: Mapping[str, float], cluster: Cluster) -> dict[str, float]:
    """Return the prices of the GPU nodes' zones."""
    return {zone: prices[zone] for zone in cluster.gpu_zones if zone in prices}


def _pool(placement: Placement) -> dict[str, Any]:
    """Return the nodes of a pool as in a stack file."""
    pool = PoolConfig(selector=dict(placement.selector), tolerations=tuple(placement.tolerations))
    return pool.model_dump(by_alias=True, exclude_none=True)


def read(stack: str, output: Mapping[str, Any] | None, config: StackConfig) -> SharedPlatform:
    """Return the platform that a stack exports, checked for a job of another stack.

    Args:
        stack: name of the platform's stack.
        output: its output `platform`; None if it has none.
        config: configuration of the stack whose job will run on it.

    Raises:
        ConfigurationError: the stack shares no platform, or this job cannot run on it.
    """
    if output is None:
        rule, fix = "has no output `platform`", f"run `everstep up --stack {stack}` first"
        raise _error(STACK_KEY, stack, rule, fix)
    try:
        platform = SharedPlatform.model_validate(output)
    except ValidationError as error:
        keys = ", ".join(str(fault["loc"][0]) for fault in error.errors())
        rule = f"has an output `platform` of another version of Everstep: {keys}"
        raise _error(STACK_KEY, stack, rule, f"run `everstep up --stack {stack}`") from None
    if platform.etcd_users:
        rule = (
            "has etcd.authentication: users, so workers may write only the keys of that stack's job"
        )
        raise _error(
            STACK_KEY,
            stack,
            rule,
            "set etcd.authentication to none there, or give this job its own platform",
        )
    job = config.job.name
    if platform.job == job:
        rule = f"is the name of the job of the stack {stack}, which has the same namespace and run folder"
        raise _error("job.name", job, rule, "choose another name")
    if faults := [
        *_source_faults(stack, platform, config),
        *_limit_faults(stack, platform, config),
    ]:
        raise ConfigurationError(faults)
    return platform


def _source_faults(
    stack: str, platform: SharedPlatform, config: StackConfig
) -> Iterator[ConfigFault]:
    """Yield a fault if the job has a source of the data set that the platform's stack has prepared."""
    data = config.data
    if data.source and data.dataset == platform.dataset:
        rule = f"is a source of {data.dataset}, which the stack {stack} has prepared for all jobs"
        fix = "remove it to train on these data, or give this job its own platform"
        yield ConfigFault("data.source", data.source, rule, fix)


def _limit_faults(
    stack: str, platform: SharedPlatform, config: StackConfig
) -> Iterator[ConfigFault]:
    """Yield a fault for each key of the job that the platform's controller ignores."""
    kind, job = "upstream" if platform.upstream else "maintained", config.job
    for fault in (
        *controller_supports_scaling(job.scaling, kind),
        *controller_supports_limits(job.deadline, job.budget_usd, job.on_demand, kind),
    ):
        yield replace(fault, fix=f"{fault.fix}; the controller is declared by the stack {stack}")


def _error(path: str, value: str, rule: str, fix: str) -> ConfigurationError:
    """Return an error about one key."""
    return ConfigurationError([ConfigFault(path, value, rule, fix)])
