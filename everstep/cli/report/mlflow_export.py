"""Export of a run's scalars to MLflow, with its own client.

Each run of Everstep is one MLflow run in the experiment with the job's name, identified by a tag. An export adds
the missing values, so it may be repeated during the training and after an interruption. An existing value
stays, because MLflow does not replace values.
"""

import os
import re
from typing import TYPE_CHECKING

from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.scalars import Scalar, job_name, parameters, run_name, scalars
from everstep.errors import EverstepError
from everstep.optional_packages import OptionalPackages

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

MLFLOW = OptionalPackages("trackers", "'everstep[mlflow]'")
NAME_TAG = "everstep.run"
"""Tag of an MLflow run, with the name of Everstep's run."""

DELETED = "deleted"
"""MLflow's lifecycle stage of a deleted experiment, which is still found by its name."""

BATCH = 1000
"""Metrics in one request, MLflow's limit."""

RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
"""MLflow's variable for the number of retries: with the default of 7, reporting an unreachable server takes minutes."""


def export(uri: str, run: RunRecord) -> str:
    """Add the scalars of a started run to MLflow; return the id of the MLflow run.

    Args:
        uri: tracking URI of MLflow.
        run: the run.

    Raises:
        EverstepError: the client or a package for the URI is not installed, or the server cannot be reached or refuses
            the run, or the experiment is deleted.
    """
    MLFLOW.require("mlflow", "--mlflow needs the package mlflow-skinny, which is not installed")
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    os.environ.setdefault(RETRIES, "2")
    try:
        return _export(MlflowClient(tracking_uri=uri), uri, run)
    except ModuleNotFoundError as error:
        raise EverstepError(
            f"--mlflow {_redacted(uri)} needs the package {error.name}, which is not installed",
            "Name the URI of a tracking server, or `pip install mlflow`, which can open databases.",
        ) from None
    except MlflowException as error:
        problem, _, _ = str(error).partition("\n")
        raise EverstepError(
            f"--mlflow {_redacted(uri)}: {_redacted(problem)}",
            "Name the tracking URI of a server that runs, such as http://localhost:5000. "
            "If the message is the server's response, correct what it names.",
        ) from None


def _export(client: "MlflowClient", uri: str, run: RunRecord) -> str:
    """Add the missing scalars and parameters, in requests of a size that MLflow accepts."""
    from mlflow.entities import Metric, Param

    tracked_run = find_or_create(client, uri, run)
    exported = _exported_points(client, tracked_run)
    metrics = [
        Metric(s.tag, s.value, round(s.at * 1000), s.step) for s in missing_scalars(run, exported)
    ]
    for start in range(0, len(metrics), BATCH):
        client.log_batch(tracked_run.info.run_id, metrics=metrics[start : start + BATCH])
    settings = [
        Param(name, str(value))
        for name, value in parameters(run).items()
        if name not in tracked_run.data.params
    ]
    client.log_batch(tracked_run.info.run_id, params=settings)
    if run.finished:
        client.set_terminated(tracked_run.info.run_id, "FINISHED", round(run.finished.at * 1000))
    return str(tracked_run.info.run_id)


def find_or_create(client: "MlflowClient", uri: str, run: RunRecord) -> "Run":
    """Return the MLflow run with the tag of a run, created if needed.

    Raises:
        EverstepError: the experiment with the name of the job is deleted.
    """
    experiment = client.get_experiment_by_name(job_name(run))
    if experiment and experiment.lifecycle_stage == DELETED:
        raise _deleted_experiment(uri, experiment.name, experiment.experiment_id)
    experiment_id = (
        experiment.experiment_id if experiment else client.create_experiment(job_name(run))
    )
    name = run_name(run)
    matches = client.search_runs([experiment_id], f"tags.`{NAME_TAG}` = '{name}'", max_results=1)
    if matches:
        return matches[0]
    started_at = round(run.starts[0].at * 1000)
    return client.create_run(experiment_id, started_at, tags={NAME_TAG: name}, run_name=name)


def _deleted_experiment(uri: str, name: str, experiment_id: str) -> EverstepError:
    command = f"MLFLOW_TRACKING_URI={_redacted(uri)} mlflow experiments"
    return EverstepError(
        f"--mlflow {_redacted(uri)}: the experiment {name!r}, with the id {experiment_id}, is deleted; MLflow adds no "
        "run to it, and reserves its name",
        f"Restore it: `{command} restore --experiment-id {experiment_id}`. For a new experiment of this name, then "
        f"rename the restored one: `{command} rename --experiment-id {experiment_id} --new-name NAME`.",
    )


def _exported_points(client: "MlflowClient", tracked_run: "Run") -> set[tuple[str, int]]:
    """Return the curves and steps that an MLflow run has."""
    return {
        (tag, metric.step)
        for tag in tracked_run.data.metrics
        for metric in client.get_metric_history(tracked_run.info.run_id, tag)
    }


def missing_scalars(run: RunRecord, exported: set[tuple[str, int]]) -> list[Scalar]:
    """Return the scalars of a run whose curve and step were not exported yet."""
    return [scalar for scalar in scalars(run) if (scalar.tag, scalar.step) not in exported]


def _redacted(text: str) -> str:
    """Return a string without the users and passwords of its URIs."""
    return re.sub(r"//[^/@\s]+@", "//***@", text)
