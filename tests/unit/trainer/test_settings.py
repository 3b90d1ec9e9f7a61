import json
from pathlib import Path

import pytest

from everstep.errors import EverstepError
from trainer.settings import any_result, parse, result

LINE = [
    "--model",
    "resnet18",
    "--dataset",
    "fashion-mnist",
    "--data",
    "/data",
    "--run",
    "/runs/fashion",
]


def test_the_run_s_folder_names_the_job():
    assert parse(LINE).job == "fashion"


def test_every_fault_is_told_at_once():
    with pytest.raises(EverstepError) as error:
        parse([*LINE, "--epochs", "0", "--global-batch", "-1", "--label-smoothing", "2"])

    assert "--epochs must be above 0, got 0" in error.value.what
    assert "--global-batch must be above 0, got -1" in error.value.what
    assert "--label-smoothing" in error.value.what


@pytest.mark.parametrize("mode", ["exact", "restart"])
def test_only_living_workers_exchange_gradients_early(mode):
    with pytest.raises(EverstepError, match=f"--overlap on is for --mode live, not for {mode}"):
        parse([*LINE, "--mode", mode, "--overlap", "on"])


def test_exact_sums_cannot_be_compressed():
    with pytest.raises(EverstepError, match="--compress cannot be combined with --mode exact"):
        parse([*LINE, "--mode", "exact", "--compress", "bf16"])


def test_what_decides_the_outcome_is_in_the_fingerprint():
    plain = parse(LINE).fingerprint

    for option in (("--compress", "bf16"), ("--nonfinite-loss", "skip"), ("--mode", "exact")):
        assert parse([*LINE, *option]).fingerprint != plain


def test_a_misspelt_option_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse([*LINE, "--epoch", "3"])

    assert "--epoch" in capsys.readouterr().err


def test_where_the_data_lie_does_not_change_what_the_run_is():
    moved = [part.replace("/data", "/elsewhere") for part in LINE]

    assert parse(moved).fingerprint == parse(LINE).fingerprint
    assert parse([*LINE, "--seed", "2"]).fingerprint != parse(LINE).fingerprint


def test_a_result_counts_only_for_the_settings_that_it_is_of(tmp_path):
    line = [*LINE[:-1], str(tmp_path)]
    fingerprint = parse(line).fingerprint
    (tmp_path / "result.json").write_text(
        json.dumps({"accuracy": 0.9, "max_steps": 0, "fingerprint": fingerprint})
    )

    assert result(parse(line)) is not None
    assert result(parse([*line, "--epochs", "9"])) is None
    assert any_result(tmp_path) is not None


def test_a_torn_result_is_none(tmp_path):
    (tmp_path / "result.json").write_text('{"accur')

    assert any_result(tmp_path) is None


def test_reading_settings_needs_no_torch():
    source = Path("trainer/settings.py").read_text()

    assert "import torch" not in source, (
        "a late joiner to a finished run should end in well under a second"
    )


def test_how_the_data_are_read_does_not_change_what_the_run_is():
    assert parse([*LINE, "--loader-workers", "4"]).fingerprint == parse(LINE).fingerprint
    assert parse([*LINE, "--accept-data", "abcd"]).fingerprint == parse(LINE).fingerprint


def test_fewer_than_no_loader_workers_are_refused():
    with pytest.raises(EverstepError, match="--loader-workers must not be below 0"):
        parse([*LINE, "--loader-workers", "-1"])
