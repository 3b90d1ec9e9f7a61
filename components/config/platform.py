"""Configuration of platform services: GPU plugin, metrics, network policies, quota, a registry, a budget."""

from typing import Annotated, Literal

from pydantic import Field

from components.config.monitoring import PrometheusConfig
from components.config.section import Image, NodeCount, Section, matches_pattern
from everstep.catalog.names import LOCAL_IMAGE

EmailAddress = Annotated[
    str, matches_pattern(r"[^@\s]+@[^@\s]+\.[^@\s]+", "an e-mail address", "platform@example.org")
]
MAX_REGISTRY_NAME_LENGTH = 200  # ECR allows 256, including the name of the image

RegistryName = Annotated[
    str,
    matches_pattern(
        r"[a-z0-9]+([._-][a-z0-9]+)*(/[a-z0-9]+([._-][a-z0-9]+)*)*",
        "a name of a registry: lower-case letters and digits, with single . _ - or / between them",
        "everstep",
        max_length=MAX_REGISTRY_NAME_LENGTH,
    ),
]


RegistryHost = Annotated[
    str,
    matches_pattern(
        r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]+)?",
        "a host of a registry, the first part of an image reference",
        "ghcr.io",
    ),
]
RegistryUser = Annotated[
    str,
    matches_pattern(r"[^\s:]+", "a user name of a registry: without spaces and colons", "robot"),
]


class GpuPluginConfig(Section):
    """The device plugin that offers a node's GPUs to pods."""

    enabled: bool = Field(default=False, description="Whether the stack installs it.")
    image: Image = Field(
        default="nvcr.io/nvidia/k8s-device-plugin:v0.18.0", description="Its image."
    )


class MetricsConfig(Section):
    """The exporter of GPU metrics for Prometheus."""

    enabled: bool = Field(
        default=False,
        description="Whether the stack installs it. Without it, GPU nodes are not counted: Prometheus has neither a "
        "cost per hour nor alerts about `cost.budget`.",
    )
    image: Image = Field(
        default="nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless", description="Its image."
    )


class SpotConfig(Section):
    """The watcher that drains a spot node when it receives an interruption notice."""

    enabled: bool = Field(default=False, description="Whether the stack installs it.")
    image: Image = Field(default=LOCAL_IMAGE.format("spot"), description="Its image.")


class QuotaConfig(Section):
    """Resource limits of the job's namespace."""

    pods: int = Field(default=200, ge=1, description="Maximum number of pods.")
    gpus: NodeCount | None = Field(
        default=None,
        description="Maximum number of GPUs; absent: no limit. With `cluster.gpuPools` in several zones, placeholders "
        "and moves need more than the GPUs of `job.maxReplicas` workers, at most that number for each zone; with "
        "`job.onDemand: fallback`, the workers that it buys need GPUs beside those that wait.",
    )


class PlatformConfig(Section):
    """Platform services: GPU plugin, metrics, spot watcher, network policies and quota."""

    gpu_plugin: GpuPluginConfig = Field(
        default_factory=GpuPluginConfig, description="Offers a node's GPUs to pods."
    )
    metrics: MetricsConfig = Field(
        default_factory=MetricsConfig, description="GPU metrics for Prometheus."
    )
    monitoring: PrometheusConfig = Field(
        default_factory=PrometheusConfig,
        description="Objects for a Prometheus operator and Grafana.",
    )
    spot: SpotConfig = Field(
        default_factory=SpotConfig,
        description="Drains a spot node when it receives an interruption notice.",
    )
    network_policies: bool = Field(
        default=True, description="Whether pods may open only the connections that they need."
    )
    quota: QuotaConfig = Field(
        default_factory=QuotaConfig, description="Resource limits of the job's namespace."
    )
    registry_logins: dict[RegistryHost, RegistryUser] = Field(
        default_factory=dict,
        description="Host of a third-party registry -> user that pulls from it. Its password is a secret of the "
        "stack: `pulumi config set --secret registryPassword:HOST`.",
    )


class RegistryConfig(Section):
    """An image registry created with the stack; each image is named where it is used."""

    kind: Literal["none", "ecr", "acr"] = Field(
        default="none", description="`ecr` with eks, `acr` with aks; `none`: images are elsewhere."
    )
    name: RegistryName = Field(
        default="everstep",
        description="ECR: prefix of the repositories. ACR: its name, unique in all of Azure.",
    )
    keep_images: int = Field(
        default=20, ge=1, le=1000, description="Number of images kept in each repository."
    )


class PriceConfig(Section):
    """Prices of one machine type."""

    on_demand: float = Field(gt=0, description="USD per hour, on demand.")
    spot: float | None = Field(default=None, gt=0, description="USD per hour, spot.")


class BudgetConfig(Section):
    """A cloud budget that sends warnings by e-mail and stops no resource."""

    monthly_usd: float = Field(gt=0, description="USD per month.")
    email: EmailAddress = Field(
        description="Recipient of the warnings at 80 % and 100 %, and at a forecast of 100 %."
    )


class CostConfig(Section):
    """Prices for the cost estimate, and a budget that sends warnings."""

    prices: dict[str, PriceConfig] = Field(
        default_factory=dict,
        description="Machine type -> prices, in place of the prices in facts/cloudfacts/data/prices.json.",
    )
    budget: BudgetConfig | None = Field(
        default=None, description="A budget that sends warnings by e-mail; absent: none."
    )
