"""The first phase of a new stack: an update whose program declares only the registry, to which images are pushed.

An update deletes every resource of the state that its program does not declare. The phase is therefore refused for a
stack that has more than the registry: its cluster and its data would be deleted.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from enum import StrEnum

import pulumi

VARIABLE = "EVERSTEP_PART"
SHOWN_TYPES = 5
"""Maximum number of resource types that the error lists; a deployed stack has dozens."""

DECLARED = (
    "pulumi:",
    "everstep:",
    "aws:ecr/",
    "azure-native:containerregistry:",
    "azure-native:network:",
    "azure-native:resources:",
)
"""Type prefixes of the resources that the phase declares: the registry, and what it needs."""


class Part(StrEnum):
    """The part of a stack that the program declares; the value of EVERSTEP_PART."""

    WHOLE = ""
    REGISTRY = "registry"
    TARGETED_REGISTRY = "registry-targets"
    """The registry, in an update of `everstep up --target registry`, whose `--target` options keep the rest."""


def declared_part() -> Part:
    """Return the part that EVERSTEP_PART names.

    Raises:
        RunError: there is no such part.
    """
    value = os.environ.get(VARIABLE, "")
    try:
        return Part(value)
    except ValueError:
        raise pulumi.RunError(
            f"{VARIABLE}={value} is not a part of a stack. Set it to registry, or unset it for the whole stack."
        ) from None


def check_new_stack() -> None:
    """Check that the registry phase would delete nothing of the selected stack.

    Raises:
        RunError: the stack has more than its registry, or its state cannot be read; nothing is declared then.
    """
    stack = pulumi.get_stack()
    others = foreign_types(_state_types(stack))
    if not others:
        return
    more = "" if len(others) <= SHOWN_TYPES else f" and {len(others) - SHOWN_TYPES} more types"
    raise pulumi.RunError(
        f"{VARIABLE}=registry is for a new stack. The stack {stack} has more than its registry: "
        f"{', '.join(others[:SHOWN_TYPES])}{more}. An update of the registry alone would delete all of it. Run "
        f"`pulumi up` without {VARIABLE}, or `everstep up --target registry --stack {stack}`, which keeps the rest."
    )


def foreign_types(types: Iterable[str]) -> list[str]:
    """Return the types of resources that the registry phase does not declare, sorted."""
    return sorted({name for name in types if not name.startswith(DECLARED)})


def _state_types(stack: str) -> list[str]:
    """Return the types of the resources in the state of a stack.

    The SDK can read only the outputs of a stack, which are missing after a failed update.

    Raises:
        RunError: `pulumi` is not on PATH, or it cannot read the state.
    """
    program = shutil.which("pulumi")
    if program is None:
        raise pulumi.RunError(
            f"{VARIABLE}=registry: `pulumi` is not on PATH, so the state of the stack {stack} cannot be checked. "
            "Add its folder to PATH."
        )
    path = f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"
    process = subprocess.run(
        [program, "stack", "export", "--stack", path, "--non-interactive"],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise pulumi.RunError(
            f"{VARIABLE}=registry: the state of the stack {stack} cannot be checked: "
            f"{process.stderr.strip()}"
        )
    deployment = json.loads(process.stdout).get("deployment") or {}
    return [str(resource.get("type")) for resource in deployment.get("resources") or ()]
