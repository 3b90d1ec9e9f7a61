"""What runs in the cluster: etcd, the controller, data preparation and the training job."""

from typing import Annotated, Literal

from pydantic import Field

from components.config.section import Image, Quantity, Section, shaped
from components.faults import known_or_nearest

RESNETS = tuple(f"resnet{depth}" for depth in (18, 34, 50, 101, 152))
EFFICIENTNETS = tuple(f"efficientnet_b{scale}" for scale in range(8))
MODELS = RESNETS + EFFICIENTNETS
DATASETS = ("fashion-mnist", "imagefolder")

LONGEST_JOB_NAME = 50  # Kubernetes' 63 for a Service's name, less "-worker-" and the index

ModelName = Annotated[str, known_or_nearest("model", MODELS)]
JobName = Annotated[
    str,
    shaped(
        r"[a-z]([-a-z0-9]*[a-z0-9])?",
        "name of a job: lower-case letters, digits and dashes",
        "fashion",
        longest=LONGEST_JOB_NAME,
    ),
]
DatasetName = Annotated[str, known_or_nearest("dataset", DATASETS)]


class EtcdConfig(Section):
    """The members through which the workers agree on who trains."""

    image: Image = Field(
        default="localhost/everstep/etcd:local",
        description="Image with `etcd` 3.5 (3.6 lacks the v2 API of torch's own backends).",
    )
    members: int = Field(
        default=3, ge=1, le=7, description="How many; odd. Changing it starts etcd anew."
    )
    persistence: Literal["volume", "disk", "memory"] = Field(
        default="volume",
        description="Where a member keeps its data. `volume`: on the shared volume, hostpath only. "
        "`disk`: a disk of its own. `memory`: nowhere; a lost quorum restarts the job's agreement.",
    )
    storage_class: str | None = Field(
        default=None, description="With `disk`: StorageClass; absent: the cluster's default."
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

    name: JobName = Field(
        default="training", description="Name of the ElasticJob and of its run folder."
    )
    image: Image = Field(
        default="localhost/everstep/trainer:local", description="The trainer's image."
    )
    model: ModelName = Field(default="resnet18", description="One of: " + ", ".join(MODELS) + ".")
    replicas: int = Field(default=3, ge=1, description="Workers to run, one a node.")
    min_replicas: int = Field(default=1, ge=1, description="Workers below which training waits.")
    max_replicas: int = Field(default=3, ge=1, description="Most workers that may train together.")
    scaling: Literal["fixed", "capacity"] = Field(
        default="fixed",
        description="`capacity`: begins with `replicas` and goes between `minReplicas` and "
        "`maxReplicas` as machines come and go, waiting at 0 without any; `maintained` only.",
    )
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
    accept_data: str = Field(
        default="",
        pattern=r"^[0-9a-f]*$",
        description="Digest of changed data with which the run may go on, as its refusal gives it.",
    )
    loader_workers: int = Field(
        default=0,
        ge=0,
        description="Processes of each worker that read photographs ahead; 0: it reads them itself.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of order, augmentation and weights.")
    gpus_per_worker: int = Field(
        default=1, ge=0, description="GPUs and processes of a worker; 0 trains on the CPU."
    )
    mode: Literal["restart", "live", "exact"] = Field(
        default="live",
        description="When the group changes: `restart`: worker processes restart; `live`: they go "
        "on; `exact`: they go on, with bit-identical results.",
    )
    shard_size: int = Field(
        default=32,
        ge=1,
        description="Samples that `exact` computes at a time; its results depend on it. Larger is faster; "
        "workers are equally busy where their number divides that of the shards.",
    )
    compress: Literal["none", "bf16"] = Field(
        default="none",
        description="`bf16`: gradients take half the bytes on the wire; `live` only.",
    )
    nonfinite_loss: Literal["stop", "skip"] = Field(
        default="stop",
        description="At a loss that is no number: `stop` the run, or `skip` the step's update.",
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
        default=None,
        description="PriorityClass of the workers; absent: `everstep-workers`, which preempts nobody.",
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="More environment variables of a worker; no secrets."
    )
    env_from_secrets: tuple[str, ...] = Field(
        default=(),
        description="Secrets of the namespace `elastic-job`, made by you, whose keys become "
        "environment variables of a worker.",
    )
