"""Speed and efficiency of each size, from journals."""

import pytest

from everstep.cli.report.run_record import JournalEntry, RunRecord
from everstep.cli.scaling.study import SizeResult, efficiencies, size_result
from everstep.errors import EverstepError

STEPS, IMAGES = 10, 100


def run_record(
    processes: int,
    *,
    step_seconds: float = 2.0,
    dataset: int = STEPS * IMAGES,
    smaller_at: int = -1,
) -> RunRecord:
    """Return the record of a run whose steps begin at second 100.

    Args:
        processes: number of processes in the group.
        step_seconds: duration of each step.
        dataset: number of images in an epoch.
        smaller_at: index of a step in which one process is missing; -1 for none.
    """
    entries = [JournalEntry(90, "start", "w0", {"dataset_size": dataset})]
    for rank in range(processes):
        worker = f"w{rank}"
        seconds = {"start_up": 9.0, "compute": 1.0, "processor": 5.0}
        entries.append(JournalEntry(99, "seconds", worker, seconds))
        entries.append(
            JournalEntry(
                200,
                "seconds",
                worker,
                {**seconds, "compute": 16.0, "exchange": 4.0, "data": 1.0, "processor": 25.0},
            )
        )
    for number in range(STEPS):
        size = processes - (number == smaller_at)
        values = {"step": number + 1, "seconds": step_seconds, "images": IMAGES, "world_size": size}
        entries.append(JournalEntry(100 + (number + 1) * step_seconds, "step", "w0", values))
    return RunRecord(entries=tuple(entries))


def size(replicas: int, images_per_second: float) -> SizeResult:
    images = int(images_per_second * 10)
    return SizeResult(replicas, replicas, images, 10.0, images, None, None, None, None)


def test_a_whole_epoch_counts_from_the_first_step_to_the_last() -> None:
    result = size_result(run_record(2), replicas=2, processes=2)

    assert result.epoch_seconds == pytest.approx(20)
    assert result.images_per_second == pytest.approx(50)
    assert not result.is_extrapolated


def test_a_part_of_an_epoch_is_extrapolated_without_its_first_steps() -> None:
    result = size_result(run_record(2, dataset=10_000), replicas=2, processes=2)

    assert result.images == (STEPS - 2) * IMAGES
    assert result.epoch_seconds == pytest.approx(200)
    assert result.is_extrapolated
    share = (STEPS - 2) / STEPS
    assert result.compute == pytest.approx(share * 15), "journals have the sum of all steps"
    assert result.processor == pytest.approx(share * 2 * 20)


def test_time_before_the_first_step_does_not_count() -> None:
    result = size_result(run_record(2), replicas=2, processes=2)

    assert result.compute == pytest.approx(15), "a process computed 15 s since its first entry"
    assert result.all_reduce_share == pytest.approx(4 / (4 + 15 + 1))
    assert result.processor == pytest.approx(2 * 20), "of all processes together"
    assert result.cpu_milliseconds == pytest.approx(40)


def test_a_group_that_was_smaller_for_a_step_is_refused() -> None:
    with pytest.raises(EverstepError, match="of 2 processes had 1 for some steps"):
        size_result(run_record(2, smaller_at=4), replicas=2, processes=2)


def test_a_run_with_too_few_steps_is_refused() -> None:
    with pytest.raises(EverstepError, match="0 steps were recorded with 2 replicas"):
        size_result(RunRecord(), replicas=2, processes=2)


def test_the_efficiency_of_a_replica_is_relative_to_the_smallest_size() -> None:
    actual = efficiencies([size(1, 100), size(2, 150), size(4, 400)])

    assert actual == pytest.approx([1.0, 0.75, 1.0])


def test_a_study_may_begin_with_two_replicas() -> None:
    assert efficiencies([size(2, 100), size(4, 100)]) == pytest.approx([1.0, 0.5])
