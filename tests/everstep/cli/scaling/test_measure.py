"""Only missing sizes are measured; results of the others are kept."""

from pathlib import Path

import pytest

from everstep.cli.scaling.measure import measure
from everstep.cli.scaling.store import Store
from everstep.cli.scaling.study import SizeResult
from everstep.errors import EverstepError
from everstep.progress import Progress, Silent

SETTINGS = {"model": "resnet50"}


class RecordingStudy:
    """A study that records the sizes that it measures, and fails at one size."""

    def __init__(self, fails_at: int = 0) -> None:
        self.measured_sizes: list[int] = []
        self._fails_at = fails_at

    def check(self) -> None:
        assert not self.measured_sizes, "checked before the first measurement"

    def measure(self, replicas: int, progress: Progress) -> SizeResult:
        if replicas == self._fails_at:
            raise EverstepError("a machine was lost")
        self.measured_sizes.append(replicas)
        return SizeResult(replicas, replicas, 10, 1.0, 10, None, None, None, None)


def test_a_study_continues_where_it_failed(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="a machine was lost"):
        measure(
            RecordingStudy(fails_at=3),
            [1, 2, 3],
            Store(tmp_path, SETTINGS),
            Silent(),
            remeasure=False,
        )
    study = RecordingStudy()

    sizes = measure(study, [1, 2, 3], Store(tmp_path, SETTINGS), Silent(), remeasure=False)

    assert study.measured_sizes == [3]
    assert [size.replicas for size in sizes] == [1, 2, 3]


def test_remeasure_repeats_all_sizes(tmp_path: Path) -> None:
    measure(RecordingStudy(), [1, 2], Store(tmp_path, SETTINGS), Silent(), remeasure=False)
    study = RecordingStudy()

    measure(study, [1, 2], Store(tmp_path, SETTINGS), Silent(), remeasure=True)

    assert study.measured_sizes == [1, 2]


def test_a_complete_study_needs_no_machines(tmp_path: Path) -> None:
    measure(RecordingStudy(), [1], Store(tmp_path, SETTINGS), Silent(), remeasure=False)

    class UnavailableStudy(RecordingStudy):
        def check(self) -> None:
            raise EverstepError("there is no cluster")

    sizes = measure(UnavailableStudy(), [1], Store(tmp_path, SETTINGS), Silent(), remeasure=False)

    assert [size.replicas for size in sizes] == [1]
