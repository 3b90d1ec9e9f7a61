"""The runs on the volume of a stack on the twin, which `everstep down` removes with it.

A volume can have runs of several jobs: of the jobs of other stacks on the platform, and of a job that had another name
before. The state, not the stack file, names the job that was brought up: the file may have changed or be invalid.
"""

from pathlib import Path

from everstep.catalog.names import ELASTICJOB_API_VERSION, ELASTICJOB_KIND
from everstep.cli.engine.context import StackContext
from everstep.cli.engine.driver import Deployment, read_deployment
from everstep.errors import EverstepError

JOB_TYPE = f"kubernetes:{ELASTICJOB_API_VERSION}:{ELASTICJOB_KIND}"


def run_folders(context: StackContext) -> list[Path]:
    """Return the folders of all runs on the volume, by name."""
    return sorted(folder for folder in context.run_folder.parent.glob("*") if folder.is_dir())


def run_to_keep(context: StackContext) -> Path:
    """Return the run folder of the stack's job.

    Raises:
        EverstepError: the volume has no such run, or the job is unknown and there are several runs.
    """
    runs, folders = context.run_folder.parent, run_folders(context)
    job = deployed_job(read_deployment(context.workspace))
    if job is None and context.config_error is None:
        job = context.job
    if job is None and len(folders) == 1:
        return folders[0]
    if job is not None and runs / job in folders:
        return runs / job
    problem = f"there is no run of the job {job} to keep" if job else "the run to keep is unknown"
    raise EverstepError(problem, _fix(runs, folders))


def _fix(runs: Path, folders: list[Path]) -> str:
    """Return the advice for a run that is not among the folders of runs."""
    if not folders:
        return f"Nothing was changed. {runs} has no runs.\nRun the command without --keep-run."
    names = ", ".join(folder.name for folder in folders)
    return (
        f"Nothing was changed. {runs} has the runs: {names}.\n"
        "Copy the folder of the run to keep, then run the command without --keep-run."
    )


def deployed_job(deployment: Deployment | None) -> str | None:
    """Return the name of the job in the state of a stack; None if the state has none."""
    for resource in (deployment or {}).get("resources") or ():
        if resource.get("type") == JOB_TYPE and not resource.get("delete"):
            metadata = (resource.get("inputs") or {}).get("metadata") or {}
            return str(metadata["name"]) if "name" in metadata else None
    return None
