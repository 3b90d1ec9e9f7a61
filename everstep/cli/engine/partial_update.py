"""Parts of a stack that can be brought up before the rest: `everstep up --target registry`.

Pulumi's own `--target` fails unless the parents, the provider and the dependencies of a resource are targets, too;
here a preview determines them.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from everstep.cli.engine.driver import Engine
from everstep.cli.engine.events import ResourceCounts
from everstep.errors import EverstepError
from everstep.progress import Progress
from everstep.spelling import unknown_name

VARIABLE = "EVERSTEP_PART"
"""Variable that makes the program declare only a part: other providers would need resources that are not targets."""

TARGETED_SUFFIX = "-targets"
"""Suffix of the variable's value in an update with targets, which the program accepts for a stack with other parts."""

UNCHANGED = "same"
"""Operation of a resource that an update leaves as it is."""

PROTECTED = "because it is protected"
"""Text of Pulumi's error for a protected resource that a plan deletes."""

PARTS: Mapping[str, tuple[str, ...]] = {
    "registry": (
        "aws:ecr/repository:Repository",
        "aws:ecr/lifecyclePolicy:LifecyclePolicy",
        "azure-native:containerregistry:Registry",
    ),
}
"""Part of a stack -> types of its resources."""


def check_part(part: str) -> None:
    """Check the name of a part.

    Raises:
        EverstepError: there is no such part; the error lists all parts.
    """
    if part not in PARTS:
        raise unknown_name("part of a stack", part, PARTS)


def bring_up_part(engine: Engine, part: str, progress: Progress) -> ResourceCounts:
    """Bring up a part of a stack and nothing else; existing resources stay.

    Raises:
        EverstepError: the stack declares no such part, or its preview or the update fails.
    """
    environment = {**engine.environment, VARIABLE: part + TARGETED_SUFFIX}
    part_engine = replace(engine, environment=environment)
    targets = targets_of(part_engine, part, progress)
    # An update without targets would update the whole stack.
    return part_engine.up(progress, targets) if targets else ResourceCounts()


def targets_of(engine: Engine, part: str, progress: Progress) -> list[str]:
    """Return the URNs of the changed resources among a part's resources and all resources that they need.

    An unchanged target would be an error: Pulumi deletes the resources that depend on a target and that the program
    does not declare.

    Raises:
        EverstepError: the stack declares no such part, or its preview fails.
    """
    with progress.step(
        f"Finding the resources that the {part} of stack {engine.workspace.stack} needs"
    ):
        plan = _plan(engine)
    steps = plan.get("steps", ())
    states = [step.get("newState") or {} for step in steps]
    urns = closure([state for state in states if state.get("urn")], PARTS[part])
    if not urns:
        raise EverstepError(
            f"stack {engine.workspace.stack} declares no {part}",
            f"Set everstep:{part}.kind in {engine.workspace.stack_file} to ecr or acr.",
        )
    unchanged = {step["urn"] for step in steps if step["op"] == UNCHANGED}
    return [urn for urn in urns if urn not in unchanged]


def _plan(engine: Engine) -> Mapping[str, Any]:
    """Return the plan of an update without targets, which would delete everything outside the part.

    Raises:
        EverstepError: the preview failed for another reason than that these resources are protected.
    """
    command = engine.command(["preview", "--json", "--suppress-progress", "--show-sames"])
    process = subprocess.run(
        command, env=engine.environment, capture_output=True, text=True, check=False
    )
    try:
        plan: Mapping[str, Any] = json.loads(process.stdout)
    except ValueError:
        plan = {}
    if process.returncode and not fails_on_protection_only(plan):
        output = (process.stderr or process.stdout).strip()
        raise EverstepError(f"the preview of stack {engine.workspace.stack} failed", output)
    return plan


def fails_on_protection_only(plan: Mapping[str, Any]) -> bool:
    """Return True if a preview failed only because it would delete protected resources; with targets, they stay."""
    errors = [
        str(diagnostic.get("message"))
        for diagnostic in plan.get("diagnostics", ())
        if diagnostic.get("severity") == "error" and diagnostic.get("urn")
    ]
    return bool(errors) and all(PROTECTED in error for error in errors)


def closure(states: Sequence[Mapping[str, Any]], types: Sequence[str]) -> list[str]:
    """Return the URNs of all resources of these types, their parents, providers and dependencies.

    Args:
        states: resources as in Pulumi's state.
        types: type tokens.
    """
    by_urn = {str(state["urn"]): state for state in states}
    pending = [urn for urn, state in by_urn.items() if state.get("type") in types]
    included: dict[str, None] = {}
    while pending:
        urn = pending.pop()
        if urn in included or urn not in by_urn:
            continue
        included[urn] = None
        state = by_urn[urn]
        provider = str(state.get("provider", "")).rpartition("::")[0]  # without its id
        pending += [str(state.get("parent", "")), provider, *state.get("dependencies", ())]
    return sorted(included)
