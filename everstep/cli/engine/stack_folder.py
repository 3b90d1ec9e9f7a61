"""The folder of a stack's state: it must be Everstep's, and it belongs to one project.

Stacks of two projects may have the same name and thus the same folder. Pulumi would then plan and destroy the resources
of the other project, so that only the project that brought the stack up may change it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloudtwin.facade import claim_folder, has_foreign_files

from everstep.cli.console import warn
from everstep.cli.engine.file_lock import exclusive_lock
from everstep.cli.engine.workspace import Workspace, is_project
from everstep.errors import EverstepError
from everstep.files import write_atomically

PROJECT_RECORD = "project"
"""File in the folder of a stack's state, with the path of the project."""
ADOPT_VARIABLE = "EVERSTEP_ADOPT_STATE"
"""Variable with which a copy of a project continues the stacks of the original."""


@contextmanager
def locked_stack(
    workspace: Workspace, command: str, fix: str, *, record_project: bool = False
) -> Iterator[None]:
    """Lock a stack while a command changes it, and mark its folder as Everstep's.

    Args:
        workspace: the stack.
        command: command of this process, for the error of another one.
        fix: advice for the user while another process holds the lock.
        record_project: True if the stack belongs to this project from now on. A stack in a real cloud has its state in
            the user's backend and belongs to none.

    Raises:
        EverstepError: the folder has files of the user, another project has the stack, or another process the lock.
    """
    require_own_folder(workspace, may_have_data=record_project)
    require_own_project(workspace)
    with exclusive_lock(workspace.lock, command, fix):
        claim(workspace, may_have_data=record_project)
        require_own_project(workspace)
        if record_project:
            _record(workspace)
        yield


def claim(workspace: Workspace, *, may_have_data: bool = False) -> None:
    """Create the folder of the stack's state and mark it as Everstep's.

    Args:
        workspace: the stack.
        may_have_data: True if the data of the twin's volume may exist before the stack.

    Raises:
        EverstepError: it has files of the user.
    """
    require_own_folder(workspace, may_have_data=may_have_data)
    claim_folder(workspace.home, may_have_data=may_have_data)


def require_own_folder(workspace: Workspace, *, may_have_data: bool = False) -> None:
    """Check that the folder of the stack's state is missing, empty or Everstep's; the arguments are as for `claim`.

    Raises:
        EverstepError: it has files of the user.
    """
    if has_foreign_files(workspace.home, may_have_data=may_have_data):
        raise EverstepError(
            f"{workspace.home} has files that are not Everstep's, so it cannot hold the state of a stack",
            "Nothing was changed. Set EVERSTEP_STATE to a folder that only Everstep uses, or move these files.",
        )


def require_own_project(workspace: Workspace) -> None:
    """Check that no other project has the stack; warn if the project was moved.

    Raises:
        EverstepError: another project has brought the stack up.
    """
    recorded, project = _recorded_project(workspace), workspace.project.resolve()
    if recorded in (None, project):
        return
    if not is_project(recorded):
        warn(f"{recorded} no longer exists: {project} continues its stack {workspace.stack}.")
        return
    if os.environ.get(ADOPT_VARIABLE):
        warn(f"{project} continues the stack {workspace.stack} of {recorded}.")
        return
    raise EverstepError(
        f"the stack {workspace.stack} of another project, {recorded}, has its state in {workspace.home}; "
        f"{project} must not change it",
        f"Nothing was changed. To change that stack: run the command in {recorded}.\n"
        "For a stack of this project: set EVERSTEP_STATE to a folder of its own.\n"
        f"If this project is a copy that continues the stack: set {ADOPT_VARIABLE}=1.",
    )


def _recorded_project(workspace: Workspace) -> Path | None:
    """Return the project that brought the stack up; None if none or an earlier version did."""
    try:
        return Path((workspace.home / PROJECT_RECORD).read_text().strip())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _record(workspace: Workspace) -> None:
    project = workspace.project.resolve()
    if _recorded_project(workspace) != project:
        write_atomically(workspace.home / PROJECT_RECORD, f"{project}\n")
