"""`everstep report --mlflow`: the real client and a store in SQLite, where they are installed."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everstep.cli.report import mlflow_export
from everstep.cli.report.mlflow_export import export, find_or_create
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.scalars import scalars
from everstep.errors import EverstepError
from tests.everstep.cli.recorded_run import RecordedRun

pytestmark = pytest.mark.filterwarnings("ignore")  # raised by the client's own imports


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URI of an empty store."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    pytest.importorskip("mlflow", reason="`make test-trackers` installs mlflow-skinny")
    pytest.importorskip("sqlalchemy", reason="`make test-trackers` installs sqlalchemy")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def runs(store: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    (experiment,) = client.search_experiments(filter_string="name = 'fashion'")
    return list(client.search_runs([experiment.experiment_id]))


def metric_points(store: str) -> list[tuple[str, int, int, float]]:
    """Return all metrics of the only run: curve, step, time in milliseconds, value."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    (run,) = runs(store)
    return sorted(
        (metric.key, metric.step, metric.timestamp, metric.value)
        for key in run.data.metrics
        for metric in client.get_metric_history(run.info.run_id, key)
    )


def expected_metric_points(run: RunRecord) -> list[tuple[str, int, int, float]]:
    return sorted((s.tag, s.step, round(s.at * 1000), s.value) for s in scalars(run))


def test_a_run_has_every_scalar_and_a_second_export_adds_none(
    store: str, drill_run: RecordedRun
) -> None:
    run_id = export(store, drill_run.run())
    assert metric_points(store) == expected_metric_points(drill_run.run())

    assert export(store, drill_run.run()) == run_id, "the run is found again"

    assert metric_points(store) == expected_metric_points(drill_run.run())


def test_a_longer_run_continues_where_the_first_export_ended(
    store: str, recorded_run: RecordedRun
) -> None:
    export(store, recorded_run.form("gpu-0").train(3).run())
    (unfinished_run,) = runs(store)

    export(store, recorded_run.train(3).finish().run())

    assert metric_points(store) == expected_metric_points(recorded_run.run())
    (run,) = runs(store)
    assert (unfinished_run.info.status, run.info.status) == ("RUNNING", "FINISHED")
    assert run.info.start_time == 1_790_000_000_000
    assert run.info.end_time == 1_790_000_003_000
    assert run.data.params["model"] == "resnet18"


def test_an_interrupted_export_is_completed_by_the_next(
    store: str, recorded_run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    run = recorded_run.form("gpu-0").train(5).run()
    send, sent_batches = MlflowClient.log_batch, list[object]()

    def send_or_interrupt(client: Any, run_id: str, **values: Any) -> None:
        if len(sent_batches) == 2:
            raise KeyboardInterrupt
        sent_batches.append(values)
        send(client, run_id, **values)

    with monkeypatch.context() as patch:
        patch.setattr(mlflow_export, "BATCH", 4)
        patch.setattr(MlflowClient, "log_batch", send_or_interrupt)
        with pytest.raises(KeyboardInterrupt):
            export(store, run)
    assert 0 < len(metric_points(store)) < len(expected_metric_points(run))

    export(store, run)

    assert metric_points(store) == expected_metric_points(run)


def test_two_runs_of_a_job_are_two_runs_of_one_experiment(
    store: str, recorded_run: RecordedRun
) -> None:
    export(store, recorded_run.form("gpu-0").train(1).run())
    second_run = RecordedRun(now=1_790_000_001.0).form("gpu-0").train(1).run()

    export(store, second_run)

    names = {run.data.tags["everstep.run"] for run in runs(store)}
    assert names == {"fashion-1790000000000", "fashion-1790000001000"}


def test_a_step_that_is_repeated_after_an_export_keeps_its_first_value(
    store: str, recorded_run: RecordedRun
) -> None:
    export(store, recorded_run.form("gpu-0").train(3).run())
    first_metric_points = metric_points(store)
    recorded_run.total_steps = 900  # MLflow refuses to change a parameter

    export(store, recorded_run.form("gpu-1", resume_from=1).train(3).run())

    second_metric_points = metric_points(store)
    assert set(first_metric_points) < set(second_metric_points)
    assert [value[:2] for value in second_metric_points] == [
        value[:2] for value in expected_metric_points(recorded_run.run())
    ]


class DeletedExperiment:
    """A client of a store in which the experiment of the job is deleted: MLflow finds it by name, too."""

    def get_experiment_by_name(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, experiment_id="7", lifecycle_stage="deleted")


def test_a_deleted_experiment_is_an_error_with_the_command_that_restores_it(
    recorded_run: RecordedRun,
) -> None:
    client: Any = DeletedExperiment()

    with pytest.raises(EverstepError, match="experiment 'fashion', with the id 7, is deleted") as e:
        find_or_create(client, "http://user:hunter2@host:5000", recorded_run.form("gpu-0").run())

    assert (
        "`MLFLOW_TRACKING_URI=http://***@host:5000 mlflow experiments restore --experiment-id 7`"
        in e.value.fix
    )
    assert "mlflow experiments rename --experiment-id 7 --new-name NAME" in e.value.fix


def test_an_export_into_a_deleted_experiment_continues_once_it_is_restored(
    store: str, recorded_run: RecordedRun
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    run = recorded_run.form("gpu-0").train(1).run()
    export(store, run)
    experiment_id = client.get_experiment_by_name("fashion").experiment_id
    client.delete_experiment(experiment_id)

    with pytest.raises(EverstepError, match=f"with the id {experiment_id}, is deleted"):
        export(store, run)

    client.restore_experiment(experiment_id)
    export(store, run)
    assert metric_points(store) == expected_metric_points(run)


@pytest.mark.usefixtures("store")
def test_an_unreachable_server_is_an_error_without_its_password(
    recorded_run: RecordedRun, refusing_port: int
) -> None:
    run = recorded_run.form("gpu-0").train(1).run()

    with pytest.raises(EverstepError, match=r"--mlflow http://\*\*\*@127") as error:
        export(f"http://user:hunter2@127.0.0.1:{refusing_port}", run)

    assert "hunter2" not in str(error.value)


def test_without_the_client_the_error_has_the_command_that_installs_it(
    recorded_run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(EverstepError, match=r"needs the package mlflow-skinny.*\n.*make trackers"):
        export("http://127.0.0.1", recorded_run.form("gpu-0").run())
