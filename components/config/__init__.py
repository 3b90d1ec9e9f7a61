"""The typed configuration of a stack and the rules across its fields.

`from_mapping` is pure: it converts a plain mapping to a frozen `StackConfig`, or raises a
`ConfigurationError` with all faults, each under the key that the user wrote. The program, the
tests, the command line and the generator of docs/configuration.md use it. `load` reads the mapping
from Pulumi.

Keys are camelCase in a stack file and snake_case here. `kind` is the discriminator of `cluster` (existing, eks, aks)
and `storage` (hostpath, claim, fsx, blob). The models of sections are in `existing`, `eks`, `aks`, `workload`,
`platform`, `platform_stack`, `monitoring` and `proxy`; `defaults` has the defaults that differ by kind, `catalog` the
cloud offerings, and the modules named `*_rules` the rules across keys. Only `load` imports Pulumi, so a command that
only reads a configuration starts fast.
"""

from components.config.aks import (
    AksAutoscalingConfig,
    AksConfig,
    AksGpuPoolConfig,
    AksMonitoringConfig,
    AksNamedPoolConfig,
    AksNetworkConfig,
    AksPool,
    AksSystemPoolConfig,
    BlobConfig,
    UpgradesConfig,
)
from components.config.eks import (
    EksAutoscalingConfig,
    EksConfig,
    EksGpuPoolConfig,
    EksIamConfig,
    EksMonitoringConfig,
    EksNamedPoolConfig,
    EksNetworkConfig,
    EksPool,
    EksSystemPoolConfig,
    FsxConfig,
    FsxFileSystemConfig,
)
from components.config.existing import (
    ClaimConfig,
    ExistingClusterConfig,
    HostPathConfig,
    PoolConfig,
    TolerationConfig,
)
from components.config.monitoring import PrometheusConfig
from components.config.platform import (
    BudgetConfig,
    CostConfig,
    GpuPluginConfig,
    MetricsConfig,
    PlatformConfig,
    PriceConfig,
    QuotaConfig,
    RegistryConfig,
    SpotConfig,
)
from components.config.platform_stack import PlatformStackConfig
from components.config.section import Section, quantity_value
from components.config.stack import (
    ClusterConfig,
    StackConfig,
    StorageConfig,
    as_kind,
    check_deadline,
    from_mapping,
    load,
    warnings,
)
from components.config.workload import (
    ControllerConfig,
    DataCacheConfig,
    DataConfig,
    EtcdConfig,
    JobConfig,
    WorkerResources,
)
from everstep.catalog.trainer_options import DATASETS, MODELS

__all__ = [
    "DATASETS",
    "MODELS",
    "AksAutoscalingConfig",
    "AksConfig",
    "AksGpuPoolConfig",
    "AksMonitoringConfig",
    "AksNamedPoolConfig",
    "AksNetworkConfig",
    "AksPool",
    "AksSystemPoolConfig",
    "BlobConfig",
    "BudgetConfig",
    "ClaimConfig",
    "ClusterConfig",
    "ControllerConfig",
    "CostConfig",
    "DataCacheConfig",
    "DataConfig",
    "EksAutoscalingConfig",
    "EksConfig",
    "EksGpuPoolConfig",
    "EksIamConfig",
    "EksMonitoringConfig",
    "EksNamedPoolConfig",
    "EksNetworkConfig",
    "EksPool",
    "EksSystemPoolConfig",
    "EtcdConfig",
    "ExistingClusterConfig",
    "FsxConfig",
    "FsxFileSystemConfig",
    "GpuPluginConfig",
    "HostPathConfig",
    "JobConfig",
    "MetricsConfig",
    "PlatformConfig",
    "PlatformStackConfig",
    "PoolConfig",
    "PriceConfig",
    "PrometheusConfig",
    "QuotaConfig",
    "RegistryConfig",
    "Section",
    "SpotConfig",
    "StackConfig",
    "StorageConfig",
    "TolerationConfig",
    "UpgradesConfig",
    "WorkerResources",
    "as_kind",
    "check_deadline",
    "from_mapping",
    "load",
    "quantity_value",
    "warnings",
]
