"""The typed configuration of a stack and every rule across its fields.

`from_mapping` is pure: a plain mapping in, a frozen `StackConfig` out, or a `ConfigurationError`
that names every fault at once as the user wrote it. The program, the tests, the command line and
the generator of docs/configuration.md all use it; `load` is the thin shell that asks Pulumi for the
mapping.

Rules across fields are functions over plain values rather than pydantic validators, because
pydantic runs a model's validators only once its fields are right: a stack with a misspelt key and a
wrong `minReplicas` would be told of one fault at a time.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from components.faults import ConfigurationError, Fault, known_or_nearest, readable
from components.rules import Rule, broken

if TYPE_CHECKING:
    import pulumi

RESNETS = tuple(f"resnet{depth}" for depth in (18, 34, 50, 101, 152))
EFFICIENTNETS = tuple(f"efficientnet_b{scale}" for scale in range(8))
MODELS = RESNETS + EFFICIENTNETS
DATASETS = ("fashion-mnist", "imagefolder")

LONGEST_JOB_NAME = 50  # Kubernetes' 63 for a Service's name, less "-worker-" and the index

Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")]
Image = Annotated[str, StringConstraints(min_length=1, pattern=r"^\S+$")]
ModelName = Annotated[str, known_or_nearest("model", MODELS)]
DatasetName = Annotated[str, known_or_nearest("dataset", DATASETS)]


class Section(BaseModel):
    """What all sections share: frozen, camelCase as in the stack file, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, coerce_numbers_to_str=True
    )


class TolerationConfig(Section):
    """One taint that pods put up with."""

    key: str = Field(description="The taint's key.")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="How to compare.")
    value: str | None = Field(default=None, description="The taint's value; none for `Exists`.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="The taint's effect."
    )


class PoolConfig(Section):
    """How pods find the nodes of a pool."""

    selector: dict[str, str] = Field(
        default_factory=dict, description="Labels that the pool's nodes carry."
    )
    tolerations: tuple[TolerationConfig, ...] = Field(
        default=(), description="Taints of the pool's nodes."
    )


class ClusterConfig(Section):
    """The Kubernetes cluster to train on."""

    kind: Literal["existing"] = Field(
        default="existing", description="`existing`: a cluster that is there already."
    )
    kubeconfig: str | None = Field(
        default=None, description="Path of the kubeconfig file; absent: `$KUBECONFIG`."
    )
    context: str | None = Field(
        default=None, description="Context in the kubeconfig; absent: its current one."
    )
    gpu_pool: PoolConfig = Field(
        default_factory=PoolConfig, description="The GPU spot nodes, where workers run."
    )
    system_pool: PoolConfig = Field(
        default_factory=PoolConfig,
        description="The nodes that stay, where etcd, controller and data preparation run.",
    )


class StorageConfig(Section):
    """The volume that all workers share: data, checkpoints, journals, etcd's members."""

    kind: Literal["hostpath"] = Field(
        default="hostpath", description="`hostpath`: a folder that every node has mounted."
    )
    path: Annotated[str, StringConstraints(pattern=r"^/\S*$")] = Field(
        default="/mnt/everstep",
        description="The folder on the nodes; must exist and be writable for uid 10001.",
    )
    size: Quantity = Field(
        default="10Gi", description="Size to claim; a hostpath does not hold to it."
    )


class EtcdConfig(Section):
    """The members through which the workers agree on who trains."""

    image: Image = Field(
        default="localhost/everstep/etcd:local",
        description="Image with `etcd` 3.5 (3.6 lacks the v2 API of torch's own backends).",
    )
    members: int = Field(
        default=3, ge=1, le=7, description="How many; odd. Changing it starts etcd anew."
    )


class ControllerConfig(Section):
    """The controller that turns an ElasticJob into pods."""

    kind: Literal["maintained", "upstream"] = Field(
        default="maintained",
        description="`maintained`: Everstep's. `upstream`: the published TorchElastic controller.",
    )
    image: Image | None = Field(
        default=None,
        description="Its image; absent: `localhost/everstep/controller:local` for `maintained`; "
        "`upstream` needs one.",
    )


class DataConfig(Section):
    """The data set, prepared once on the volume before training starts."""

    dataset: DatasetName = Field(
        default="fashion-mnist",
        description="`fashion-mnist`, or `imagefolder`: a folder a class, which you put into "
        "`data/imagefolder` on the volume.",
    )
    image: Image | None = Field(
        default=None, description="Image that prepares it; absent: the job's."
    )


class WorkerResources(Section):
    """What one worker asks of its node."""

    cpu: Quantity = Field(default="500m", description="CPU requested, in cores; no limit is set.")
    memory: Quantity = Field(default="2Gi", description="Memory requested and limit, in bytes.")
    shared_memory: Quantity = Field(
        default="512Mi", description="Size of /dev/shm, in bytes; counts towards `memory`."
    )


