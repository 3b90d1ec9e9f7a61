"""The complete configuration of a stack: its sections, defaults by cloud, and validation.

Rules across fields are functions over plain values rather than pydantic validators, because pydantic runs a model's
validators only if all fields are valid: for a stack with a misspelled key and a wrong `minReplicas`, only one fault
would be reported at a time.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field, ValidationError

from components.config import (
    aks_rules,
    data_rules,
    eks_rules,
    existing_rules,
    governance_rules,
    gpu_pools_rules,
    job_rules,
    limits_rules,
    platform_stack_rules,
    pool_rules,
    registry_rules,
    secrets,
    storage_rules,
    worker_rules,
)
from components.config.aks import AksConfig, BlobConfig
from components.config.defaults import with_defaults
from components.config.eks import EksConfig, FsxConfig
from components.config.existing import ClaimConfig, ExistingClusterConfig, HostPathConfig
from components.config.faults import ConfigFault, ConfigurationError, faults_from
from components.config.newer_name_warnings import aks_warnings, eks_warnings
from components.config.numbers import boolean_faults
from components.config.platform import CostConfig, PlatformConfig, RegistryConfig
from components.config.platform_stack import PlatformStackConfig
from components.config.rules import ConfigRule, violations
from components.config.section import Section, TagValue
from components.config.workload import ControllerConfig, DataConfig, EtcdConfig, JobConfig

if TYPE_CHECKING:
    import pulumi

ClusterConfig = ExistingClusterConfig | EksConfig | AksConfig
StorageConfig = HostPathConfig | ClaimConfig | FsxConfig | BlobConfig

SectionT = TypeVar("SectionT", bound=Section)

RULES: tuple[ConfigRule, ...] = (
    *governance_rules.RULES,
    *eks_rules.RULES,
    *aks_rules.RULES,
    *existing_rules.RULES,
    *pool_rules.RULES,
    *gpu_pools_rules.RULES,
    *storage_rules.RULES,
    *job_rules.RULES,
    *limits_rules.RULES,
    *worker_rules.RULES,
    *data_rules.RULES,
    *registry_rules.RULES,
    *platform_stack_rules.RULES,
)


class StackConfig(Section):
    """All keys of a stack file under `everstep:`."""

    tags: dict[str, TagValue] = Field(
        default_factory=dict,
        description="Tags of all billed resources. On eks and aks, `owner`, `costCenter` and "
        "`environment` are required; others are optional. `environment` is `prod`, which requires `protect`, or a "
        "name of your own, such as dev or staging: up to 20 lower-case letters, digits and dashes.",
    )
    protect: bool = Field(
        default=False,
        description="Whether cluster, registry and data, or the claim for which an existing cluster provisions a "
        "volume, are protected against deletion; required if "
        "`tags.environment` is prod.",
    )
    cluster: ClusterConfig = Field(
        default_factory=ExistingClusterConfig,
        discriminator="kind",
        description="The Kubernetes cluster to train on.",
    )
    storage: StorageConfig = Field(
        default_factory=HostPathConfig,
        discriminator="kind",
        description="The volume that all workers share: data, checkpoints, journals.",
    )
    etcd: EtcdConfig = Field(
        default_factory=EtcdConfig,
        description="The store through which the agents agree on the training group.",
    )
    controller: ControllerConfig = Field(
        default_factory=ControllerConfig,
        description="The controller that creates the pods of an ElasticJob.",
    )
    data: DataConfig = Field(default_factory=DataConfig, description="The data set.")
    job: JobConfig = Field(default_factory=JobConfig, description="The elastic training job.")
    platform: PlatformConfig = Field(
        default_factory=PlatformConfig, description="Platform services alongside the job."
    )
    registry: RegistryConfig = Field(
        default_factory=RegistryConfig, description="A registry for the images."
    )
    cost: CostConfig = Field(default_factory=CostConfig, description="Prices and a budget.")
    platform_stack: PlatformStackConfig | None = Field(
        default=None, description="The stack on whose platform the job runs; this stack by default."
    )

    def tags_for(self, stack: str) -> dict[str, str]:
        """Return the tags of every resource: the user's, the project's and the stack's."""
        return {**self.tags, "managed-by": "everstep", "stack": stack}


