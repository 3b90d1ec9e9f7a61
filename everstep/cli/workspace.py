"""Where a command works: the project's folder, the stack in it, the twin and its state.

Pulumi writes an encryption salt into the stack file it is given. The salt belongs to the state,
not to the project, and a clone must not turn dirty by being used; so the engine is handed a copy
of the stack file, made anew for every command, that lies beside the state.
"""

import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import everstep
from everstep.cli.names import unknown
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import StackConfig

DEFAULT_STACK = "local"
NAMESPACE = "elastic-job"
"""Where the program puts everything of ours in the cluster."""

PROJECT_FILE = "Pulumi.yaml"
SECTION = "everstep:"
"""What our keys in a stack file begin with."""


@dataclass(frozen=True)
class Workspace:
    """One stack of one project, and where its state is.

    Attributes:
        project: the folder with Pulumi.yaml.
        stack: the stack's name.
        twin: the twin's name.
        state: the twin's folder; gone when the twin is taken down.
        keep: the state's folder instead, where the stack runs on what is not the twin's: what it
            declared there must not be forgotten because a twin of this machine is taken down. Also
            where a stack that is not there is only previewed.
        twin_is_chosen: whether the user named the twin.
        instead: sections of the configuration, as JSON by name, that are used in the place of the
            stack file's.
    """

    project: Path
    stack: str
    twin: str
    state: Path
    keep: Path | None = None
    twin_is_chosen: bool = False
    instead: tuple[tuple[str, str], ...] = ()

    @property
    def home(self) -> Path:
        """The folder for all that is remembered of this stack."""
        return self.keep or self.state

    @property
    def lock(self) -> Path:
        """What `up` and `down` hold while they work."""
        return self.home / "up.lock"

    @property
    def stack_file(self) -> Path:
        """The stack file that the user edits."""
        return self.project / "stacks" / f"Pulumi.{self.stack}.yaml"

    @property
    def engine(self) -> Path:
        """Pulumi's side of the state: home, backend, passphrase, copies of stack files."""
        return self.home / "pulumi"

    @property
    def events(self) -> Path:
        """What was done to machines, one line each."""
        return self.state / "events.jsonl"

    @property
    def shared(self) -> Path:
        """The twin's volume as this host sees it."""
        return self.state / "shared"


def open_workspace(stack: str = DEFAULT_STACK) -> Workspace:
    """Find the project and say where a stack of it would be; its stack file may be missing.

    Raises:
        EverstepError: there is no project here.
    """
    from twin.paths import DEFAULT, state_directory

    project = find_project(Path.cwd())
    chosen = os.environ.get("EVERSTEP_TWIN")
    name = chosen or DEFAULT
    return Workspace(project, stack, name, state_directory(name), twin_is_chosen=bool(chosen))


def aside(workspace: Workspace) -> Path:
    """A folder for the stack's state beside, not in, the folder of twins."""
    folder = workspace.state.parent
    return folder.with_name(f"{folder.name}-stacks") / workspace.stack


def find_project(start: Path) -> Path:
    """The folder of the nearest Pulumi.yaml named everstep: here, above, or this package's own."""
    beside_package = Path(everstep.__file__).resolve().parent.parent
    for folder in (start, *start.parents, beside_package):
        if _is_project(folder / PROJECT_FILE):
            return folder
    raise EverstepError(
        f"no Everstep project in {start} or above it",
        "Run this in a clone of Everstep: the folder that holds Pulumi.yaml and stacks/.",
    )


def _is_project(path: Path) -> bool:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return False
    return isinstance(content, dict) and content.get("name") == "everstep"


def stacks(project: Path) -> list[str]:
    """The names of the project's stacks."""
    files = (project / "stacks").glob("Pulumi.*.yaml")
    return sorted(file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in files)


# --- the stack file -----------------------------------------------------------------------------


def read_stack_file(path: Path) -> Mapping[str, Any]:
    """Read a stack file.

    Raises:
        EverstepError: it is not readable, not YAML (with line and column) or not a mapping.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise EverstepError(f"{path} is not YAML: {_where(error)}", _repair(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise EverstepError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("config", {}), dict):
        raise EverstepError(
            f"{path} holds no stack configuration",
            "It must be a mapping with the key `config:`, as in stacks/Pulumi.local.yaml.",
        )
    return content


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be parsed"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)


def _repair(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    snippet = mark.get_snippet() if mark else None
    return f"{snippet}\nMend that line; nothing was changed." if snippet else "Mend the file."


def read_configuration(workspace: Workspace) -> "StackConfig":
    """The stack's typed configuration, checked by the project's own rules before anything starts.

    Raises:
        EverstepError: there is no such stack (with the nearest names), the file is no YAML, or it
            breaks rules; all faults are named at once.
    """
    if not workspace.stack_file.is_file():
        raise unknown("stack", workspace.stack, stacks(workspace.project))
    _find_program(workspace)
    from components.config import from_mapping
    from components.faults import ConfigurationError

    content = read_stack_file(workspace.stack_file)
    said = {
        str(key).removeprefix(SECTION): value
        for key, value in (content.get("config") or {}).items()
        if str(key).startswith(SECTION)
    }
    said |= {name: json.loads(section) for name, section in workspace.instead}
    try:
        return from_mapping(said)
    except ConfigurationError as error:
        what, _, faults = str(error).partition("\n")
        raise EverstepError(f"{workspace.stack_file}: {what}", faults) from None


def default_configuration(workspace: Workspace) -> "StackConfig":
    """The configuration of a stack file that says nothing."""
    _find_program(workspace)
    from components.config import from_mapping

    return from_mapping({})


def _find_program(workspace: Workspace) -> None:
    """Let `components` be imported: the program is no installed package."""
    if str(workspace.project) not in sys.path:
        sys.path.insert(0, str(workspace.project))


def engine_stack_file(workspace: Workspace) -> Path:
    """Where the engine's copy of the stack file lies."""
    return workspace.engine / f"Pulumi.{workspace.stack}.yaml"


def copy_stack_file(workspace: Workspace, salt: str | None, *, mended: bool = False) -> Path:
    """Make the engine's copy of the stack file, with the state's salt unless it has its own.

    Args:
        workspace: the stack.
        salt: the state's.
        mended: put an empty configuration in the place of one that cannot be read: to destroy, the
            engine needs the state and no configuration.
    """
    try:
        content, text = read_stack_file(workspace.stack_file), workspace.stack_file.read_text()
    except EverstepError:
        if not mended:
            raise
        content, text = {}, "config: {}"
    if workspace.instead and content:
        sections = {SECTION + name: json.loads(value) for name, value in workspace.instead}
        changed = {**content, "config": {**(content.get("config") or {}), **sections}}
        text = yaml.safe_dump(changed, sort_keys=False)
    if salt and not content.get("encryptionsalt"):
        text = f"{text.rstrip()}\nencryptionsalt: {salt}\n"
    target = engine_stack_file(workspace)
    write_whole(target, text)
    return target


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file so that it appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def passphrase_file(workspace: Workspace) -> Path:
    """The file with the passphrase that seals secrets in the state; made once, at random."""
    path = workspace.engine / "passphrase"
    if not path.exists():
        write_whole(path, secrets.token_urlsafe(32))
    return path
