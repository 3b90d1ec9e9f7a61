"""An update of a cloud stack is killed at a random moment and resumed by the commands of docs/operations.md.

Then the registry phase runs on the stack that is up.

The engine is real. The account has no machines, so the program leaves out the objects of Kubernetes.
"""

import json
import os
import random
import re
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.cli.engine.driver import Engine
from everstep.cli.engine.partial_update import targets_of
from everstep.cli.engine.workspace import Workspace
from everstep.progress import Silent
from tests.processes import descendants
from tests.program.conftest import ROOT
from tests.waiting import wait_until
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(1200)]

PAGE = ROOT / "docs/operations.md"
HEADING = "## An update that was killed"
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from components import environment
from components.aws.environment import EksEnvironment
from components.azure.environment import AksEnvironment
from components.config import from_mapping

for kind in (EksEnvironment, AksEnvironment):
    for part in ("autoscaler", "metrics", "priorities", "scraping"):  # objects of Kubernetes
        if hasattr(kind, f"_declare_{{part}}"):
            setattr(kind, f"_declare_{{part}}", lambda self: None)
environment.declare(from_mapping(json.loads({config!r})), "test")
"""
CLOUDS = {"eks": "aws", "aks": "azure-native"}
REGISTRIES = {
    "eks": {"kind": "ecr", "name": "everstep-test"},
    "aks": {"kind": "acr", "name": "everstep1"},
}
WAIT_SECONDS, POLL_SECONDS = 200, 0.02
LATENCY_SECONDS = 0.3
"""Time from the creation of a resource to the response of its service, so that a kill falls between the two."""

MAX_RESOURCES = 12
"""Maximum number of resources that an update creates before a kill."""

MAX_KILLS = 4
"""Maximum number of kills: further ones follow until one leaves a resource that the state lacks."""


def recovery_commands() -> list[str]:
    """Return the commands of the page, without the name of the stack."""
    section = PAGE.read_text().partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    commands = re.findall(r"^    pulumi ((?:stack )?\w+) --stack STACK(.*)$", section, re.MULTILINE)
    return [f"{verb}{options}".partition("  #")[0].strip() for verb, options in commands]


def config_of(stack: str, prefix: str, **sections: Any) -> dict[str, Any]:
    """Return the configuration of one of the repository's stacks, with other sections and another namespace."""
    config = yaml.safe_load((ROOT / f"stacks/Pulumi.{stack}.yaml").read_text())["config"]
    values = {key.replace("everstep:", prefix): value for key, value in config.items()}
    return values | {f"{prefix}{name}": section for name, section in sections.items()}


def declare(project: CloudProject, stack: str) -> None:
    """Write a program that declares the cloud's part of one of the repository's stacks, without a registry."""
    values = config_of(stack, "", registry={"kind": "none"})
    project.program(PROGRAM.format(root=str(ROOT), config=json.dumps(values)))


def resources_of_program(project: CloudProject, cloud: str) -> list[dict[str, Any]]:
    """Return the account's resources that the program declares, without resources that a service adds."""
    return [
        dict(resource)
        for resource in project.account(cloud)
        if "::probe::" in str(resource.get("urn")) and not resource.get("owner")
    ]


def resources_of_state(project: CloudProject) -> set[tuple[str, str | None]]:
    """Return the type and ID of each resource of the state.

    An ID identifies a resource only within its type: a bucket and each of its settings share one.
    """
    return {(resource["type"], resource.get("id")) for resource in project.resources().values()}


def kill_update(project: CloudProject, cloud: str, resources: int) -> None:
    """Run `pulumi up` and kill it with all its plugins once it has created this number of resources."""
    expected = len(resources_of_program(project, cloud)) + resources
    process = project.start("up", "--yes", "--skip-preview")

    def has_created() -> bool:
        if len(resources_of_program(project, cloud)) >= expected:
            return True
        assert process.poll() is None, f"the update ended early:\n{process.communicate()[0]}"
        return False

    wait_until(
        has_created,
        f"the update has created {resources} resources",
        WAIT_SECONDS,
        interval_seconds=POLL_SECONDS,
    )
    for pid in [*descendants(process.pid), process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=WAIT_SECONDS)


