"""Goodput and time accounts of runs with given durations."""

from typing import Self

import pytest

from everstep.cli.report.goodput import (
    Goodput,
    absent_seconds,
    goodput,
    history,
    restart_estimate,
    worker_seconds,
)
from everstep.cli.report.goodput_screen import ACTIVITY_LABELS, _end_of
from everstep.cli.report.report import build
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.screens import report_screen
from everstep.elastic.accounting.time_account import Activity
from everstep.goodput import ChangeCause
from tests.everstep.cli.recorded_run import STEP_SECONDS, RecordedRun
from tests.everstep.cli.report.terminal import terminal_text

ALL_NODES = ("gpu-0", "gpu-1", "gpu-2")


class LiveRun(RecordedRun):
    """A recorded run in `live` mode: a group change starts only the processes of new workers."""

    def begin(self, *nodes: str, resume_from: int | None = None) -> Self:
        """Start a new generation in `live` mode, with a new process for each worker."""
        self.form(*nodes, resume_from=resume_from)
        for lines in self.journals.values():
            for line in lines:
                line |= {"mode": "live", "checkpoint_seconds": 10}
        return self

    def regroup(self, *nodes: str, resume_from: int | None = None) -> Self:
        """Start a new generation without new processes for the workers that stay."""
        staying_workers = {self.worker(node) for node in nodes if node in self.training_nodes}
        lengths = {worker: len(lines) for worker, lines in self.journals.items()}
        self.begin(*nodes, resume_from=resume_from)
        for worker in staying_workers:
            lines, start = self.journals[worker], lengths[worker]
            lines[start:] = [line for line in lines[start:] if line["kind"] != "start"]
        return self

    def spend(self, node: str, **seconds: float) -> Self:
        """Record the seconds that a worker's process has spent on each activity so far."""
        self.write(node, "seconds", step=self.step, **seconds)
        return self


def goodput_of(run: RunRecord) -> Goodput:
    """Return the goodput of a run with steps."""
    result = goodput(run)
    assert result is not None, "a run with steps has a goodput"
    return result


def test_an_undisturbed_run_spends_all_its_time_on_steps() -> None:
    result = goodput_of(LiveRun().begin(*ALL_NODES).train(20).run())

    assert result.share == pytest.approx(1)
    assert result.worker_share is None, "these journals contain no time accounts of workers"


def test_pauses_and_repeated_steps_are_not_goodput() -> None:
    recorded_run = LiveRun().begin(*ALL_NODES).train(20).wait(4.0)
    run = recorded_run.regroup("gpu-0", "gpu-1", resume_from=18).train(12).run()

    result = goodput_of(run)

    assert result.elapsed_seconds == pytest.approx(32 * STEP_SECONDS + 4)
    assert result.productive_seconds == pytest.approx(30 * STEP_SECONDS)
    assert result.redone_seconds == pytest.approx(2 * STEP_SECONDS)


def test_a_step_that_another_worker_records_again_is_not_a_repeated_step() -> None:
    recorded_run = LiveRun().begin(*ALL_NODES).train(5)
    recorded_run.write(
        "gpu-1",
        "step",
        step=5,
        seconds=STEP_SECONDS,
        generation=1,
        world_size=3,
        images=1,
        again=True,
    )

    assert goodput_of(recorded_run.train(5).run()).redone_seconds == 0


def test_elapsed_time_starts_with_the_first_recorded_worker_process() -> None:
    recorded_run = LiveRun().begin(*ALL_NODES).spend("gpu-0", start_up=6.0, form=2.0).train(4)

    assert goodput_of(recorded_run.run()).elapsed_seconds == pytest.approx(8 + 4 * STEP_SECONDS)


def test_time_without_any_machine_is_not_elapsed_time() -> None:
    recorded_run = LiveRun().begin("gpu-0", "gpu-1").train(10)
    recorded_run.event("vanish", "gpu-0").wait(1.0).event("vanish", "gpu-1").wait(60.0)
    recorded_run.event("return", "gpu-1").wait(5.0)
    run = recorded_run.regroup("gpu-1").train(10).run()

    assert absent_seconds(run) == pytest.approx(60)
    assert goodput_of(run).elapsed_seconds == pytest.approx(20 * STEP_SECONDS + 6)


def test_the_time_of_a_worker_is_the_sum_over_its_processes() -> None:
    recorded_run = LiveRun().begin(*ALL_NODES).spend("gpu-0", start_up=5.0).train(4)
    recorded_run.spend("gpu-0", start_up=5.0, compute=2.0).regroup("gpu-1", "gpu-2").train(2)
    recorded_run.regroup(*ALL_NODES).spend("gpu-0", start_up=4.0).train(2).spend(
        "gpu-0", start_up=4.0, compute=1.0
    )

    (worker,) = worker_seconds(recorded_run.run())

    assert worker.seconds == {"start_up": 9.0, "compute": 3.0}


