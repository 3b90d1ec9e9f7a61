"""Measured sizes in a file."""

from pathlib import Path

import pytest

from everstep.cli.scaling.store import Store
from everstep.cli.scaling.study import SizeResult
from everstep.errors import EverstepError


def size(replicas: int, seconds: float = 1.0) -> SizeResult:
    return SizeResult(replicas, replicas, 10, seconds, 10, 0.1, 0.2, 0.3, None)


def test_a_size_is_reused_only_for_the_same_settings(tmp_path: Path) -> None:
    Store(tmp_path, {"model": "resnet50"}).add(size(2))

    assert Store(tmp_path, {"model": "resnet50"}).get(2) == size(2)
    assert Store(tmp_path, {"model": "resnet50"}).get(3) is None
    assert Store(tmp_path, {"model": "resnet18"}).get(2) is None


def test_a_size_that_is_measured_again_replaces_the_previous_result(tmp_path: Path) -> None:
    store = Store(tmp_path, {"model": "resnet50"})
    store.add(size(2))
    store.add(size(2, seconds=5.0))

    result = Store(tmp_path, {"model": "resnet50"}).get(2)

    assert result is not None
    assert result.seconds == 5.0


def test_measurements_with_other_settings_stay_in_the_file(tmp_path: Path) -> None:
    Store(tmp_path, {"model": "resnet50"}).add(size(2))
    Store(tmp_path, {"model": "resnet18"}).add(size(2))

    assert Store(tmp_path, {"model": "resnet50"}).get(2) == size(2)


@pytest.mark.parametrize("content", ["{", "[1]", '[{"settings": {}}]', '[{"result": {"x": 1}}]'])
def test_a_file_without_measurements_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    file = tmp_path / "measurements.json"
    file.write_text(content)

    with pytest.raises(EverstepError, match="is not a file of measurements"):
        Store(tmp_path, {})

    assert file.read_text() == content


def test_a_folder_that_is_a_file_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(EverstepError, match=r"measurements.json cannot be read: Not a directory"):
        Store(tmp_path / "file", {})
