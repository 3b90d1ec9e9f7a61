"""Projects that `everstep init` writes: their files, and the next steps.

The program and the stack files come from Everstep's repository, so a project behaves like a clone of it.
Components and manifests are not copied: they come from the installed distribution.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from everstep.errors import EverstepError
from everstep.files import READABLE, write_atomically
from everstep.resources import data_path
from everstep.spelling import unknown_name

EXTRAS = {"aks": "azure", "eks": "aws"}
"""Extra of the distribution that a stack needs in addition to `local`, by the first word of the stack's name."""

GITIGNORE = "__pycache__/\n.venv/\n"

README = """# Elastic training on spot GPUs with Everstep

* `__main__.py`: the Pulumi program, which declares the components of Everstep.
* `stacks/`: one stack file for each environment. All keys: docs/configuration.md of Everstep.

## Commands

```
{steps}
```

`everstep doctor` checks what is missing on this machine; `everstep --help` lists all commands. Cloud
stacks also run on this machine, without an account: add `--twin`.
"""


def write_project(folder: Path, stacks: Sequence[str], *, force: bool) -> list[Path]:
    """Write a project and return the paths of its files.

    Args:
        folder: folder of the project; created if needed.
        stacks: names of stacks to include.
        force: whether to overwrite existing files.

    Raises:
        EverstepError: a stack does not exist, a file exists and `force` is not set, or the folder is not writable or
            has a name that is not UTF-8.
    """
    if not is_utf8(folder):
        raise EverstepError(
            f"the name of the folder {str(folder)!a} is not UTF-8",
            "Name another folder: the README of the project has its name.",
        )
    files = {folder / name: text for name, text in project_files(folder, stacks).items()}
    existing = [str(path) for path in files if path.exists()]
    if existing and not force:
        raise EverstepError(
            f"{folder} has files that would be overwritten: {', '.join(existing)}",
            "Choose another folder, or overwrite them with --force.",
        )
    for path, text in files.items():
        try:
            write_atomically(path, text, READABLE)
        except OSError as error:
            raise EverstepError(
                f"{path} cannot be written: {error.strerror or error}",
                "Name a folder that you may write to; it is created if needed.",
            ) from None
    return list(files)


def is_utf8(path: Path) -> bool:
    """Return True if the name of a path is valid UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def project_files(folder: Path, stacks: Sequence[str]) -> Mapping[str, str]:
    """Return the texts of a project's files by path in the project.

    Raises:
        EverstepError: a stack does not exist.
    """
    names = known_stacks()
    for stack in stacks:
        if stack not in names:
            raise unknown_name("stack", stack, names)
    copied_files = [
        "Pulumi.yaml",
        "__main__.py",
        *(f"stacks/Pulumi.{name}.yaml" for name in stacks),
    ]
    return {
        **{name: data_path(name).read_text() for name in copied_files},
        "README.md": README.format(steps=next_steps(folder, stacks)),
        ".gitignore": GITIGNORE,
    }


def known_stacks() -> list[str]:
    """Return the names of the stacks that a project can include."""
    return stack_names(data_path("stacks"))


def stack_names(folder: Path) -> list[str]:
    """Return the names of the stacks whose files are in a folder, sorted."""
    files = folder.glob("Pulumi.*.yaml")
    return sorted(file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in files)


def next_steps(folder: Path, stacks: Sequence[str]) -> str:
    """Return the commands to run after `everstep init`, one per line."""
    path = f"./{folder}" if str(folder).startswith("-") else str(folder)  # not an option of cd
    lines = [f"cd {shlex.quote(path)}"]
    for stack in stacks:
        extra = EXTRAS.get(stack.partition("-")[0])
        if extra is None:
            lines += [
                "everstep up      # trains on this machine",
                "everstep down    # removes everything",
            ]
        else:
            lines += [
                f"pip install 'everstep[local,{extra}]'",
                f"everstep preview --stack {stack} --twin    # on this machine, without an account",
                "# in your account: `everstep up` and `pulumi up` use the same backend and the same stack",
                "pulumi login URL",
                f"pulumi stack init {stack} --secrets-provider PROVIDER",
                f"everstep doctor --stack {stack}",
                f"everstep up --stack {stack}",
                f"everstep down --stack {stack}",
            ]
    return "\n".join(lines)
