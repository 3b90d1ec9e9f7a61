"""Configuration of the workload: etcd, the controller, data preparation, the training job."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from components.config.aks import GroupName
from components.config.command import Arguments, Command
from components.config.data_source import DataSource, SourceLocation, StoreAddress, parse
from components.config.faults import known_or_nearest, refusal
from components.config.section import Image, Quantity, Section, matches_pattern
from everstep.capacity import deadline as deadlines
from everstep.catalog.names import LOCAL_IMAGE
from everstep.catalog.trainer_options import DATASETS, MODELS, TRAINER_OPTIONS

# 63, the limit of Kubernetes for a Service's name, minus "-worker-" and the index.
MAX_JOB_NAME_LENGTH = 50
ETCD_DISK_GIB = 1  # size of the disk of a member of etcd: the smallest of both clouds

ModelName = Annotated[str, known_or_nearest("model", MODELS)]
JobName = Annotated[
    str,
    matches_pattern(
        r"[a-z]([-a-z0-9]*[a-z0-9])?",
        "a name of a job: lower-case letters, digits and dashes",
        "fashion",
        max_length=MAX_JOB_NAME_LENGTH,
    ),
]
DatasetName = Annotated[str, known_or_nearest("dataset", DATASETS)]


class EtcdConfig(Section):
    """The etcd members through which the agents agree on the training group."""

    image: Image = Field(
        default=LOCAL_IMAGE.format("etcd"),
        description="Image with `etcd` 3.5 (3.6 lacks the v2 API of torch's own backends).",
    )
    rejoin_image: Image = Field(
        default=LOCAL_IMAGE.format("etcd-rejoin"),
        description="With `memory` or `users`: image that lets a member rejoin and sets up users.",
    )
    members: int = Field(
        default=3,
        ge=1,
        le=7,
        description="Number of members, odd. A change recreates etcd without its data.",
    )
    persistence: Literal["volume", "disk", "memory"] = Field(
        default="volume",
        description="Where a member keeps its data. `volume`: on the shared volume, hostpath only. "
        "`disk`: on its own disk. `memory`: not kept; if most members are lost, delete the pods of all; "
        "the workers then form a new group.",
    )
    storage_class: str | None = Field(
        default=None, description="With `disk`: StorageClass; absent: the cluster's default."
    )
    authentication: Literal["none", "users"] = Field(
        default="none",
        description="`users`: mutual TLS, and workers may write the keys of their "
        "run only; needs `disk` or `memory`. `none`: each client that reaches etcd may write. A change recreates "
        "etcd and the job.",
    )

    @property
    def has_users(self) -> bool:
        """Whether connections use TLS and clients need a user."""
        return self.authentication == "users"

    @property
    def rejoins(self) -> bool:
        """Whether a member can return without its data while its peers still list it as a member."""
        return self.persistence == "memory" and self.members > 1


class ControllerConfig(Section):
    """The controller that turns an ElasticJob into pods."""

    kind: Literal["maintained", "upstream"] = Field(
        default="maintained",
        description="`maintained`: Everstep's. `upstream`: the published TorchElastic controller.",
    )
    image: Image | None = Field(
        default=None,
        description=f"Image of the controller; absent: `{LOCAL_IMAGE.format('controller')}` for `maintained`; "
        "`upstream` needs one.",
    )


SOURCE_GROUP_DESCRIPTION = (
    "Resource group of the storage account of an `az://` source; absent: `cluster.resourceGroup`."
)


class DataCacheConfig(Section):
    """A cache of shards on each GPU node, filled from an object store."""

    source: StoreAddress = Field(
        description="The folder of shards that `trainer.prepare` has written, in an object store: "
        "`s3://BUCKET/PREFIX`, or `az://ACCOUNT/CONTAINER/PREFIX` on aks. On eks and aks the stack creates the "
        "identity that reads it; on existing clusters credentials are variables of `job.env` and "
        "`job.envFromSecrets`.",
    )
    source_resource_group: GroupName | None = Field(
        default=None, description=SOURCE_GROUP_DESCRIPTION
    )
    size: Quantity = Field(
        default="200Gi",
        description="Size of a worker's volume, in bytes. Shards that do not fit are read from the "
        "store in every epoch.",
    )
    storage_class: str | None = Field(
        default=None,
        description="StorageClass of a volume that exists as long as the worker; absent: the disk of the "
        "node, on eks its NVMe disks, of which 15 % stay free.",
    )

    @property
    def origin(self) -> DataSource:
        """The parts of `source`."""
        return parse(self.source)


class DataConfig(Section):
    """The data set, prepared once on the volume before training starts."""

    dataset: DatasetName = Field(
        default="fashion-mnist",
        description="`fashion-mnist`, or `imagefolder`: one folder per class, which you put into "
        "`data/imagefolder` on the volume.",
    )
    source: SourceLocation | None = Field(
        default=None,
        description="With `imagefolder`: photographs in folders `train` and `val`, which are copied to the "
        "volume and converted to shards before training starts: `s3://BUCKET/PREFIX` on eks, "
        "`az://ACCOUNT/CONTAINER/PREFIX` on aks, or the path of a `.tar` archive on the volume. The identity "
        "that reads a store is created with the stack.",
    )
    source_resource_group: GroupName | None = Field(
        default=None, description=SOURCE_GROUP_DESCRIPTION
    )
    image: Image | None = Field(
        default=None, description="Image of the data preparation; absent: the job's."
    )
    cache: DataCacheConfig | None = Field(
        default=None,
        description="With `imagefolder`: workers read shards of an object store through a cache on "
        "their node, and nothing is prepared on the volume.",
    )

    @property
    def origin(self) -> DataSource | None:
        """The parts of `source`."""
        return parse(self.source) if self.source else None


class WorkerResources(Section):
    """Resources that one worker requests."""

    cpu: Quantity = Field(default="500m", description="CPU request, in cores; no limit is set.")
    memory: Quantity = Field(default="2Gi", description="Memory request and limit, in bytes.")
    shared_memory: Quantity = Field(
        default="512Mi", description="Size of /dev/shm, in bytes; counts towards `memory`."
    )


def _is_deadline(text: str) -> str:
    """Check that a string is a duration or a time."""
    if deadlines.duration_seconds(text) is None and deadlines.parse_time(text) is None:
        days = deadlines.MAX_SECONDS / deadlines.UNIT_SECONDS["d"]
        raise refusal(
            f"is neither a duration of up to {days:g} days nor a time with a time zone",
            "write it as 90m, 24h, 7d or 2026-12-24T18:00:00Z",
        )
    return text


Deadline = Annotated[str, AfterValidator(_is_deadline)]


def trainer_option(name: str) -> Any:  # noqa: ANN401 - as pydantic's Field, a value for any annotation
    """Return the pydantic field of an option of the trainer: default, bounds and description."""
    option = TRAINER_OPTIONS[name]
    return Field(
        default=option.default,
        ge=option.minimum,
        gt=option.exclusive_minimum,
        lt=option.exclusive_maximum,
        pattern=option.pattern,
        description=option.help,
    )


class JobConfig(Section):
    """The elastic training job."""

    name: JobName = Field(
        default="training", description="Name of the ElasticJob and of its run folder."
    )
    image: Image = Field(
        default=LOCAL_IMAGE.format("trainer"),
        description="Image of the trainer, or of `command`.",
    )
    command: Command | None = Field(
        default=None,
        description="Program of the workers, such as `[python3, train.py]`, instead of Everstep's "
        "trainer. It uses `everstep.elastic`, which `image` contains; `$EVERSTEP_RUN` is the run's folder "
        "on the volume. The keys of the trainer and `data` are then refused.",
    )
    args: Arguments = Field(
        default=(), description="Arguments of `command`; `$(NAME)` is a variable's value."
    )
    model: ModelName = trainer_option("model")
    replicas: int = Field(default=3, ge=1, description="Number of workers, one per node.")
    min_replicas: int = Field(
        default=1, ge=1, description="Minimum number of workers; training waits for them."
    )
    max_replicas: int = Field(
        default=3, ge=1, description="Maximum number of workers that train together."
    )
    scaling: Literal["fixed", "capacity"] = Field(
        default="fixed",
        description="`capacity`: starts with `replicas` and stays between `minReplicas` and "
        "`maxReplicas` as capacity changes, and waits at 0 without machines; only with `controller.kind: maintained`.",
    )
    deadline: Deadline | None = Field(
        default=None,
        description="Duration from the creation of the job, such as `24h`, or a time, such as "
        "`2026-12-24T18:00:00Z`, by which training has to be complete; needs `onDemand`.",
    )
    budget_usd: float | None = Field(
        default=None,
        gt=0,
        description="Amount in USD at which the job is suspended with a checkpoint; a higher amount resumes it. "
        "Counts the job's machines and all other resources of the stack that are billed by the hour.",
    )
    on_demand: Literal["never", "fallback", "always"] | None = Field(
        default=None,
        description="When workers run on on-demand nodes (`fallbackNodes`). `fallback`: if the deadline requires it; "
        "without a deadline, if fewer than `minReplicas` spot machines have trained for 15 minutes. Absent: the "
        "autoscaler decides.",
    )
    epochs: int = trainer_option("epochs")
    global_batch: int = trainer_option("global_batch")
    learning_rate: float = trainer_option("learning_rate")
    weight_decay: float = trainer_option("weight_decay")
    label_smoothing: float = trainer_option("label_smoothing")
    warmup_fraction: float = trainer_option("warmup_fraction")
    image_size: int = trainer_option("image_size")
    checkpoint_seconds: float = trainer_option("checkpoint_seconds")
    keep_checkpoints: int = trainer_option("keep_checkpoints")
    fresh: str = trainer_option("fresh")
    accept_data: str = trainer_option("accept_data")
    accept_older_checkpoint: int = trainer_option("accept_older_checkpoint")
    loader_workers: int = trainer_option("loader_workers")
    seed: int = trainer_option("seed")
    gpus_per_worker: int = Field(
        default=1, ge=0, description="GPUs and processes of a worker; 0 trains on the CPU."
    )
    mode: Literal["live", "exact"] = trainer_option("mode")
    shard_size: int = trainer_option("shard_size")
    compress: Literal["none", "bf16"] = trainer_option("compress")
    nonfinite_loss: Literal["stop", "skip"] = trainer_option("nonfinite_loss")
    resources: WorkerResources = Field(
        default_factory=WorkerResources, description="Resources that one worker requests."
    )
    grace_seconds: int = Field(
        default=30,
        ge=10,
        description="Termination grace period of a worker in seconds, within the cloud's notice (Azure 30, AWS 120).",
    )
    spread_zones: bool = Field(
        default=False,
        description="Whether workers may be in several zones at the same time; otherwise all are in one "
        "zone of `cluster.gpuPools`. AWS bills traffic between zones.",
    )
    max_restarts: int = Field(
        default=1000, ge=0, description="Maximum number of group changes of one worker."
    )
    priority_class: str | None = Field(
        default=None,
        description="PriorityClass of the workers; absent: `everstep-workers`, which preempts no pod.",
    )
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Additional environment variables of a worker; no secrets.",
    )
    env_from_secrets: tuple[str, ...] = Field(
        default=(),
        description="Existing Secrets of the namespace `elastic-job`, whose keys become "
        "environment variables of a worker.",
    )

    @property
    def desired_workers(self) -> int:
        """Number of workers that train if enough machines are available: with `capacity`, the job grows to it."""
        return self.max_replicas if self.scaling == "capacity" else self.replicas

    @property
    def program(self) -> tuple[str, ...]:
        """`command` followed by its arguments; empty for Everstep's trainer."""
        return (*self.command, *self.args) if self.command else ()
