"""An update of a cloud stack is killed at a random moment and resumed by the commands of docs/operations.md.

The engine is real. The account has no machines, so the program leaves out the objects of Kubernetes.
"""

import json
import os
import random
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

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
WAIT_SECONDS, POLL_SECONDS = 200, 0.02
LATENCY_SECONDS = 0.3
"""Time from the creation of a resource to the response of its service, so that a kill falls between the two."""

KILLS, MAX_RESOURCES = 2, 12
"""Number of kills per stack, and maximum number of resources that an update creates before a kill."""


def recovery_commands() -> list[str]:
    """Return the commands of the page, without the name of the stack."""
    section = PAGE.read_text().partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    commands = re.findall(r"^    pulumi ((?:stack )?\w+) --stack STACK(.*)$", section, re.MULTILINE)
    return [f"{verb}{options}".partition("  #")[0].strip() for verb, options in commands]


def declare(project: CloudProject, stack: str) -> None:
    """Write a program that declares the cloud's part of one of the repository's stacks."""
    config = yaml.safe_load((ROOT / f"stacks/Pulumi.{stack}.yaml").read_text())["config"]
    values = {key.replace("everstep:", ""): value for key, value in config.items()}
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


@pytest.mark.parametrize(("stack", "seed"), [("eks-prod", 2), ("aks-prod", 4)])
def test_a_killed_update_is_resumed_and_the_account_has_every_resource_once(
    project: CloudProject, stack: str, seed: int
) -> None:
    cloud, generator, imported = CLOUDS[stack.partition("-")[0]], random.Random(seed), 0
    declare(project, stack)
    project.faults(latency={"*": LATENCY_SECONDS})
    for _ in range(KILLS):
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
