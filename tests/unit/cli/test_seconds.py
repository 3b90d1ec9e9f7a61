"""Where a run's time went: stories whose seconds can be reckoned by hand."""

import io

import pytest
from rich.console import Console

from everstep.cli.report import build
from everstep.cli.run import Run
from everstep.cli.screen import report_screen
from everstep.cli.seconds import absent_seconds, goodput, history, restart_estimate, seconds
from everstep.elastic.accounting import Name
from everstep.goodput import Cause
from tests.unit.cli.story import STEP_SECONDS, Story

ALL = ("gpu-0", "gpu-1", "gpu-2")


class Living(Story):
    """A run in `live` mode: a change of the group starts no process anew but the newcomers'."""

    def begin(self, *nodes, resume_from=None):
        self.form(*nodes, resume_from=resume_from)
        for lines in self.journals.values():
            for line in lines:
                line |= {"mode": "live", "checkpoint_seconds": 10}
        return self

    def regroup(self, *nodes, resume_from=None):
        stayed = {self.worker(node) for node in nodes if node in self.training}
        begun = {worker: len(lines) for worker, lines in self.journals.items()}
        self.begin(*nodes, resume_from=resume_from)
        for worker in stayed:
            lines, since = self.journals[worker], begun[worker]
            lines[since:] = [line for line in lines[since:] if line["kind"] != "start"]
        return self

    def spend(self, node, **spent):
        self.write(node, "seconds", step=self.step, **spent)
        return self


def test_a_run_that_nothing_disturbs_has_spent_all_its_time_on_steps():
    found = goodput(Living().begin(*ALL).train(20).run())

    assert found.share == pytest.approx(1)
    assert found.worker_share is None, "the journals tell nothing of the workers' seconds"


def test_a_pause_and_a_step_done_again_are_time_that_did_not_count():
    story = Living().begin(*ALL).train(20).wait(4.0)
    run = story.regroup("gpu-0", "gpu-1", resume_from=18).train(12).run()

    found = goodput(run)

    assert found.elapsed_seconds == pytest.approx(32 * STEP_SECONDS + 4)
    assert found.productive_seconds == pytest.approx(30 * STEP_SECONDS)
    assert found.redone_seconds == pytest.approx(2 * STEP_SECONDS)


def test_a_step_that_a_new_rank_0_writes_once_more_was_not_done_again():
    story = Living().begin(*ALL).train(5)
    story.write(
        "gpu-1",
        "step",
        step=5,
        seconds=STEP_SECONDS,
        generation=1,
        world_size=3,
        images=1,
        again=True,
    )

    assert goodput(story.train(5).run()).redone_seconds == 0


def test_elapsed_time_begins_with_the_first_worker_process_where_the_journal_tells():
    story = Living().begin(*ALL).spend("gpu-0", start_up=6.0, form=2.0).train(4)

    assert goodput(story.run()).elapsed_seconds == pytest.approx(8 + 4 * STEP_SECONDS)


def test_time_in_which_the_market_has_no_machine_counts_for_nobody():
    story = Living().begin("gpu-0", "gpu-1").train(10)
    story.event("vanish", "gpu-0").wait(1.0).event("vanish", "gpu-1").wait(60.0)
    story.event("return", "gpu-1").wait(5.0)
    run = story.regroup("gpu-1").train(10).run()

    assert absent_seconds(run) == pytest.approx(60)
    assert goodput(run).elapsed_seconds == pytest.approx(20 * STEP_SECONDS + 6)


def test_the_seconds_of_a_worker_are_those_of_all_its_processes():
    story = Living().begin(*ALL).spend("gpu-0", start_up=5.0).train(4)
    story.spend("gpu-0", start_up=5.0, compute=2.0).regroup("gpu-1", "gpu-2").train(2)
    story.regroup(*ALL).spend("gpu-0", start_up=4.0).train(2).spend(
        "gpu-0", start_up=4.0, compute=1.0
    )

    (worker,) = seconds(story.run())

    assert worker.seconds == {"start_up": 9.0, "compute": 3.0}


def test_the_workers_share_is_of_steps_and_takes_off_what_was_done_again():
    story = Living().begin("gpu-0").train(6).wait(1.0).regroup("gpu-0", resume_from=4).train(6)
    story.spend("gpu-0", start_up=4.0, data=1.0, compute=4.0, exchange=1.0)

    assert goodput(story.run()).worker_share == pytest.approx((6 - 2 * STEP_SECONDS) / 10)


def test_a_history_is_read_from_the_groups_where_nobody_wrote_down_events():
    story = Living().begin(*ALL).train(10).wait(2.0).regroup("gpu-0", "gpu-1").train(10)
    story.regroup(*ALL).train(10)
    story.write("gpu-2", "leave", step=30)
    run = story.regroup("gpu-0", "gpu-1").train(10).run()

    assert [(change.cause, change.machines) for change in history(run)] == [
        (Cause.LOSS, 1),
        (Cause.JOIN, 1),
        (Cause.NOTICE, 1),
    ]


def test_the_loss_of_all_is_followed_by_their_return_when_they_were_back():
    story = Living().begin("gpu-0", "gpu-1").train(10).wait(30.0)
    run = story.form("gpu-0", "gpu-1").train(5).run()

    lost, back = history(run)

    assert (lost.cause, lost.machines, back.cause, back.machines) == (Cause.LOSS, 2, Cause.JOIN, 2)
    assert back.at - lost.at == pytest.approx(30 + STEP_SECONDS)


def test_restarting_would_have_cost_more_and_ended_at_the_first_drain():
    story = Living().begin(*ALL).train(100)
    story.write("gpu-2", "leave", step=100)
    drained_at = story.now
    run = story.wait(0.1).regroup("gpu-0", "gpu-1").train(200).run()

    estimate = restart_estimate(run)

    assert estimate.live_lost_seconds == pytest.approx(0.1)
    assert estimate.lost_seconds == pytest.approx(42.5), (
        "and 50 s are five whole checkpoints of 10 s"
    )
    assert estimate.ended_at == pytest.approx(drained_at)
    assert estimate.goodput < goodput(run).share
    assert any("42.5 s" in said for said in estimate.assumptions)


def test_no_estimate_is_made_of_a_run_that_restarted_its_workers_itself(story):
    assert restart_estimate(story.form(*ALL).train(10).run()) is None


def drawn(run, width=100):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(report_screen(build(run), run, run.lines[-1].at, width))
    return console.file.getvalue()


def test_the_screen_names_every_second_in_words_and_gives_each_worker_a_bar():
    story = Living().begin(*ALL).train(40)
    for node, compute in zip(ALL, (20.0, 19.0, 10.0), strict=True):
        story.spend(node, **dict.fromkeys(Name, 1.0) | {Name.COMPUTE: compute})

    text = drawn(story.wait(0.5).regroup("gpu-0", "gpu-1").train(5).run())

    for words in ("computing", "waiting for the lost", "work done again", "waiting to join"):
        assert words in text
    assert text.count("fashion-worker-") == 3
    heads = next(line for line in text.splitlines() if line.startswith("seconds"))
    assert heads.split() == ["seconds", "all", "worker-0", "worker-1", "worker-2", "share"]
    assert "estimated" in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_run_without_accounting_still_has_its_goodput_and_a_run_without_steps_a_screen(story):
    text = drawn(story.form(*ALL).train(10).run())

    assert "goodput" in text
    assert "computing" not in text
    assert goodput(Run()) is None