def test_the_share_of_the_workers_excludes_repeated_work() -> None:
    recorded_run = (
        LiveRun().begin("gpu-0").train(6).wait(1.0).regroup("gpu-0", resume_from=4).train(6)
    )
    recorded_run.spend("gpu-0", start_up=4.0, data=1.0, compute=4.0, exchange=1.0)

    assert goodput_of(recorded_run.run()).worker_share == pytest.approx((6 - 2 * STEP_SECONDS) / 10)


def test_without_events_the_history_is_read_from_the_groups() -> None:
    recorded_run = (
        LiveRun().begin(*ALL_NODES).train(10).wait(2.0).regroup("gpu-0", "gpu-1").train(10)
    )
    recorded_run.regroup(*ALL_NODES).train(10)
    recorded_run.write("gpu-2", "leave", step=30)
    run = recorded_run.regroup("gpu-0", "gpu-1").train(10).run()

    assert [(change.cause, change.machines) for change in history(run)] == [
        (ChangeCause.LOSS, 1),
        (ChangeCause.JOIN, 1),
        (ChangeCause.NOTICE, 1),
    ]


def test_the_loss_of_all_machines_is_followed_by_their_recorded_return() -> None:
    recorded_run = LiveRun().begin("gpu-0", "gpu-1").train(10).wait(30.0)
    run = recorded_run.form("gpu-0", "gpu-1").train(5).run()

    loss, join = history(run)

    assert (loss.cause, loss.machines, join.cause, join.machines) == (
        ChangeCause.LOSS,
        2,
        ChangeCause.JOIN,
        2,
    )
    assert join.at_seconds - loss.at_seconds == pytest.approx(30 + STEP_SECONDS)


def test_the_estimate_for_restarts_is_lower_and_ends_at_the_first_drain() -> None:
    recorded_run = LiveRun().begin(*ALL_NODES).train(100)
    recorded_run.write("gpu-2", "leave", step=100)
    drained_at = recorded_run.now
    run = recorded_run.wait(0.1).regroup("gpu-0", "gpu-1").train(200).run()

    estimate = restart_estimate(run)
    assert estimate is not None

    assert estimate.live_lost_seconds == pytest.approx(0.1)
    assert estimate.lost_seconds == pytest.approx(42.5), (
        "no work is lost, since 50 s are five checkpoint intervals"
    )
    assert estimate.ended_at == pytest.approx(drained_at)
    assert estimate.goodput < goodput_of(run).share
    assert any("42.5 s" in assumption for assumption in estimate.assumptions)


def test_a_run_that_restarted_its_workers_has_no_estimate(recorded_run: RecordedRun) -> None:
    assert restart_estimate(recorded_run.form(*ALL_NODES).train(10).run()) is None


def render(run: RunRecord) -> str:
    return terminal_text(report_screen(build(run), run, run.entries[-1].at, 100))


def test_the_screen_shows_all_activities_and_a_bar_for_each_worker() -> None:
    recorded_run = LiveRun().begin(*ALL_NODES).train(40)
    for node, compute in zip(ALL_NODES, (20.0, 19.0, 10.0), strict=True):
        recorded_run.spend(node, **dict.fromkeys(Activity, 1.0) | {Activity.COMPUTE: compute})

    text = render(recorded_run.wait(0.5).regroup("gpu-0", "gpu-1").train(5).run())

    for label, _ in ACTIVITY_LABELS.values():
        assert label in text
    assert text.count("fashion-worker-") == 3
    header = next(line for line in text.splitlines() if line.startswith("seconds"))
    assert header.split() == ["seconds", "all", "worker-0", "worker-1", "worker-2", "share"]
    assert "estimated" in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_screen_has_goodput_after_the_first_step_and_activities_only_from_time_accounts(
    recorded_run: RecordedRun,
) -> None:
    before_the_first_step = render(recorded_run.form(*ALL_NODES).run())
    without_time_accounts = render(recorded_run.train(10).run())

    assert "goodput" not in before_the_first_step
    assert "goodput" in without_time_accounts
    assert "computing" not in without_time_accounts


def test_a_run_without_entries_has_no_goodput() -> None:
    assert goodput(RunRecord()) is None


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("worker-0", "worker-0"),
        ("group-worker-123", "worker-123"),
        ("fashion-mnist-worker-0", "worker-0"),
        ("averylongnamewithoutparts", "thoutparts"),
    ],
)
def test_a_long_name_of_a_worker_is_shortened_to_its_last_words(name: str, end: str) -> None:
    assert _end_of(name) == end
