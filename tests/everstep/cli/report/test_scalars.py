"""Scalars of a run, and the name and parameters that go with them."""

from everstep.cli.report.scalars import Scalar, parameters, run_name, scalars
from tests.everstep.cli.recorded_run import RecordedRun


def test_every_step_is_one_value_of_each_curve(drill_run: RecordedRun) -> None:
    curves: dict[str, list[Scalar]] = {}
    for scalar in scalars(drill_run.run()):
        curves.setdefault(scalar.tag, []).append(scalar)

    (accuracy,) = curves.pop("evaluation/accuracy")
    (loss,) = curves.pop("evaluation/loss")
    assert (accuracy.step, accuracy.value) == (300, 0.8912)
    assert (loss.step, loss.value) == (300, 0.3)
    assert sorted(curves) == [
        "group/generation",
        "group/world_size",
        "training/learning_rate",
        "training/loss",
        "training/samples_per_second",
    ]
    for tag, curve in curves.items():
        steps = sorted(scalar.step for scalar in curve)
        assert steps == list(range(1, 301)), f"{tag}: a repeated step counts once"


def test_an_evaluation_that_was_repeated_counts_once_with_its_last_values(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form("gpu-0").train(2)
    for accuracy in (0.5, 0.75):
        recorded_run.write("gpu-0", "evaluation", step=2, epoch=1, accuracy=accuracy, loss=1.0)
        recorded_run.wait(60)

    values = [s.value for s in scalars(recorded_run.run()) if s.tag == "evaluation/accuracy"]

    assert values == [0.75]


def test_a_step_without_a_loss_is_left_out_of_that_curve(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(2)
    recorded_run.journals["fashion-worker-0"][-1]["loss"] = None

    tags = [(scalar.step, scalar.tag) for scalar in scalars(recorded_run.run())]

    assert (1, "training/loss") in tags
    assert (2, "training/loss") not in tags
    assert (2, "group/world_size") in tags


def test_a_run_keeps_its_name_while_it_grows(recorded_run: RecordedRun) -> None:
    first_record = recorded_run.form("gpu-0").train(2).run()
    longer_record = recorded_run.regroup("gpu-0", "gpu-1").train(2).finish().run()

    assert run_name(first_record) == run_name(longer_record) == "fashion-1790000000000"


def test_a_name_has_only_characters_that_every_program_accepts(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(1)
    recorded_run.journals["fashion-worker-0"][0]["job"] = "my job: a/b'c" + "x" * 100

    assert run_name(recorded_run.run()) == "my-job--a-b-c" + "x" * 51 + "-1790000000000"


def test_the_parameters_come_from_the_newest_worker(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(1)
    recorded_run.total_steps = 900
    run = recorded_run.form("gpu-1").run()

    assert parameters(run) == {
        "job": "fashion",
        "model": "resnet18",
        "dataset": "fashion-mnist",
        "dataset_size": 60_000,
        "epochs": 3,
        "global_batch": 256,
        "total_steps": 900,
    }