def from_mapping(data: Mapping[str, Any]) -> StackConfig:
    """Validate a plain mapping, the `everstep:` keys of a stack file, and return it typed.

    Raises:
        ConfigurationError: with all faults of single fields and of rules across fields.
    """
    try:
        config, faults = _validate(with_defaults(_sort_keys(data)))
    except RecursionError:
        rule = "are nested too deeply, or a YAML alias refers to a value that contains it"
        fix = "replace the alias by its value, or flatten the values"
        raise ConfigurationError([ConfigFault("*", None, rule, fix)]) from None
    if config is None or faults:
        raise ConfigurationError(faults)
    return config


def _sort_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with its keys sorted by name, as Pulumi passes them to a program.

    Commands read the stack file themselves. They must not depend on an order that a deployment loses.
    """
    return {key: _sort_nested_keys(data[key]) for key in sorted(data, key=str)}


def _sort_nested_keys(value: object) -> object:
    """Return a value with the keys of its mappings sorted."""
    if isinstance(value, Mapping):
        return _sort_keys(value)
    return [_sort_nested_keys(item) for item in value] if isinstance(value, list) else value


def _validate(data: Mapping[str, Any]) -> tuple[StackConfig | None, list[ConfigFault]]:
    """Return the typed configuration, or None if a field is invalid, and all faults."""
    config, faults = None, list[ConfigFault]()
    try:
        config = StackConfig.model_validate(data)
    except ValidationError as error:
        faults = faults_from(error, StackConfig)
    faults += boolean_faults(data, StackConfig)
    faults += violations(RULES, data, StackConfig, already_faulty={fault.path for fault in faults})
    secret_faults = secrets.plaintext_secrets(data)
    secret_paths = frozenset(fault.path for fault in secret_faults)
    return config, [secrets.hide(fault, secret_paths) for fault in faults] + secret_faults


def as_kind(section: Section, kind: type[SectionT]) -> SectionT:
    """Return `config.cluster` or `config.storage`, narrowed to one kind.

    Raises:
        TypeError: the section is of another kind, which the rules should have refused.
    """
    if not isinstance(section, kind):
        raise TypeError(f"{type(section).__name__} where {kind.__name__} was expected")
    return section


def load(config: "pulumi.Config") -> StackConfig:
    """Return the stack's configuration from Pulumi.

    All keys are read, so that unknown keys are refused.

    Raises:
        ConfigurationError: the configuration is invalid, or its deadline has passed.
    """
    from pulumi.runtime.config import CONFIG, get_config_env

    prefix = f"{config.name}:"
    values = {**get_config_env(), **CONFIG.get()}
    stack = from_mapping(
        {key.removeprefix(prefix): _decode(values[key]) for key in values if key.startswith(prefix)}
    )
    check_deadline(stack, datetime.now(UTC))
    return stack


def warnings(stack: StackConfig) -> list[str]:
    """Return warnings about names that are newer than Everstep's table of facts, and about idle GPUs."""
    idle_gpus = worker_rules.idle_gpus_warning
    match stack.cluster:
        case EksConfig() as cluster:
            return [*eks_warnings(cluster), *idle_gpus(cluster, stack.job.gpus_per_worker)]
        case AksConfig() as cluster:
            return [*aks_warnings(cluster), *idle_gpus(cluster, stack.job.gpus_per_worker)]
    return []


def check_deadline(stack: StackConfig, now: datetime) -> None:
    """Check that the deadline of a stack that is to be deployed has not passed.

    Raises:
        ConfigurationError: the deadline has passed.
    """
    if faults := limits_rules.deadline_faults(stack.job.deadline, now):
        raise ConfigurationError(faults)


def _decode(value: object) -> object:
    """Decode a value that Pulumi passes as text: valid JSON is parsed, other text is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
