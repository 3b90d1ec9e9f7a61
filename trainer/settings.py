"""The settings of one training run: its command line as a frozen value.

The options and their defaults come from `everstep.catalog.trainer_options`. The module imports neither
torch nor numpy, since the launcher parses the settings before it starts anything else.
"""

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.catalog.trainer_options import IMAGE_FOLDER, TRAINER_OPTIONS
from everstep.errors import EverstepError

RESULT_FILE = "result.json"

FINGERPRINT_SETTINGS = (
    "model",
    "dataset",
    "epochs",
    "global_batch",
    "learning_rate",
    "weight_decay",
    "label_smoothing",
    "warmup_fraction",
    "image_size",
    "crop_padding",
    "seed",
    "fresh",
)
"""Settings that determine the result of a run."""

FINGERPRINT_SETTINGS_IF_CHANGED = ("nonfinite_loss", "compress")
"""Settings that are part of the fingerprint only if they differ from their defaults."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one run; the fields are named after the options.

    The fingerprint contains the settings that decide the outcome: a run continues only from a checkpoint with
    the same fingerprint.
    """

    model: str
    dataset: str
    data: Path
    data_store: str
    data_cache_bytes: int
    data_cache_free_percent: int
    run: Path
    epochs: int
    global_batch: int
    learning_rate: float
    weight_decay: float
    label_smoothing: float
    warmup_fraction: float
    image_size: int
    crop_padding: int
    seed: int
    max_steps: int
    checkpoint_seconds: float
    checkpoint_steps: int
    keep_checkpoints: int
    fresh: str
    mode: str
    shard_size: int
    loader_workers: int
    accept_data: str
    accept_older_checkpoint: int
    nonfinite_loss: str
    compress: str
    overlap: str

    @property
    def job(self) -> str:
        """Name of the run, which is the name of its folder."""
        return self.run.name

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The settings that determine the result; the data's identity and `max_steps` are not included."""
        names = list(FINGERPRINT_SETTINGS)
        if self.mode == "exact":
            names += ["mode", "shard_size"]
        names += [
            name
            for name in FINGERPRINT_SETTINGS_IF_CHANGED
            if getattr(self, name) != _default(name)
        ]
        return {name: getattr(self, name) for name in names}


def parse(arguments: list[str]) -> Settings:
    """Parse a command line; argparse ends the process if an option is unknown, missing or malformed.

    Raises:
        EverstepError: values are out of bounds or contradict each other; the message names all of them.
    """
    settings = Settings(**vars(_parser().parse_args(arguments)))
    if errors := [*_violations(settings), *_contradictions(settings)]:
        raise EverstepError("; ".join(errors), "See `python3 -m trainer.train --help`.")
    return settings


def result(settings: Settings) -> dict[str, Any] | None:
    """Return the result of this run if it has finished with these settings, otherwise None."""
    recorded_result = any_result(settings.run)
    expected = {"fingerprint": settings.fingerprint, "max_steps": settings.max_steps}
    return (
        recorded_result
        if recorded_result and expected == {name: recorded_result.get(name) for name in expected}
        else None
    )


def any_result(run: Path) -> dict[str, Any] | None:
    """Return the result in a run's folder, regardless of its settings; None if there is none."""
    try:
        content = json.loads((run / RESULT_FILE).read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _violations(settings: Settings) -> Iterator[str]:
    for name, option in TRAINER_OPTIONS.items():
        value = getattr(settings, name)
        if isinstance(value, int | float) and (violation := option.violation(value)):
            yield violation
        if option.pattern and not re.fullmatch(option.pattern, str(value)):
            yield f"{option.flag} must match {option.pattern}, got {value!r}"


def _contradictions(settings: Settings) -> Iterator[str]:
    if settings.mode == "exact" and settings.compress != "none":
        yield "--compress cannot be combined with --mode exact, whose sums must be lossless"
    if settings.data_store and settings.dataset != IMAGE_FOLDER:
        yield f"--data-store is for --dataset {IMAGE_FOLDER}, not for {settings.dataset}"
    if settings.mode != "live" and settings.overlap == "on":
        yield f"--overlap on is for --mode live, not for {settings.mode}"


def _default(name: str) -> object:
    return TRAINER_OPTIONS[name].default


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainer.train",
        description="Train an image classifier, elastically.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    for option in TRAINER_OPTIONS.values():
        help_text = option.help.replace("%", "%%")
        if option.required:  # models and data sets are checked where they are loaded
            parser.add_argument(option.flag, type=option.type, required=True, help=help_text)
        else:
            parser.add_argument(
                option.flag,
                type=option.type,
                default=option.default,
                choices=option.choices or None,
                help=help_text,
            )
    return parser
