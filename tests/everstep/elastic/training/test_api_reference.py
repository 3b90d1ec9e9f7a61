"""The API reference: its examples run, and it names every option and public member."""

import re
from pathlib import Path

import pytest
import torch

from everstep import elastic

REFERENCE = Path(__file__).parents[4] / "docs" / "elastic-api.md"


def test_the_examples_of_the_reference_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first_example, second_example, callbacks, early_stop = re.findall(
        r"```python\n(.*?)```", REFERENCE.read_text(), re.DOTALL
    )
    names: dict[str, object] = {}
    exec(first_example, names)
    run = names["run"]
    assert isinstance(run, elastic.Run)
    assert run.step == run.total_steps
    assert (tmp_path / "runs/example/checkpoints/step-00000016").exists()

    construction = re.search(r"^run = .*?^\)", first_example, re.DOTALL | re.MULTILINE)
    assert construction
    exec(construction[0].replace("runs/example", "runs/other"), names)
    names["test_set"] = names["train_set"]
    exec(callbacks, names)
    exec(second_example, names)
    second_run = names["run"]
    assert isinstance(second_run, elastic.Run)
    assert 0 < second_run.metrics["accuracy"] <= 1

    longer_construction = construction[0].replace("runs/example", "runs/stopped")
    exec(longer_construction.replace("epochs=2", "epochs=90"), names)
    generator = torch.Generator().manual_seed(0)
    names["test_set"] = torch.utils.data.TensorDataset(
        torch.randn(64, 20, generator=generator), torch.randint(0, 2, (64,), generator=generator)
    )
    exec(early_stop, names)
    exec(second_example, names)
    stopped_run = names["run"]
    assert isinstance(stopped_run, elastic.Run)
    assert stopped_run.epoch == stopped_run.metrics["best_epoch"] + 3 < 90


def test_the_reference_names_every_option() -> None:
    text = REFERENCE.read_text()

    missing_names = [
        name for name in elastic.RunOptions.__dataclass_fields__ if f"`{name}`" not in text
    ]

    assert not missing_names


@pytest.mark.parametrize(
    ("public_class", "prefix"), [(elastic.Run, r"run\."), (elastic.Batch, r"(batch\.)?")]
)
def test_the_reference_names_every_public_member(
    public_class: type[elastic.Run | elastic.Batch], prefix: str
) -> None:
    text = REFERENCE.read_text()

    missing_names = [
        name
        for name in vars(public_class)
        if not name.startswith("_") and not re.search(rf"`{prefix}{name}\b", text)
    ]

    assert not missing_names


def test_the_reference_names_the_attributes_of_an_error() -> None:
    text = REFERENCE.read_text()

    assert all(f"`{name}`" in text for name in vars(elastic.EverstepError("")))
