"""The settings of a training run and their validation."""

import json
from pathlib import Path

import pytest

from everstep.catalog.trainer_options import TRAINER_OPTIONS
from everstep.errors import EverstepError
from trainer.settings import any_result, parse, result

ARGUMENTS = [
    "--model",
    "resnet18",
    "--dataset",
    "fashion-mnist",
    "--data",
    "/data",
    "--run",
    "/runs/fashion",
]


def test_the_job_has_the_name_of_the_run_folder() -> None:
    assert parse(ARGUMENTS).job == "fashion"


def test_all_errors_are_reported_together() -> None:
    with pytest.raises(EverstepError) as error:
        parse([*ARGUMENTS, "--epochs", "0", "--global-batch", "-1", "--label-smoothing", "2"])

    assert "--epochs must be 1 or more, got 0" in error.value.problem
    assert "--global-batch must be 1 or more, got -1" in error.value.problem
    assert "--label-smoothing must be below 1, got 2.0" in error.value.problem


def test_overlap_with_the_backward_pass_is_refused_in_exact_mode() -> None:
    with pytest.raises(EverstepError, match="--overlap on is for --mode live, not for exact"):
        parse([*ARGUMENTS, "--mode", "exact", "--overlap", "on"])


def test_compression_is_refused_in_exact_mode() -> None:
    with pytest.raises(EverstepError, match="--compress cannot be combined with --mode exact"):
        parse([*ARGUMENTS, "--mode", "exact", "--compress", "bf16"])


def test_settings_that_affect_the_result_are_in_the_fingerprint() -> None:
    default_fingerprint = parse(ARGUMENTS).fingerprint

    for option in (
        ("--seed", "2"),
        ("--compress", "bf16"),
        ("--nonfinite-loss", "skip"),
        ("--mode", "exact"),
    ):
        assert parse([*ARGUMENTS, *option]).fingerprint != default_fingerprint, option


def test_settings_that_do_not_affect_the_result_are_not_in_the_fingerprint() -> None:
    default_fingerprint = parse(ARGUMENTS).fingerprint

    for option in (
        ("--data", "/elsewhere"),
        ("--loader-workers", "4"),
        ("--accept-data", "abcd"),
        ("--accept-older-checkpoint", "40"),
    ):
        assert parse([*ARGUMENTS, *option]).fingerprint == default_fingerprint, option


def test_the_settings_are_the_options_of_the_catalog() -> None:
    settings = parse(ARGUMENTS)

    assert set(vars(settings)) == set(TRAINER_OPTIONS)
    for name, option in TRAINER_OPTIONS.items():
        if not option.required:
            assert getattr(settings, name) == option.default, name


def test_a_digest_that_is_not_hexadecimal_is_refused() -> None:
    with pytest.raises(EverstepError, match="--accept-data must match"):
        parse([*ARGUMENTS, "--accept-data", "any"])


def test_a_misspelled_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*ARGUMENTS, "--epoch", "3"])

    assert "--epoch" in capsys.readouterr().err


def test_a_result_counts_only_for_its_own_settings(tmp_path: Path) -> None:
    arguments = [*ARGUMENTS[:-1], str(tmp_path)]
    fingerprint = parse(arguments).fingerprint
    (tmp_path / "result.json").write_text(
        json.dumps({"accuracy": 0.9, "max_steps": 0, "fingerprint": fingerprint})
    )

    assert result(parse(arguments)) is not None
    assert result(parse([*arguments, "--epochs", "9"])) is None
    assert any_result(tmp_path) is not None


def test_an_incomplete_result_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"accur')

    assert any_result(tmp_path) is None


def test_a_negative_number_of_loader_workers_is_refused() -> None:
    with pytest.raises(EverstepError, match="--loader-workers must be 0 or more, got -1"):
        parse([*ARGUMENTS, "--loader-workers", "-1"])
