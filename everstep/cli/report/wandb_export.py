"""Export of a run's scalars to Weights & Biases, with its own client.

The name of Everstep's run is the ID of the run in W&B, so a later export resumes it. W&B accepts rows only in the
order of their steps: an export continues after the last step that W&B has. Without a connection (`WANDB_MODE=offline`)
each export writes all rows.
"""

from collections.abc import Iterator, Mapping

from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.scalars import job_name, parameters, run_name, scalars
from everstep.errors import EverstepError
from everstep.optional_packages import OptionalPackages

WANDB = OptionalPackages("trackers", "'everstep[wandb]'")
TIME = "_timestamp"
"""Key of a row's Unix time in W&B."""


def export(project: str, run: RunRecord) -> str:
    """Export the scalars of a run to W&B; return the URL of the W&B run, or its folder if offline.

    Args:
        project: project, or entity and project with a slash between them.
        run: the run; at least one worker has started.

    Raises:
        EverstepError: the client is not installed or not logged in, or W&B refuses the run.
    """
    WANDB.require("wandb", "--wandb needs the package wandb, which is not installed")
    import wandb

    try:
        return _export(project, run)
    except wandb.Error as error:
        problem, _, _ = str(error).strip().partition("\n")
        raise EverstepError(
            f"--wandb {project}: {problem}",
            "Run `wandb login` first, or set WANDB_MODE=offline and run `wandb sync` later.",
        ) from None


def _export(project: str, run: RunRecord) -> str:
    import wandb

    entity, _, project_name = project.rpartition("/")
    # This machine does not train: its metrics, packages and program do not belong in the run.
    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_code=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    with wandb.init(
        entity=entity or None,
        project=project_name,
        id=run_name(run),
        name=run_name(run),
        group=job_name(run),
        resume="allow",
        config=dict(parameters(run)),
        allow_val_change=True,
        settings=settings,
    ) as wandb_run:
        for step, row in rows(run, wandb_run.starting_step):
            wandb_run.log(dict(row), step=step)
        return str(wandb_run.settings.sync_dir if wandb_run.offline else wandb_run.url)


def rows(run: RunRecord, first_step: int) -> Iterator[tuple[int, Mapping[str, float]]]:
    """Yield the values of each step from `first_step`, in order.

    The last step of a run that has not finished is left out: its evaluation may follow, and W&B would refuse it.
    """
    steps: dict[int, dict[str, float]] = {}
    for scalar in scalars(run):
        steps.setdefault(scalar.step, {TIME: scalar.at})[scalar.tag] = scalar.value
    sorted_steps = sorted(steps.items())
    if not run.finished:
        sorted_steps = sorted_steps[:-1]
    yield from ((step, row) for step, row in sorted_steps if step >= first_step)
