"""`everstep scale`: options that are refused, and the files of its chart."""

from pathlib import Path
from typing import Any

import pytest

from everstep.cli.commands import scale as command
from everstep.cli.commands.scale import scale
from everstep.cli.line_chart import Axis, LineChart
from everstep.errors import EverstepError


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
