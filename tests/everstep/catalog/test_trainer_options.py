"""The table of trainer options agrees with the configuration and the arguments of workers."""

from typing import get_args

import pytest

from components.config import JobConfig
from everstep.catalog.trainer_options import TRAINER_OPTIONS, TrainerOption, arguments

IN_JOB = [option for option in TRAINER_OPTIONS.values() if option.in_job]


@pytest.mark.parametrize("option", IN_JOB, ids=lambda option: option.name)
def test_a_stack_file_has_the_defaults_of_the_table(option: TrainerOption) -> None:
    field = JobConfig.model_fields[option.name]

    assert field.default == option.default
    if option.choices and option.name != "model":
        assert get_args(field.annotation) == option.choices


def test_an_option_that_is_passed_only_if_changed_is_omitted_at_its_default() -> None:
    assert arguments({"compress": "none", "epochs": 3}) == ["--epochs", "3"]
    assert arguments({"compress": "bf16"}) == ["--compress", "bf16"]


@pytest.mark.parametrize("size", [32, 7])
def test_the_size_of_shards_is_passed_in_exact_mode_only(size: int) -> None:
    assert arguments({"mode": "live", "shard_size": size}) == ["--mode", "live"]
    assert arguments({"mode": "exact", "shard_size": size}) == [
        *("--mode", "exact"),
        *("--shard-size", str(size)),
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("learning_rate", 0, "--learning-rate must be above 0, got 0"),
        ("learning_rate", float("nan"), "--learning-rate must be above 0, got nan"),
        ("warmup_fraction", 1, "--warmup-fraction must be below 1, got 1"),
        ("epochs", 0, "--epochs must be 1 or more, got 0"),
        ("epochs", 1, None),
        ("seed", 2**63 - 1, None),
        ("seed", 2**63, "--seed must be below 9.22337e+18, got 9223372036854775808"),
    ],
)
def test_a_number_out_of_bounds_is_reported_with_the_bound(
    name: str, value: float, message: str | None
) -> None:
    assert TRAINER_OPTIONS[name].violation(value) == message
