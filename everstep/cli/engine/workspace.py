"""The workspace of a command: the project's folder, the stack in it, the twin and its state."""

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import yaml

from everstep.errors import EverstepError
from everstep.files import write_atomically
from everstep.resources import PACKAGES

DEFAULT_STACK = "local"
PROJECT_FILE = "Pulumi.yaml"


@dataclass(frozen=True)
class Workspace:
    """One stack of one project, and the location of its state.

    Attributes:
        project: folder with Pulumi.yaml.
        stack: name of the stack.
        twin: name of the twin.
        state: folder of the twin; removed with the twin.
        separate_state: folder of the stack's state outside the twin's folder. Set for a stack that does not
            run on the twin, whose state must outlive the twin, and for a preview of a stack that does not
            exist. None: the state is in the twin's folder.
        twin_is_chosen: True if the user named the twin.
        overrides: configuration sections, as JSON by name, that replace sections of the stack file.
    """

    project: Path
    stack: str
    twin: str
    state: Path
    separate_state: Path | None = None
    twin_is_chosen: bool = False
    overrides: tuple[tuple[str, str], ...] = ()

    @property
    def home(self) -> Path:
        """Folder of everything that is stored for this stack."""
        return self.separate_state or self.state

    @property
    def lock(self) -> Path:
        """Lock file of `up`, `down` and, for pushes to the twin, `images push`."""
        return self.home / "up.lock"

    @property
    def stack_file(self) -> Path:
        """Stack file that the user edits."""
        return self.project / "stacks" / f"Pulumi.{self.stack}.yaml"

    @property
    def engine(self) -> Path:
        """Folder of Pulumi: home, backend, passphrase, copies of stack files."""
        return self.home / "pulumi"

    @property
    def events(self) -> Path:
        """File with one line for each action on a machine."""
        return self.home / "events.jsonl"

    @property
    def machines(self) -> Path:
        """File with the GPU machines that commands have observed."""
        return self.home / "machines.json"


def open_workspace(stack: str = DEFAULT_STACK) -> Workspace:
    """Return a stack's workspace in the nearest project; its stack file may be missing.

    Raises:
        EverstepError: there is no project here, or the current folder was deleted.
    """
    from cloudtwin.facade import DEFAULT_TWIN, state_directory

    try:
        folder = Path.cwd()
    except FileNotFoundError:
        raise EverstepError(
            "the current folder was deleted",
            "Change to the folder of the project, even if it exists again.",
        ) from None
    project = find_project(folder)
    twin_name = os.environ.get("EVERSTEP_TWIN")
    name = twin_name or DEFAULT_TWIN
    return Workspace(project, stack, name, state_directory(name), twin_is_chosen=bool(twin_name))


def state_outside_twins(workspace: Workspace) -> Path:
    """Return the folder for the stack's state next to the folder of twins."""
    folder = workspace.state.parent
    return folder.with_name(f"{folder.name}-stacks") / workspace.stack


def find_project(start: Path) -> Path:
    """Return the folder of the nearest Pulumi.yaml of a project named everstep: `start`, one above it, or this clone.

    Raises:
        EverstepError: there is no project.
    """
    for folder in (start, *start.parents, PACKAGES):
        if is_project(folder):
            return folder
    raise EverstepError(
        f"no Everstep project in {start} or above it",
        "`everstep init DIR` writes one; run this in its folder, which holds Pulumi.yaml and stacks/.",
    )


def is_project(folder: Path) -> bool:
    """Return True if a folder has the Pulumi.yaml of a project named everstep."""
    try:
        content = yaml.safe_load((folder / PROJECT_FILE).read_text())
    except (OSError, yaml.YAMLError, ValueError):  # not UTF-8, or a date that does not exist
        return False
    return isinstance(content, dict) and content.get("name") == "everstep"


def passphrase_file(workspace: Workspace) -> Path:
    """Return the file with the passphrase for secrets in the state; create a random one if there is none."""
    path = workspace.engine / "passphrase"
    if path.exists():
        return path
    own_file = path.with_name(f"passphrase.{os.getpid()}")
    write_atomically(own_file, secrets.token_urlsafe(32))
    with contextlib.suppress(FileExistsError):  # another command was faster: use its passphrase
        path.hardlink_to(own_file)
    own_file.unlink()
    return path
