"""What one training run is: its command line as a frozen value.

Imports neither torch nor numpy, since the launcher reads it before anything else is worth starting.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.errors import EverstepError

RESULT_FILE = "result.json"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run. Field names are the option names.

    The fingerprint holds what decides the outcome: a checkpoint is used only by a run with the same
    one.
    """

    model: str
    dataset: str
    data: Path
    run: Path
    epochs: int = 1
    global_batch: int = 384
    learning_rate: float = 0.2
    weight_decay: float = 5e-4
    label_smoothing: float = 0.05
    warmup_fraction: float = 0.15
    image_size: int = 224
    crop_padding: int = 0
    seed: int = 0
    max_steps: int = 0
    checkpoint_seconds: float = 5.0
    checkpoint_steps: int = 8
    keep_checkpoints: int = 3
    fresh: str = ""
    mode: str = "live"
    shard_size: int = 32
    loader_workers: int = 0
    accept_data: str = ""
    nonfinite_loss: str = "stop"
    compress: str = "none"
    overlap: str = "auto"

    @property
    def job(self) -> str:
        """Name of the run: its folder's."""
        return self.run.name

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What decides every step, except the data's own identity and how many steps there are."""
        names: tuple[str, ...] = (
            "model",
            "dataset",
            "epochs",
            "global_batch",
            "learning_rate",
            "weight_decay",
        )
        names += (
            "label_smoothing",
            "warmup_fraction",
            "image_size",
            "crop_padding",
            "seed",
            "fresh",
        )
        if self.mode == "exact":
            names += ("mode", "shard_size")
        if self.nonfinite_loss != "stop":
            names += ("nonfinite_loss",)
        if self.compress != "none":
            names += ("compress",)
        return {name: getattr(self, name) for name in names}


def parse(arguments: list[str]) -> Settings:
    """Settings from a command line; argparse itself ends the process at a misspelt option."""
    read = vars(_parser().parse_args(arguments))
    settings = Settings(**read)
    faults = _faults(settings)
    if faults:
        raise EverstepError("; ".join(faults), "See `python3 -m trainer.train --help`.")
    return settings


def result(settings: Settings) -> dict[str, Any] | None:
    """The result of this run, where it has finished under these very settings; otherwise None."""
    found = any_result(settings.run)
    wanted = {"fingerprint": settings.fingerprint, "max_steps": settings.max_steps}
    return found if found and wanted == {name: found.get(name) for name in wanted} else None


def any_result(run: Path) -> dict[str, Any] | None:
    """The result in a run's folder, whatever its settings were."""
    try:
        read = json.loads((run / RESULT_FILE).read_text())
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None


def _faults(settings: Settings) -> list[str]:
    positive = (
        "epochs",
        "global_batch",
        "learning_rate",
        "image_size",
        "keep_checkpoints",
        "checkpoint_steps",
        "shard_size",
    )
    faults = [
        f"--{name.replace('_', '-')} must be above 0, got {getattr(settings, name)}"
        for name in positive
        if getattr(settings, name) <= 0
    ]
    if not 0 <= settings.warmup_fraction < 1:
        faults.append(f"--warmup-fraction must be in [0, 1), got {settings.warmup_fraction}")
    if not 0 <= settings.label_smoothing < 1:
        faults.append(f"--label-smoothing must be in [0, 1), got {settings.label_smoothing}")
    if settings.crop_padding < 0:
        faults.append(f"--crop-padding must not be below 0, got {settings.crop_padding}")
    if settings.loader_workers < 0:
        faults.append(f"--loader-workers must not be below 0, got {settings.loader_workers}")
    if settings.mode == "exact" and settings.compress != "none":
        faults.append(
            "--compress cannot be combined with --mode exact, whose sums must lose nothing"
        )
    if settings.mode != "live" and settings.overlap == "on":
        faults.append(f"--overlap on is for --mode live, not for {settings.mode}")
    return faults


def _parser() -> argparse.ArgumentParser:
    defaults = Settings(model="", dataset="", data=Path(), run=Path())
    parser = argparse.ArgumentParser(
        prog="trainer.train",
        description="Train an image classifier, elastically.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", required=True, help="resnet18 .. resnet152, efficientnet_b0 .. efficientnet_b7")
    add("--dataset", required=True, help="fashion-mnist, or imagefolder")
    add(
        "--data",
        type=Path,
        required=True,
        help="folder of the data: prepared arrays, photographs, or shards; see trainer.prepare",
    )
    add("--run", type=Path, required=True, help="folder of this run; its name is the job's")
    add("--epochs", type=int, default=defaults.epochs, help="passes over the training set")
    add(
        "--global-batch",
        type=int,
        default=defaults.global_batch,
        help="samples in one step, all workers",
    )
    add(
        "--learning-rate",
        type=float,
        default=defaults.learning_rate,
        help="highest rate of the schedule",
    )
    add(
        "--weight-decay",
        type=float,
        default=defaults.weight_decay,
        help="of weights, not of biases",
    )
    add(
        "--label-smoothing",
        type=float,
        default=defaults.label_smoothing,
        help="of the training loss",
    )
    add(
        "--warmup-fraction",
        type=float,
        default=defaults.warmup_fraction,
        help="steps of rising rate",
    )
    add(
        "--image-size",
        type=int,
        default=defaults.image_size,
        help="side of an imagefolder's images, pixels",
    )
    add(
        "--crop-padding",
        type=int,
        default=defaults.crop_padding,
        help="pixels that prepared images are shifted by; pays from three epochs on",
    )
    add("--seed", type=int, default=defaults.seed, help="of initialisation, order and augmentation")
    add(
        "--max-steps",
        type=int,
        default=defaults.max_steps,
        help="end after so many steps; 0: never",
    )
    add(
        "--checkpoint-seconds",
        type=float,
        default=defaults.checkpoint_seconds,
        help="between checkpoints, at most",
    )
    add(
        "--checkpoint-steps",
        type=int,
        default=defaults.checkpoint_steps,
        help="between checkpoints, at most: what the loss of all workers costs is about this",
    )
    add("--keep-checkpoints", type=int, default=defaults.keep_checkpoints, help="how many to keep")
    add("--fresh", default=defaults.fresh, metavar="WORD", help="a new word moves an old run aside")
    add(
        "--shard-size",
        type=int,
        default=defaults.shard_size,
        help="samples that --mode exact computes at a time; its results depend on it",
    )
    add(
        "--loader-workers",
        type=int,
        default=defaults.loader_workers,
        help="processes of each worker that read photographs ahead; 0: it reads them itself",
    )
    add(
        "--accept-data",
        default=defaults.accept_data,
        metavar="CONTENTS",
        help="go on from a checkpoint of other data with these, named as the refusal names them",
    )
    add(
        "--nonfinite-loss",
        choices=["stop", "skip"],
        default=defaults.nonfinite_loss,
        help="what a loss that is no number does: end the run, or leave that step's update out",
    )
    add(
        "--compress",
        choices=["none", "bf16"],
        default=defaults.compress,
        help="how gradients travel; bf16: half the bytes, worth it on slow networks only",
    )
    add(
        "--overlap",
        choices=["auto", "on", "off"],
        default=defaults.overlap,
        help="sum gradients while the backward pass runs; auto: where workers share no processors",
    )
    add(
        "--mode",
        choices=["restart", "live", "exact"],
        default=defaults.mode,
        help="how workers meet a change of the group",
    )
    return parser
