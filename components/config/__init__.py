"""The typed configuration of a stack and every rule across its fields.

`from_mapping` is pure: a plain mapping in, a frozen `StackConfig` out, or a `ConfigurationError`
that names every fault at once as the user wrote it. The program, the tests, the command line and
the generator of docs/configuration.md all use it; `load` is the thin shell that asks Pulumi for the
mapping.

Keys are camelCase in a stack file and snake_case here; `kind` tells the shapes of `cluster`
(existing, eks, aks) and `storage` (hostpath, fsx, blob) apart. The models stand in `existing`, `eks`,
`aks`, `workload` and `platform`; `defaults` has what differs by cloud, `catalog` what clouds offer,
and the modules named `*_rules` what must hold between several keys. Nothing here imports Pulumi: a
command that only reads a configuration starts at once.
"""

from components.config.aks import (
    AksAutoscalingConfig,
    AksConfig,
    AksGpuPoolConfig,
    AksNetworkConfig,
    AksSystemPoolConfig,
    BlobConfig,
    MonitoringConfig,
    UpgradesConfig,
)
from components.config.eks import (
    EksAutoscalingConfig,
    EksConfig,
    EksGpuPoolConfig,
    EksNetworkConfig,
    EksSystemPoolConfig,
    FsxConfig,
    FsxFileSystemConfig,
)
from components.config.existing import (
    ExistingClusterConfig,
    HostPathConfig,
    PoolConfig,
    TolerationConfig,
)
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
from components.config.section import Section
from components.config.stack import (
    ClusterConfig,
    StackConfig,
    StorageConfig,
    as_kind,
    from_mapping,
    load,
)
from components.config.workload import (
    DATASETS,
    MODELS,
    ControllerConfig,
    DataConfig,
    EtcdConfig,
    JobConfig,
    WorkerResources,
)

__all__ = [
    "DATASETS",
    "MODELS",
    "AksAutoscalingConfig",
    "AksConfig",
    "AksGpuPoolConfig",
    "AksNetworkConfig",
    "AksSystemPoolConfig",
    "BlobConfig",
    "BudgetConfig",
    "ClusterConfig",
    "ControllerConfig",
    "CostConfig",
    "DataConfig",
    "EksAutoscalingConfig",
    "EksConfig",
    "EksGpuPoolConfig",
    "EksNetworkConfig",
    "EksSystemPoolConfig",
    "EtcdConfig",
    "ExistingClusterConfig",
    "FsxConfig",
    "FsxFileSystemConfig",
    "GpuPluginConfig",
    "HostPathConfig",
    "JobConfig",
    "MetricsConfig",
    "MonitoringConfig",
    "PlatformConfig",
    "PoolConfig",
    "PriceConfig",
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
    "from_mapping",
    "load",
]
