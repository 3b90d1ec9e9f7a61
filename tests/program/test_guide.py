"""The commands of docs/eks.md and docs/aks.md from an empty backend to the registry, without machines.

tests/e2e/test_guides.py runs all of them, on machines.
"""

from pathlib import Path

import pytest

from tests.guides.account import user_machine
from tests.guides.guide import guide_commands

FIRST_SKIPPED_COMMAND = "everstep images push"
"""The first command that needs machines."""

COMMAND_SECONDS = 400

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]


@pytest.mark.parametrize("stack", ["eks-dev", "aks-dev"])
def test_the_commands_of_the_guide_lead_from_an_empty_backend_to_a_preview_and_a_registry(
    stack: str, tmp_path: Path
) -> None:
    guide, programs, outputs = stack.partition("-")[0], [], []
    with user_machine(tmp_path, stack, offline=True) as machine:
        for command in guide_commands(guide, stack):
            if command.text.startswith(FIRST_SKIPPED_COMMAND):
                break
            if command.text_on_twin:
                outputs.append(machine.shell.run(command.text_on_twin, COMMAND_SECONDS))
                programs.append(command.text_on_twin.split()[:2])

    edits = [["pulumi", "config"]] * sum(command == ["pulumi", "config"] for command in programs)
    doctor = ["everstep", "doctor"] if guide == "eks" else ["env", "$AZURE"]
    assert programs == [
        ["everstep", "init"],
        ["cd", "training"],
        ["pulumi", "login"],
        ["pulumi", "stack"],
        *edits,
        doctor,
        ["everstep", "cost"],
        ["pulumi", "preview"],
        ["EVERSTEP_PART=registry", "pulumi"],
    ]
    assert len(edits) >= 3, "the guide edits the stack file"
    assert "NodeGroup" in outputs[-2] or "AgentPool" in outputs[-2], "the preview has all resources"
    assert "registry" in outputs[-1], "the last command prints the address of the registry"
    stack_file = machine.project / f"stacks/Pulumi.{stack}.yaml"
    assert "encryptionsalt" in stack_file.read_text()