class JobConfig(Section):
    """The elastic training job."""

    name: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=LONGEST_JOB_NAME),
    ] = Field(default="training", description="Name of the ElasticJob and of its run folder.")
    image: Image = Field(
        default="localhost/everstep/trainer:local", description="The trainer's image."
    )
    model: ModelName = Field(default="resnet18", description="One of: " + ", ".join(MODELS) + ".")
    replicas: int = Field(default=3, ge=1, description="Workers to run, one a node.")
    min_replicas: int = Field(default=1, ge=1, description="Workers below which training waits.")
    max_replicas: int = Field(default=3, ge=1, description="Most workers that may train together.")
    epochs: int = Field(default=3, ge=1, description="Passes over the data set.")
    global_batch: int = Field(
        default=384,
        ge=1,
        description="Samples in one step over all workers, however many there are.",
    )
    learning_rate: float = Field(
        default=0.4, gt=0, description="Peak learning rate, for the global batch."
    )
    weight_decay: float = Field(default=5e-4, ge=0, description="Of weights, not of biases.")
    label_smoothing: float = Field(
        default=0.05, ge=0, lt=1, description="Share of a label given to the other classes."
    )
    warmup_fraction: float = Field(
        default=0.15, ge=0, lt=1, description="Share of the steps with a rising learning rate."
    )
    image_size: int = Field(
        default=224, ge=16, description="Side of an image folder's images, in pixels."
    )
    checkpoint_seconds: float = Field(
        default=5.0, gt=0, description="Seconds between checkpoints: what a lost node may cost."
    )
    keep_checkpoints: int = Field(default=3, ge=1, description="How many checkpoints to keep.")
    fresh: str = Field(
        default="",
        description="A new word here moves an old run of this name aside; empty resumes it.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of order, augmentation and weights.")
    gpus_per_worker: int = Field(
        default=1, ge=0, description="GPUs and processes of a worker; 0 trains on the CPU."
    )
    mode: Literal["restart"] = Field(
        default="restart",
        description="`restart`: worker processes restart when the group changes.",
    )
    resources: WorkerResources = Field(
        default_factory=WorkerResources, description="What one worker asks of its node."
    )
    grace_seconds: int = Field(
        default=30,
        ge=10,
        description="Seconds a worker has to leave, within the cloud's notice (Azure 30, AWS 120).",
    )
    max_restarts: int = Field(
        default=1000, ge=0, description="Changes of the group that a worker lives through."
    )
    priority_class: str | None = Field(
        default=None, description="PriorityClass of the workers; absent: the cluster's default."
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="More environment variables of a worker; no secrets."
    )


class StackConfig(Section):
    """Everything a stack file says under `everstep:`."""

    cluster: ClusterConfig = Field(
        default_factory=ClusterConfig, description="The Kubernetes cluster to train on."
    )
    storage: StorageConfig = Field(
        default_factory=StorageConfig, description="The volume that all workers share."
    )
    etcd: EtcdConfig = Field(
        default_factory=EtcdConfig, description="Where the workers agree on who trains."
    )
    controller: ControllerConfig = Field(
        default_factory=ControllerConfig, description="What turns an ElasticJob into pods."
    )
    data: DataConfig = Field(default_factory=DataConfig, description="The data set.")
    job: JobConfig = Field(default_factory=JobConfig, description="The elastic training job.")


def from_mapping(data: Mapping[str, Any]) -> StackConfig:
    """Check a plain mapping, as a stack file holds it under `everstep:`, and make it typed.

    Raises:
        ConfigurationError: with every fault found: the fields' own and the rules' across fields.
    """
    config, faults = None, list[Fault]()
    try:
        config = StackConfig.model_validate(data)
    except ValidationError as error:
        faults = readable(error, StackConfig)
    faults += broken(RULES, data, StackConfig, already_faulty={fault.path for fault in faults})
    if config is None or faults:
        raise ConfigurationError(faults)
    return config


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


def _replicas_between(least: int, wanted: int, most: int) -> list[Fault]:
    """Check that min <= replicas <= max; the scheduler could otherwise never be satisfied."""
    faults = []
    if least > most:
        faults.append(
            Fault(
                "job.minReplicas",
                least,
                f"is more than maxReplicas ({most})",
                f"lower minReplicas to {most} or raise maxReplicas to {least}",
            )
        )
    if least > wanted:
        faults.append(
            Fault(
                "job.minReplicas",
                least,
                f"is more than replicas ({wanted}), so that training would wait for ever",
                f"lower minReplicas to {wanted} or raise replicas to {least}",
            )
        )
    if wanted > most:
        faults.append(
            Fault(
                "job.replicas",
                wanted,
                f"is more than maxReplicas ({most})",
                f"lower replicas to {most} or raise maxReplicas to {wanted}",
            )
        )
    return faults


def _batch_feeds_all(batch: int, most: int, gpus: int) -> list[Fault]:
    """Check that each process of the largest group gets a sample of each step."""
    processes = most * max(1, gpus)
    if batch >= processes:
        return []
    rule = f"is less than the {processes} processes of maxReplicas ({most}) workers"
    return [Fault("job.globalBatch", batch, rule, f"raise globalBatch to {processes} or more")]


def _members_odd(members: int) -> list[Fault]:
    """Check that no member is there that costs a quorum and adds no safety."""
    if members % 2:
        return []
    rule = f"is even: {members} members survive no more losses than {members - 1}"
    return [Fault("etcd.members", members, rule, f"use {members - 1} or {members + 1}")]


def _upstream_has_image(kind: str, image: str | None) -> list[Fault]:
    """Check that the user says which build of upstream to run: there is no maintained one."""
    if kind != "upstream" or image:
        return []
    cure = "name one, such as torchelastic/kubernetes:0.1.0, or use kind: maintained"
    return [Fault("controller.image", image, "is missing, and `upstream` needs one", cure)]


def _job_name_free(name: str, dataset: str) -> list[Fault]:
    """Check that the job's pods cannot be taken for those of data preparation."""
    if name != f"prepare-{dataset}":
        return []
    return [Fault("job.name", name, "is the name of the data preparation", "choose another")]


RULES = (
    Rule(("job.minReplicas", "job.replicas", "job.maxReplicas"), _replicas_between),
    Rule(("job.globalBatch", "job.maxReplicas", "job.gpusPerWorker"), _batch_feeds_all),
    Rule(("etcd.members",), _members_odd),
    Rule(("controller.kind", "controller.image"), _upstream_has_image),
    Rule(("job.name", "data.dataset"), _job_name_free),
)
