"""The trainer's options: one table for its command line, for JobConfig and for the job's arguments.

`trainer.settings` makes its parser from the table, `components.config.workload` the fields of
`job:` in a stack file, and `arguments` the command line of a worker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Value: TypeAlias = str | int | float | Path

RESNETS = tuple(f"resnet{depth}" for depth in (18, 34, 50, 101, 152))
EFFICIENTNETS = tuple(f"efficientnet_b{scale}" for scale in range(8))
MODELS = RESNETS + EFFICIENTNETS
IMAGE_FOLDER = "imagefolder"
DATASETS = ("fashion-mnist", IMAGE_FOLDER)


@dataclass(frozen=True, kw_only=True)
class TrainerOption:
    """An option of the trainer.

    Attributes:
        name: name, such as `global_batch`; the flag is `--global-batch`, the stack key `globalBatch`.
        type: type of the value.
        default: value without the option; for a required option, the default of the stack file.
        help: meaning and unit, one sentence.
        minimum: smallest allowed value, if any.
        exclusive_minimum: value that must be exceeded, if any.
        exclusive_maximum: value that must not be reached, if any.
        choices: all allowed values; empty if they are not listed.
        pattern: regular expression that the whole value matches, if any.
        required: True if the trainer's command line must contain it.
        in_job: True if it is also a key of `job:` in a stack file.
        only_if_changed: True if a worker's command line contains it only with a value other than `default`.
        only_in_mode: mode in which the workers' command lines contain it; empty for all modes.
    """

    name: str
    type: type[str] | type[int] | type[float] | type[Path]
    default: Value | None
    help: str
    minimum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    required: bool = False
    in_job: bool = True
    only_if_changed: bool = False
    only_in_mode: str = ""

    @property
    def flag(self) -> str:
        """The option on a command line, such as `--global-batch`."""
        return "--" + self.name.replace("_", "-")

    def violation(self, value: float) -> str | None:
        """Return the message about the bound that a number violates; None if it is within the bounds."""
        # Negated comparisons: nan violates every bound.
        if self.exclusive_minimum is not None and not value > self.exclusive_minimum:
            return f"{self.flag} must be above {self.exclusive_minimum:g}, got {value}"
        if self.minimum is not None and not value >= self.minimum:
            return f"{self.flag} must be {self.minimum:g} or more, got {value}"
        if self.exclusive_maximum is not None and not value < self.exclusive_maximum:
            return f"{self.flag} must be below {self.exclusive_maximum:g}, got {value}"
        return None


_OPTIONS = (
    TrainerOption(
        name="model",
        type=str,
        default="resnet18",
        choices=MODELS,
        required=True,
        help="One of: " + ", ".join(MODELS) + ".",
    ),
    TrainerOption(
        name="dataset",
        type=str,
        default=None,
        choices=DATASETS,
        required=True,
        in_job=False,
        help="fashion-mnist, or imagefolder: one folder for each class.",
    ),
    TrainerOption(
        name="data",
        type=Path,
        default=None,
        required=True,
        in_job=False,
        help="Folder of the data: prepared arrays, images or shards; see trainer.prepare.",
    ),
    TrainerOption(
        name="data_store",
        type=str,
        default="",
        in_job=False,
        only_if_changed=True,
        help="Address of shards in an object store, s3://BUCKET/PREFIX or az://ACCOUNT/CONTAINER/PREFIX; "
        "--data is then the cache of this node.",
    ),
    TrainerOption(
        name="data_cache_bytes",
        type=int,
        default=0,
        minimum=0,
        in_job=False,
        only_if_changed=True,
        help="Maximum bytes of the shards in that cache; 0: no limit.",
    ),
    TrainerOption(
        name="data_cache_free_percent",
        type=int,
        default=0,
        minimum=0,
        exclusive_maximum=100,
        in_job=False,
        only_if_changed=True,
        help="Part of the disk that the cache leaves free, in percent.",
    ),
    TrainerOption(
        name="run",
        type=Path,
        default=None,
        required=True,
        in_job=False,
        help="Folder of this run; its name is the job's.",
    ),
    TrainerOption(name="epochs", type=int, default=3, minimum=1, help="Passes over the data set."),
    TrainerOption(
        name="global_batch",
        type=int,
        default=384,
        minimum=1,
        help="Samples in one step, summed over all workers.",
    ),
    TrainerOption(
        name="learning_rate",
        type=float,
        default=0.4,
        exclusive_minimum=0,
        help="Peak learning rate, for the global batch.",
    ),
    TrainerOption(
        name="weight_decay",
        type=float,
        default=5e-4,
        minimum=0,
        help="Weight decay; biases and normalization parameters are excluded.",
    ),
    TrainerOption(
        name="label_smoothing",
        type=float,
        default=0.05,
        minimum=0,
        exclusive_maximum=1,
        help="Label smoothing: share of the target that is spread uniformly over all classes.",
    ),
    TrainerOption(
        name="warmup_fraction",
        type=float,
        default=0.15,
        minimum=0,
        exclusive_maximum=1,
        help="Share of the steps in which the learning rate rises.",
    ),
    TrainerOption(
        name="image_size",
        type=int,
        default=224,
        minimum=16,
        help="Side length of an image folder's images, in pixels.",
    ),
    TrainerOption(
        name="checkpoint_seconds",
        type=float,
        default=5.0,
        exclusive_minimum=0,
        help="Maximum seconds between checkpoints, which bounds the work lost if all workers are lost.",
    ),
    TrainerOption(
        name="keep_checkpoints",
        type=int,
        default=3,
        minimum=1,
        help="Number of checkpoints to keep.",
    ),
    TrainerOption(
        name="seed",
        type=int,
        default=0,
        minimum=0,
        exclusive_maximum=2**63,  # torch and the order of samples take a signed integer of 64 bits
        help="Seed of initialization, sample order and augmentation.",
    ),
    TrainerOption(
        name="mode",
        type=str,
        default="live",
        choices=("live", "exact"),
        help="When the group changes, workers continue; `exact`: with bit-identical results.",
    ),
    TrainerOption(
        name="fresh",
        type=str,
        default="",
        only_if_changed=True,
        help="A new value moves the previous run of this name away; empty resumes it.",
    ),
    TrainerOption(
        name="accept_data",
        type=str,
        default="",
        pattern=r"^[0-9a-f]*$",
        only_if_changed=True,
        help="Digest of changed data with which the run may continue, as printed in the error message.",
    ),
    TrainerOption(
        name="accept_older_checkpoint",
        type=int,
        default=0,
        minimum=0,
        only_if_changed=True,
        help="Committed step from the error message whose lost checkpoint may be skipped.",
    ),
    TrainerOption(
        name="loader_workers",
        type=int,
        default=0,
        minimum=0,
        only_if_changed=True,
        help="Loader processes per worker that prefetch images; 0: the worker reads them itself.",
    ),
    TrainerOption(
        name="compress",
        type=str,
        default="none",
        choices=("none", "bf16"),
        only_if_changed=True,
        help="`bf16`: gradients take half the bytes on the network; `live` only.",
    ),
    TrainerOption(
        name="nonfinite_loss",
        type=str,
        default="stop",
        choices=("stop", "skip"),
        only_if_changed=True,
        help="On a non-finite loss: `stop` the run, or `skip` the step's update.",
    ),
    TrainerOption(
        name="shard_size",
        type=int,
        default=32,
        minimum=1,
        only_in_mode="exact",
        help="Samples in one shard of the batch, which `exact` computes at a time; its results depend on this size. "
        "Larger is faster; workers are equally busy if their number divides the number of shards.",
    ),
    TrainerOption(
        name="crop_padding",
        type=int,
        default=0,
        minimum=0,
        in_job=False,
        help="Maximum shift of prepared images, in pixels; useful from three epochs on.",
    ),
    TrainerOption(
        name="max_steps",
        type=int,
        default=0,
        minimum=0,
        in_job=False,
        help="Steps after which the run ends; 0: only at the end of its epochs.",
    ),
    TrainerOption(
        name="checkpoint_steps",
        type=int,
        default=8,
        minimum=1,
        in_job=False,
        help="Maximum steps between checkpoints, which bounds the work lost if all workers are lost.",
    ),
    TrainerOption(
        name="overlap",
        type=str,
        default="auto",
        choices=("auto", "on", "off"),
        in_job=False,
        help="Sum gradients during the backward pass; auto: if workers share no CPUs.",
    ),
)

TRAINER_OPTIONS: Mapping[str, TrainerOption] = {option.name: option for option in _OPTIONS}
"""Name -> option, in the order of a worker's command line."""


def arguments(values: Mapping[str, Value]) -> list[str]:
    """Return the trainer's command line for these values.

    Args:
        values: name of an option -> its value; an option that is missing keeps its default.
    """
    option_pairs = [
        (option.flag, str(values[name]))
        for name, option in TRAINER_OPTIONS.items()
        if name in values and _is_written(option, values)
    ]
    return [word for pair in option_pairs for word in pair]


def _is_written(option: TrainerOption, values: Mapping[str, Value]) -> bool:
    """Return True if a command line contains an option that has a value."""
    if option.only_in_mode and values.get("mode") != option.only_in_mode:
        return False
    return not (option.only_if_changed and values[option.name] == option.default)
