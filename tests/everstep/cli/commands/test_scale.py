"""`everstep scale`: options that are refused."""

from pathlib import Path
from typing import Any

import pytest

from everstep.cli.commands.scale import scale
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
