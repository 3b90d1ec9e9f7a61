"""The whole of a stack's configuration: its sections, the defaults each cloud has, its checking.

Rules across fields are functions over plain values rather than pydantic validators, because
pydantic runs a model's validators only once its fields are right: a stack with a misspelt key and a
wrong `minReplicas` would be told of one fault at a time.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field, ValidationError

from components.config import (
    aks_rules,
    eks_rules,
    governance_rules,
    job_rules,
    pool_rules,
    secrets,
    storage_rules,
)
from components.config.aks import AksConfig, BlobConfig
from components.config.defaults import with_defaults
from components.config.eks import EksConfig, FsxConfig
from components.config.existing import ExistingClusterConfig, HostPathConfig
from components.config.platform import CostConfig, PlatformConfig, RegistryConfig
from components.config.section import Section, TagValue
from components.config.workload import ControllerConfig, DataConfig, EtcdConfig, JobConfig
from components.faults import ConfigurationError, Fault, readable
from components.rules import Rule, broken

if TYPE_CHECKING:
    import pulumi

ClusterConfig = ExistingClusterConfig | EksConfig | AksConfig
StorageConfig = HostPathConfig | FsxConfig | BlobConfig

M = TypeVar("M", bound=Section)

RULES: tuple[Rule, ...] = (
    *governance_rules.RULES,
    *eks_rules.RULES,
    *aks_rules.RULES,
    *pool_rules.RULES,
    *storage_rules.RULES,
    *job_rules.RULES,
)


class StackConfig(Section):
    """Everything a stack file says under `everstep:`."""

    tags: dict[str, TagValue] = Field(
        default_factory=dict,
        description="Tags of all that costs money. On eks and aks `owner`, `costCenter` and "
        "`environment` (dev or prod) are needed; more are welcome.",
    )
    protect: bool = Field(
        default=False,
        description="Whether cluster and data refuse to be destroyed; needed where "
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
        default_factory=EtcdConfig, description="Where the workers agree on who trains."
    )
    controller: ControllerConfig = Field(
        default_factory=ControllerConfig, description="What turns an ElasticJob into pods."
    )
    data: DataConfig = Field(default_factory=DataConfig, description="The data set.")
    job: JobConfig = Field(default_factory=JobConfig, description="The elastic training job.")
    platform: PlatformConfig = Field(
        default_factory=PlatformConfig, description="What runs beside the training."
    )
    registry: RegistryConfig = Field(
        default_factory=RegistryConfig, description="A registry for the images."
    )
    cost: CostConfig = Field(default_factory=CostConfig, description="Prices and a budget.")

    @property
    def is_production(self) -> bool:
        """Whether the stack is tagged as one that matters."""
        return self.tags.get("environment") == "prod"

    def tags_for(self, stack: str) -> dict[str, str]:
        """Give the tags of every resource of the stack: the user's, and whose work it is."""
        return {**self.tags, "managed-by": "everstep", "stack": stack}


def from_mapping(data: Mapping[str, Any]) -> StackConfig:
    """Check a plain mapping, as a stack file holds it under `everstep:`, and make it typed.

    Raises:
        ConfigurationError: with every fault found: the fields' own and the rules' across fields.
    """
    said = with_defaults(data)
    config, faults = None, list[Fault]()
    try:
        config = StackConfig.model_validate(said)
    except ValidationError as error:
        faults = readable(error, StackConfig)
    faults += broken(RULES, said, StackConfig, already_faulty={fault.path for fault in faults})
    in_clear = secrets.in_clear(said)
    hidden = frozenset(fault.path for fault in in_clear)
    faults = [secrets.hide(fault, hidden) for fault in faults] + in_clear
    if config is None or faults:
        raise ConfigurationError(faults)
    return config


def as_kind(section: Section, kind: type[M]) -> M:
    """Give `config.cluster` or `config.storage` as the kind that the caller was chosen for.

    Raises:
        TypeError: it is of another kind, which the rules should have refused.
    """
    if not isinstance(section, kind):
        raise TypeError(f"{type(section).__name__} where {kind.__name__} was expected")
    return section


def load(config: "pulumi.Config") -> StackConfig:
    """Read the stack's configuration from Pulumi, whole: also keys that nobody asks for.

    Raises:
        ConfigurationError: see `from_mapping`.
    """
    from pulumi.runtime.config import CONFIG, get_config_env

    prefix = f"{config.name}:"
    said = {**get_config_env(), **CONFIG.get()}
    return from_mapping(
        {key.removeprefix(prefix): _parsed(said[key]) for key in said if key.startswith(prefix)}
    )


def _parsed(value: object) -> object:
    """Undo Pulumi's packing of nested values: objects come as JSON, scalars as they are."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