def fill_in(file: Path, project: CloudProject, cloud: str) -> int:
    """Write the IDs of the resources that exist into the import file, and return their number.

    The other entries are removed: `pulumi up` will create those resources.
    """
    recorded = resources_of_state(project)
    ids = {
        (str(resource["token"]), str(resource["urn"]).rpartition("::")[2]): resource["id"]
        for resource in resources_of_program(project, cloud)
        if (resource["token"], resource["id"]) not in recorded
    }
    content = json.loads(file.read_text())
    existing_entries = [
        {**entry, "id": ids[entry["type"], entry["name"]]}
        for entry in content["resources"]
        if (entry["type"], entry["name"]) in ids
    ]
    file.write_text(json.dumps({**content, "resources": existing_entries}))
    return len(existing_entries)


def recover(project: CloudProject, cloud: str) -> int:
    """Run the commands of the page before the last `up`; return the number of imported resources."""
    *preparation, last = recovery_commands()
    assert last == "up"
    imported, file = 0, project.folder / "import.json"
    for command in preparation:
        verb, *options = command.split()
        if verb == "import":
            imported = fill_in(file, project, cloud)
        if verb == "import" and not imported:
            continue
        confirmation = ["--yes"] if verb in {"cancel", "import", "refresh"} else []
        project.pulumi(verb, *options, *confirmation)
    return imported


def declare_with_registry(project: CloudProject, stack: str) -> None:
    """Let the project run this repository's program with the configuration of the stack and a registry."""
    values = config_of(stack, "probe:", registry=REGISTRIES[stack.partition("-")[0]])
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


def check_registry_phase(
    project: CloudProject, pulumi_program: Path, folder: Path, stack: str
) -> None:
    """Check that the registry phase deletes nothing of a stack that is up."""
    cloud = CLOUDS[stack.partition("-")[0]]
    before = identities(project, cloud)
    assert len(before) > 20, "the stack is up"
    declare_with_registry(project, stack)

    project.environment["PATH"] = f"{pulumi_program.parent}{os.pathsep}{os.environ['PATH']}"
    project.environment["EVERSTEP_PART"] = "registry"
    refusal = project.up(fails=True)

    assert "EVERSTEP_PART=registry is for a new stack. The stack test has more" in refusal
    assert "everstep up --target registry --stack test" in refusal
    assert identities(project, cloud) == before

    engine = engine_of(project, pulumi_program, folder)
    part_engine = replace(
        engine, environment={**engine.environment, "EVERSTEP_PART": "registry-targets"}
    )
    urns = targets_of(part_engine, "registry", Silent())
    project.environment["EVERSTEP_PART"] = "registry-targets"
    project.up(*(f"--target={urn}" for urn in urns))

    after = identities(project, cloud)
    assert before <= after, "a targeted update deletes nothing"
    assert any("egistry" in token or token.startswith("aws:ecr/") for token, _ in after - before)


@pytest.mark.parametrize(("stack", "kills", "seed"), [("eks-prod", 2, 2), ("aks-prod", 1, 4)])
def test_a_killed_update_leaves_every_resource_once_and_the_registry_phase_then_deletes_none(
    project: CloudProject, pulumi_program: Path, tmp_path: Path, stack: str, kills: int, seed: int
) -> None:
    cloud, generator, imported = CLOUDS[stack.partition("-")[0]], random.Random(seed), 0
    declare(project, stack)
    project.faults(latency={"*": LATENCY_SECONDS})
    for number in range(MAX_KILLS):
        if number >= kills and imported:
            break
        kill_update(project, cloud, generator.randint(1, MAX_RESOURCES))
        imported += recover(project, cloud)

    project.up()

    assert imported, "no kill left resources that the state lacks, so the import was not tested"
    created = resources_of_program(project, cloud)
    counts = Counter(str(resource["urn"]) for resource in created)
    assert {urn: count for urn, count in counts.items() if count > 1} == {}
    identities = {(resource["token"], resource["id"]) for resource in created}
    assert identities <= resources_of_state(project), (
        "every resource of the account must be in the state"
    )
    assert "pending_operations" not in json.loads(project.pulumi("stack", "export"))["deployment"]
    project.faults()
    check_registry_phase(project, pulumi_program, tmp_path, stack)
