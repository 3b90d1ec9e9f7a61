"""Stack files: reading, checking, and the copy that the engine works with.

Pulumi writes an encryption salt into the stack file that it is given. The salt belongs to the state, not to
the project, and using a project must not modify it. So the engine gets a copy of the stack file, which is
written again for every command and is kept next to the state. On a real cloud, where the login is the user's own,
Pulumi uses the stack file itself, except to destroy.
"""

import json
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from everstep.cli.engine.workspace import Workspace
from everstep.cli.project import stack_names
from everstep.errors import EverstepError
from everstep.files import write_atomically
from everstep.spelling import unknown_name

if TYPE_CHECKING:
    from components.config import StackConfig

PREFIX = "everstep:"
"""Prefix of Everstep's keys in a stack file."""
CLOUD_KEY = re.compile(r"^(?:secretsprovider|encryptedkey):.*\n?", re.MULTILINE)
"""The lines about the key of the stack's secrets in a cloud, in a stack file."""

STACK_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""Names of stacks that Pulumi allows; it checks them only after machines are started."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses duplicate keys in a mapping; PyYAML would use the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002  as in the base class
        """Return a mapping.

        Raises:
            MarkedYAMLError: a key occurs twice.
        """
        lines: dict[Any, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                continue
            name, line = key.value, key.start_mark.line + 1
            if name in lines:
                problem = f"the key {name!r} already occurs in line {lines[name]}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            lines[name] = line
        return super().construct_mapping(node, deep=deep)


def read_stack_file(path: Path) -> Mapping[str, Any]:
    """Return the content of a stack file.

    Raises:
        EverstepError: the file is not readable, not YAML (with line and column) or not a mapping, or it has a value
            that YAML cannot convert.
    """
    try:
        content = yaml.load(path.read_text(), Loader=_UniqueKeyLoader)  # noqa: S506  a SafeLoader
    except yaml.YAMLError as error:
        raise EverstepError(f"{path} is not YAML: {_location(error)}", _fix(error)) from None
    except RecursionError:
        raise EverstepError(f"{path} is nested too deeply", "Correct the file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise EverstepError(
            f"{path} cannot be read: {error}", "Make it readable; it must be UTF-8 text."
        ) from None
    except ValueError as error:  # such as an unquoted date with month 13
        raise EverstepError(
            f"{path} has a value that YAML cannot convert: {error}",
            "Correct the value, such as a date that does not exist, or write it in quotes.",
        ) from None
    if not isinstance(content, dict) or not isinstance(content.get("config", {}), dict):
        raise EverstepError(
            f"{path} is not a stack configuration",
            "It must be a mapping with the key `config:`, as in stacks/Pulumi.local.yaml.",
        )
    return content


def _location(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be parsed"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)


def _fix(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    snippet = mark.get_snippet() if mark else None
    return f"{snippet}\nCorrect that line; nothing was changed." if snippet else "Correct the file."


def read_config(workspace: Workspace) -> "StackConfig":
    """Return the stack's typed configuration, checked by the rules of the program.

    Raises:
        EverstepError: the stack does not exist (with similar names) or has a name that Pulumi does not allow, its
            file cannot be read or is not YAML, or it breaks rules; all faults are reported together.
    """
    file, names = workspace.stack_file, stack_names(workspace.stack_file.parent)
    if workspace.stack in names and not file.is_file():
        raise EverstepError(
            f"{file} is not a file", "It is a folder, or a link to a file that does not exist."
        )
    if not file.is_file():
        raise unknown_name("stack", workspace.stack, names)
    if not STACK_NAME.fullmatch(workspace.stack):
        raise EverstepError(
            f"Pulumi does not allow the name {workspace.stack!r} of a stack",
            f"Rename {file}: the part between `Pulumi.` and `.yaml` has at most 100 letters of ASCII, digits, "
            "hyphens, underscores and periods.",
        )
    _make_program_importable(workspace)
    from components.config import from_mapping
    from components.config.faults import ConfigurationError

    content = read_stack_file(file)
    config = {
        str(key).removeprefix(PREFIX): value
        for key, value in (content.get("config") or {}).items()
        if str(key).startswith(PREFIX)
    }
    config |= {name: json.loads(section) for name, section in workspace.overrides}
    try:
        return from_mapping(config)
    except ConfigurationError as error:
        raise _refusal(workspace, error) from None


def check_deadline(workspace: Workspace, config: "StackConfig") -> None:
    """Check that the deadline of a stack that is to be deployed has not passed.

    The program checks it, too, but only after tools are built and machines are started.

    Raises:
        EverstepError: it has passed.
    """
    from components.config import check_deadline as check
    from components.config.faults import ConfigurationError

    try:
        check(config, datetime.now(UTC))
    except ConfigurationError as error:
        raise _refusal(workspace, error) from None


def _refusal(workspace: Workspace, error: Exception) -> EverstepError:
    """Return the error of a stack file that breaks rules."""
    summary, _, faults = str(error).partition("\n")
    return EverstepError(f"{workspace.stack_file}: {summary}", faults)


def default_config(workspace: Workspace) -> "StackConfig":
    """Return the configuration of an empty stack file."""
    _make_program_importable(workspace)
    from components.config import from_mapping

    return from_mapping({})


def _make_program_importable(workspace: Workspace) -> None:
    """Add the project to the import path: a clone has `components` there, a wheel installs it."""
    if str(workspace.project) not in sys.path:
        sys.path.insert(0, str(workspace.project))


def copy_path(workspace: Workspace) -> Path:
    """Return the path of the engine's copy of the stack file."""
    return workspace.engine / f"Pulumi.{workspace.stack}.yaml"


def copy_stack_file(workspace: Workspace, salt: str | None, *, allow_invalid: bool = False) -> Path:
    """Write the engine's copy of the stack file, and return its path.

    Args:
        workspace: the stack.
        salt: the state's encryption salt, added unless the stack file has its own. A state with a salt does not use
            the key in a cloud that the stack file names: a twin has no login there.
        allow_invalid: whether to use an empty configuration in place of a stack file that cannot be read. To destroy
            a stack, the engine needs the state and no configuration.

    Raises:
        EverstepError: the stack file cannot be read, and `allow_invalid` is not set.
    """
    try:
        content, text = read_stack_file(workspace.stack_file), workspace.stack_file.read_text()
    except EverstepError:
        if not allow_invalid:
            raise
        content, text = {}, "config: {}"
    if workspace.overrides and content:
        sections = {PREFIX + name: json.loads(value) for name, value in workspace.overrides}
        overridden = {**content, "config": {**(content.get("config") or {}), **sections}}
        text = yaml.safe_dump(overridden, sort_keys=False)
    if salt:
        text = CLOUD_KEY.sub("", text)
    if salt and not content.get("encryptionsalt"):
        text = f"{text.rstrip()}\nencryptionsalt: {salt}\n"
    copy = copy_path(workspace)
    write_atomically(copy, text)
    return copy
