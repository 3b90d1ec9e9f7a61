"""`everstep scale`: options that are refused, and the files of its chart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.cli.commands import scale as command
from everstep.cli.commands.scale import scale
from everstep.cli.engine.context import StackContext, open_stack
from everstep.cli.line_chart import Axis, LineChart
from everstep.cli.scaling.store import Store
from everstep.cli.scaling.study import SizeResult
from everstep.errors import EverstepError
from tests.everstep.cli.projects import enter_project, shipped_stack
from tests.everstep.cli.scaling.test_in_cluster import ARGUMENTS, OPTIONS, SETTINGS, elastic_job


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": "1,two"}, "--replicas '1,two' is not a list of numbers"),
        ({"replicas": ""}, "--replicas '' is not a list of numbers"),
        ({"replicas": "0,1"}, "--replicas '0,1' is not a list of numbers from 1"),
        ({"model": "resnet51"}, "there is no model named 'resnet51'"),
        ({"dataset": "imagenet"}, "there is no data set named 'imagenet'"),
        ({"dataset": "imagefolder"}, "--dataset imagefolder needs --data"),
        ({"data": Path("nowhere")}, "--data nowhere is not a folder"),
    ],
)
def test_an_impossible_study_is_refused_before_anything_starts(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(EverstepError, match=message):
        scale(**{"local": True, "out": tmp_path / "out", **options})

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "imagefolder"}, "--dataset cannot be used without --local"),
        ({"data": Path("data"), "images": 7}, "--data and --images cannot be used without --local"),
        ({"local": True, "stack": "eks-dev"}, "--stack cannot be used with --local"),
        ({"local": True, "twin": True, "wait": 7}, "--twin and --wait cannot be used with --local"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(EverstepError, match=message):
        scale(**options)


class FakeClient:
    """A client of a cluster with one ElasticJob."""

    def __init__(self, image: str) -> None:
        self.job = elastic_job(ARGUMENTS + OPTIONS)
        pod = self.job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
        pod["containers"][0]["image"] = image

    def get(self, path: str, missing: dict[str, Any] | None = None) -> dict[str, Any]:
        del missing
        assert path.endswith("/elasticjobs/fashion")
        return self.job


def reuses_a_measurement(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    image: str = "trainer:1",
    cluster: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
) -> bool:
    """Return whether a measurement with the image trainer:1 on the shipped stack is reused for another stack."""
    measurements = []
    for name, used_image, changes in (
        ("before", "trainer:1", {}),
        ("after", image, {"cluster": cluster or {}, "data": data or {}}),
    ):
        content = shipped_stack("eks-dev")
        for section, values in changes.items():
            content["config"].setdefault(f"everstep:{section}", {})
            _merge(content["config"][f"everstep:{section}"], values)
        enter_project(folder / name, monkeypatch, {"eks-dev": yaml.safe_dump(content)})
        monkeypatch.setattr(StackContext, "connect", lambda _, image=used_image: FakeClient(image))
        _, settings = command._cluster_study(open_stack("eks-dev"), SETTINGS, wait=1)
        store = Store(folder / "out", settings)
        measurements.append(store.get(2))
        store.add(SizeResult(2, 2, 10, 1.0, 10, 0.1, 0.2, 0.3, None))
    return measurements[1] is not None


def _merge(section: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            _merge(section.setdefault(key, {}), value)
        else:
            section[key] = value


@pytest.mark.parametrize(
    "change",
    [
        {"image": "trainer:2"},
        {"cluster": {"gpuPool": {"instanceTypes": ["g6.xlarge"]}}},
        {"data": {"dataset": "imagefolder", "source": "s3://bucket/photos/"}},
    ],
    ids=["image", "machines", "data"],
)
def test_a_measurement_of_another_image_machine_or_data_set_is_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    assert not reuses_a_measurement(tmp_path, monkeypatch, **change)


def test_a_measurement_is_reused_although_the_pool_may_have_more_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reuses_a_measurement(tmp_path, monkeypatch, cluster={"gpuPool": {"maxNodes": 7}})


@pytest.mark.parametrize("has_pillow", [True, False])
def test_the_chart_is_written_as_svg_and_with_pillow_as_png(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_pillow: bool
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: object() if has_pillow else None)
    axis = Axis("replicas", [(0.0, "0"), (1.0, "1")])

    command._write_pictures(tmp_path / "resnet50", LineChart("title", axis, axis))

    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files["resnet50.svg"].startswith(b"<svg")
    assert ("resnet50.png" in files) == has_pillow
    assert files.get("resnet50.png", b"\x89PNG").startswith(b"\x89PNG")
