"""The registry phase on a stack that is up: the real engine with this repository's program, on offline clouds."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.cli.engine.driver import Engine
from everstep.cli.engine.partial_update import targets_of
from everstep.cli.engine.workspace import Workspace
from everstep.progress import Silent
from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

REGISTRIES = {
    "eks": {"kind": "ecr", "name": "everstep-test"},
    "aks": {"kind": "acr", "name": "everstep1"},
}
CLOUDS = {"eks": "aws", "aks": "azure-native"}


def declare(project: CloudProject, stack: str, **sections: Any) -> None:
    """Let the project run this repository's program with the configuration of one of its stacks."""
    config = yaml.safe_load((ROOT / f"stacks/Pulumi.{stack}.yaml").read_text())["config"]
    values = {key.replace("everstep:", "probe:"): value for key, value in config.items()}
    values |= {f"probe:{name}": section for name, section in sections.items()}
    stack_file = project.folder / "Pulumi.test.yaml"
    content = yaml.safe_load(stack_file.read_text())
    stack_file.write_text(yaml.safe_dump({**content, "config": values}))
    project.program(f"""
        import runpy, sys
        sys.path.insert(0, {str(ROOT)!r})
        runpy.run_path({str(ROOT / "__main__.py")!r})
    """)


def identities(project: CloudProject, cloud: str) -> set[tuple[str, str]]:
    """Return the type and ID of every resource of the account."""
    return {(str(resource["token"]), str(resource["id"])) for resource in project.account(cloud)}


def engine_of(project: CloudProject, pulumi: Path, folder: Path) -> Engine:
    """Return the engine of `everstep up` for the project."""
    workspace = Workspace(project.folder, "test", "default", folder / "everstep")
    environment = {**os.environ, **project.environment, "PULUMI_STACK": "test"}
    return Engine(workspace, pulumi, environment, has_user_backend=True)


@pytest.mark.parametrize("stack", ["eks-prod", "aks-dev"])
def test_the_registry_phase_deletes_nothing_of_a_stack_that_is_up(
    project: CloudProject, pulumi_program: Path, tmp_path: Path, stack: str
) -> None:
    kind = stack.partition("-")[0]
    declare(project, stack, registry={"kind": "none"})
    project.up(fails=True)  # the account has no machines, so only objects of Kubernetes are missing
    before = identities(project, CLOUDS[kind])
    assert len(before) > 20, "the stack is up"
    declare(project, stack, registry=REGISTRIES[kind])

    project.environment["PATH"] = f"{pulumi_program.parent}{os.pathsep}{os.environ['PATH']}"
    project.environment["EVERSTEP_PART"] = "registry"
    refusal = project.up(fails=True)

    assert "EVERSTEP_PART=registry is for a new stack. The stack test has more" in refusal
    assert "everstep up --target registry --stack test" in refusal
    assert identities(project, CLOUDS[kind]) == before

    engine = engine_of(project, pulumi_program, tmp_path)
    part_engine = replace(
        engine, environment={**engine.environment, "EVERSTEP_PART": "registry-targets"}
    )
    urns = targets_of(part_engine, "registry", Silent())
    project.environment["EVERSTEP_PART"] = "registry-targets"
    project.up(*(f"--target={urn}" for urn in urns))

    after = identities(project, CLOUDS[kind])
    assert before <= after, "a targeted update deletes nothing"
    assert any("egistry" in token or token.startswith("aws:ecr/") for token, _ in after - before)
