"""What a stack brings beside the training: GPUs' plugins, metrics, guards, a registry, a budget."""

from typing import Annotated, Literal

from pydantic import Field

from components.config.section import Image, NodeCount, Section, shaped

EmailAddress = Annotated[
    str, shaped(r"[^@\s]+@[^@\s]+\.[^@\s]+", "address of mail", "platform@example.org")
]
RegistryName = Annotated[
    str,
    shaped(
        r"[a-z0-9]([a-z0-9._/-]*[a-z0-9])?",
        "name of a registry: lower-case letters, digits, dots and dashes",
        "everstep",
    ),
]


class GpuPluginConfig(Section):
    """The device plugin that offers a node's GPUs to pods."""

    enabled: bool = Field(default=False, description="Whether the stack brings it.")
    image: Image = Field(
        default="nvcr.io/nvidia/k8s-device-plugin:v0.18.0", description="Its image."
    )


class MetricsConfig(Section):
    """The exporter of GPU metrics for Prometheus."""

    enabled: bool = Field(default=False, description="Whether the stack brings it.")
    image: Image = Field(
        default="nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless", description="Its image."
    )


class SpotConfig(Section):
    """The watcher that hears a spot node's notice and drains it in time."""

    enabled: bool = Field(default=False, description="Whether the stack brings it.")
    image: Image = Field(default="localhost/everstep/spot:local", description="Its image.")


class QuotaConfig(Section):
    """What the job's namespace may use at most."""

    pods: int = Field(default=200, ge=1, description="Pods.")
    gpus: NodeCount | None = Field(default=None, description="GPUs; absent: no limit.")


class PlatformConfig(Section):
    """What runs beside the training so that GPUs are offered, watched and guarded."""

    gpu_plugin: GpuPluginConfig = Field(
        default_factory=GpuPluginConfig, description="Offers a node's GPUs to pods."
    )
    metrics: MetricsConfig = Field(
        default_factory=MetricsConfig, description="GPU metrics for Prometheus."
    )
    spot: SpotConfig = Field(
        default_factory=SpotConfig, description="Hears a spot node's notice and drains it."
    )
    network_policies: bool = Field(
        default=True, description="Whether pods may reach only what they need."
    )
    quota: QuotaConfig = Field(
        default_factory=QuotaConfig, description="What the job's namespace may use at most."
    )


class RegistryConfig(Section):
    """A registry for the images, made with the stack; images are named where they are used."""

    kind: Literal["none", "ecr", "acr"] = Field(
        default="none", description="`ecr` with eks, `acr` with aks; `none`: images are elsewhere."
    )
    name: RegistryName = Field(
        default="everstep",
        description="ECR: prefix of the repositories. ACR: its name, unique in all of Azure.",
    )
    keep_images: int = Field(default=20, ge=1, le=1000, description="Images kept a repository.")


class PriceConfig(Section):
    """What one machine costs."""

    on_demand: float = Field(gt=0, description="USD per hour, on demand.")
    spot: float | None = Field(default=None, gt=0, description="USD per hour, spot.")


class BudgetConfig(Section):
    """A budget of the cloud that warns by mail; it stops nothing."""

    monthly_usd: float = Field(gt=0, description="USD per month.")
    email: EmailAddress = Field(description="Who is told at 80 % and, by forecast, at 100 %.")


class CostConfig(Section):
    """What the stack is reckoned to cost, and when somebody is told."""

    prices: dict[str, PriceConfig] = Field(
        default_factory=dict,
        description="Machine type -> prices, in place of those of components/prices.json.",
    )
    budget: BudgetConfig | None = Field(
        default=None, description="A budget that warns by mail; absent: none."
    )
