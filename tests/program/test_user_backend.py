"""Commands of `everstep` on a stack of a real cloud use the user's login and backend, as `pulumi` does."""

import json
from pathlib import Path

import pytest
import yaml

from tests.guides.account import UserMachine, user_machine

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

COMMAND_SECONDS = 400
STACK = "eks-dev"


def run_failing(machine: UserMachine, command: str) -> str:
    """Run a command that must fail; return its output."""
    with machine.shell.start(command) as process:
        output, _ = process.communicate(timeout=COMMAND_SECONDS)
    assert process.returncode, f"{command} should fail:\n{output}"
    return output


def configure_registry(machine: UserMachine) -> None:
    """Configure a registry for the stack; it can be created without machines."""
    file = machine.project / f"stacks/Pulumi.{STACK}.yaml"
    content = yaml.safe_load(file.read_text())
    content["config"]["everstep:registry"] = {"kind": "ecr", "name": "everstep-dev"}
    file.write_text(yaml.safe_dump(content))


def resource_types(machine: UserMachine) -> list[str]:
    """Return the types of the resources in the state that the user's own Pulumi exports."""
    state = json.loads(machine.shell.run(f"pulumi stack export --stack {STACK}", COMMAND_SECONDS))
    return [resource["type"] for resource in state["deployment"].get("resources") or ()]


def test_a_stack_is_looked_up_in_the_backend_that_pulumi_would_use(tmp_path: Path) -> None:
    with user_machine(tmp_path, STACK, offline=True) as machine:
        machine.shell.run(f"everstep init training --stack {STACK} && cd training", COMMAND_SECONDS)
        for choice in ("login", "project", "variable"):  # each takes precedence over the one before
            choose_backend(machine, choice, tmp_path / choice)

            missing = run_failing(machine, f"everstep up --stack {STACK} --yes")

            assert f"there is no stack {STACK} in the backend file://{tmp_path}/{choice}" in missing
            assert "pulumi login URL" in missing
            assert "pulumi stack init" in missing


def test_up_and_down_act_on_the_stack_in_the_users_backend_and_on_no_other(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with user_machine(tmp_path, STACK, offline=True) as machine:
        machine.shell.run(f"everstep init training --stack {STACK} && cd training", COMMAND_SECONDS)
        configure_registry(machine)
        choose_backend(machine, "login", tmp_path / "backend")
        machine.shell.run(f"pulumi stack init {STACK}", COMMAND_SECONDS)

        machine.shell.run(f"EVERSTEP_PART=registry pulumi up --stack {STACK}", COMMAND_SECONDS)
        created = resource_types(machine)
        assert "aws:ecr/repository:Repository" in created
        # It must find the stack that the user's own Pulumi used.
        machine.shell.run(f"everstep up --stack {STACK} --target registry --yes", COMMAND_SECONDS)
        assert resource_types(machine) == created
        assert machine.shell.run(
            f"PULUMI_STACK={STACK} everstep pulumi stack output registry", COMMAND_SECONDS
        )

        refusal = run_failing(
            machine, f"PULUMI_BACKEND_URL=file://{other} everstep down --stack {STACK} --yes"
        )
        assert f"there is no stack {STACK} in the backend file://{other}" in refusal
        assert "the stack is destroyed" not in refusal
        assert "aws:ecr/repository:Repository" in resource_types(machine)

        machine.shell.run(f"everstep down --stack {STACK} --yes", COMMAND_SECONDS)
        assert resource_types(machine) == []
        second_result = run_failing(machine, f"everstep down --stack {STACK} --yes")
        assert f"stack {STACK} has no resources in the backend file://" in second_result
        assert "the stack is destroyed" not in second_result


def choose_backend(machine: UserMachine, choice: str, backend: Path) -> None:
    """Choose the backend by login, variable or project file, as Pulumi allows."""
    backend.mkdir(exist_ok=True)
    if choice == "login":
        machine.shell.run(f"pulumi login file://{backend}", COMMAND_SECONDS)
    elif choice == "variable":
        machine.shell.run(f"export PULUMI_BACKEND_URL=file://{backend}", COMMAND_SECONDS)
    else:
        file = machine.project / "Pulumi.yaml"
        file.write_text(f"{file.read_text()}backend:\n  url: file://{backend}\n")
