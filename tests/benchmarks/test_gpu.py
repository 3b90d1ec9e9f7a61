"""The table of throughputs, and the loop that measures them, on a CPU."""

import sys

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import Throughput, main, measure, table
from trainer.models import Precision

RESULT = Throughput("resnet50", 224, 256, "bfloat16", 2000.0, 1990.0, 1500.0, "bfloat16", 31.4)


@pytest.fixture(autouse=True)
def short_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm up with one step, since a CPU has no cuDNN autotuning, and with one shard: its float16 is slow."""
    monkeypatch.setattr(gpu, "WARM_UP_STEPS", 1)
    monkeypatch.setattr(gpu, "SHARDS", 1)


def test_the_table_has_measured_and_published_figures() -> None:
    lines = table([RESULT], "H100, torch 2.15.0")

    assert "H100, torch 2.15.0" in lines[0]
    assert "2,000" in lines[-1]
    assert "1,990 (0.995)" in lines[-1]
    assert "1,500 (0.750)" in lines[-1]
    assert "2,470 on an A100 80 GB" in lines[-1]
    assert {line.count("|") for line in lines[2:]} == {8}


def test_all_loops_are_measured() -> None:
    result = measure("resnet18", 32, 2, torch.device("cpu"), steps=1, rounds=1)

    assert result.batch == 2
    assert result.plain > 0
    assert result.live > 0
    assert result.exact > 0


def test_without_bfloat16_exact_is_measured_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def precision_of_a_t4(_name: str, _device: object, *, exact: bool = False) -> Precision:
        return Precision(None if exact else torch.float16)

    monkeypatch.setattr("trainer.models.precision", precision_of_a_t4)

    result = measure("resnet18", 32, 2, torch.device("cpu"), steps=1, rounds=1)

    assert (result.precision, result.exact_precision) == ("float16", "float32")
    assert result.exact > 0
    assert ") in float32 | 0.0 GB |" in table([result], "T4, torch 2.15.0")[-1]


def test_a_batch_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure_small(name: str, pixels: int, batch: int, *arguments: object) -> Throughput:
        if batch > 3:
            raise torch.OutOfMemoryError
        return Throughput(name, pixels, batch, "bfloat16", 1.0, 1.0, 1.0, "bfloat16", 0.0)

    monkeypatch.setattr(gpu, "_measure", measure_small)

    assert measure("resnet50", 224, 8, torch.device("cpu"), 1, 1).batch == 2


def test_without_a_gpu_the_program_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(SystemExit, match="no GPU: torch finds none"):
        main()
