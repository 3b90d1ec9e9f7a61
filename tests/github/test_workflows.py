"""Properties of GitHub's workflows that actionlint does not check."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.catalog.names import RELEASED_IMAGE
from tests.github import act, stand_ins

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yaml"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_step_with_a_pipe_fails_when_any_of_its_commands_fails(path: Path) -> None:
    steps_with_pipe = [
        step for step in steps(yaml.safe_load(path.read_text())) if " | " in step.get("run", "")
    ]

    assert [step["run"] for step in steps_with_pipe if step.get("shell") != "bash"] == [], (
        "without `shell: bash` GitHub runs bash without pipefail, and `command | tee` never fails"
    )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_workflow_runs_code_of_a_fork_with_the_permissions_of_the_repository(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())

    assert "pull_request_target" not in workflow[True], "`on` is read as the YAML boolean true"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_failed_check_of_one_stack_or_target_does_not_cancel_the_others(path: Path) -> None:
    """`act` never cancels the other jobs of a matrix; GitHub does by default."""
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    strategies = [job["strategy"] for job in jobs if "strategy" in job]

    if path.stem == "release":
        return  # one failed image ends the release
    assert all(strategy.get("fail-fast") is False for strategy in strategies)


def test_a_pull_request_runs_everything_that_continuous_integration_runs() -> None:
    text = (ROOT / ".github" / "workflows" / "pull-request.yaml").read_text()

    assert any(".ci/run" in step.get("run", "") for step in steps(yaml.safe_load(text)))


def test_the_distributions_and_the_default_images_have_one_version() -> None:
    """The workflow `release` checks the files, but not before the tag exists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = {
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["version"]
        for folder in ("", "facts", "twin")
    }
    requirements = {
        requirement.partition("==")[2]
        for group in project["optional-dependencies"].values()
        for requirement in group
        if requirement.startswith(("cloudfacts==", "cloudtwin=="))
    }

    assert versions | requirements == {RELEASED_IMAGE.rpartition(":")[2]}


def test_a_workflow_runs_every_test_target_except_the_longest_and_those_on_gpus() -> None:
    targets = set(re.findall(r"^test-([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = "".join(path.read_text() for path in [ROOT / ".ci" / "run", *WORKFLOWS])

    assert targets - set(re.findall(r"\b(?:test|ci)-([a-z]+)", commands)) == {
        "twin",  # its parts run
        *("chaos", "gpu", "guides", "stacks"),
    }


@pytest.mark.parametrize(
    "path", [*WORKFLOWS, *ACTIONS], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_third_party_actions_are_pinned_by_commit_with_their_version(path: Path) -> None:
    uses = re.findall(r"uses: (?!\./)(.*)", path.read_text())

    assert [use for use in uses if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", use)] == [], (
        "a tag can be moved to other code, which would run with the identity of a deployment"
    )


def test_an_action_has_one_commit_in_all_workflows() -> None:
    text = "".join(path.read_text() for path in [*WORKFLOWS, *ACTIONS])
    commits = {(name, commit) for name, commit in re.findall(r"uses: (\S+)@(\S+)", text)}

    assert len(commits) == len({name for name, _ in commits})


def test_exactly_the_third_party_actions_have_stand_ins() -> None:
    text = "".join(path.read_text() for path in [*WORKFLOWS, *ACTIONS])

    assert {name for name, _ in act.USES.findall(text)} == set(stand_ins.INPUTS), (
        "without a stand-in, the tests that run workflows would all fail"
    )


def test_the_site_is_published_from_main_after_its_build() -> None:
    site = yaml.safe_load((ROOT / ".github" / "workflows" / "site.yaml").read_text())
    build, publish = site["jobs"]["build"], site["jobs"]["publish"]

    assert any(step.get("run") == "make site" for step in build["steps"])
    assert publish["needs"] == "build"
    assert "github.event_name != 'pull_request'" in publish["if"]
    assert "github.ref == 'refs/heads/main'" in publish["if"]
    assert site["permissions"] == {"contents": "read"}
    assert "permissions" not in build, "code of a pull request runs there"


def test_the_workflows_use_the_pulumi_cli_of_the_tests() -> None:
    (version,) = set(re.findall(r"pulumi-version: (\S+)", stack_workflow()))
    modules = (ROOT / "twin/cloudtwin/toolchain/pulumi/go.mod").read_text()

    assert f"github.com/pulumi/pulumi/pkg/v3 v{version} " in modules


def limits(key: str) -> tuple[int, int]:
    """Return a limit of the workflow that has the credentials: for a destroy, and for other commands."""
    pattern = rf"{key}: \$\{{\{{ inputs\.command == 'destroy' && (\d+) \|\| (\d+) \}}\}}"
    ((destroy, other),) = re.findall(pattern, stack_workflow())
    return int(destroy), int(other)


def test_an_aws_session_lasts_as_long_as_the_job() -> None:
    minutes, seconds = limits("timeout-minutes"), limits("role-duration-seconds")
    guide = (ROOT / "docs" / "continuous-integration.md").read_text()
    maxima = [int(maximum) for maximum in re.findall(r"--max-session-duration (\d+)", guide)]

    assert seconds == tuple(60 * limit for limit in minutes), (
        "an `up` without credentials leaves pending operations"
    )
    assert maxima == [max(seconds)], "AWS refuses a longer session than the role allows"


def test_a_destroy_has_an_hour_after_the_waits_of_its_preparation() -> None:
    script = (ROOT / ".ci" / "prepare-teardown").read_text()
    waits = {
        name: int(value)
        for name, value in re.findall(r"^(stop|export)_minutes=(\d+)$", script, re.MULTILINE)
    }
    minutes, _ = limits("timeout-minutes")

    assert minutes >= waits["stop"] + waits["export"] + 60, (
        "a destroy that is killed leaves a locked state and half of a stack, which costs money"
    )


def test_no_workflow_creates_a_stack() -> None:
    """`upsert` would create it with a key that is lost, and a preview would need to write the state."""
    (action,) = [
        step["with"]
        for step in steps(yaml.safe_load(stack_workflow()))
        if step.get("with", {}).get("command")
    ]

    assert "upsert" not in action


def test_the_identity_of_previews_only_reads_the_state() -> None:
    """Each branch may assume it. A preview of Pulumi neither locks nor writes the state."""
    guide = (ROOT / "docs" / "continuous-integration.md").read_text()
    ((aws, azure),) = re.findall(r"^   \| the state \| (.*) \| (.*) \|$", guide, re.MULTILINE)

    assert re.findall(r"s3:\w+", aws) == ["s3:GetObject", "s3:ListBucket"]
    assert azure.startswith("Storage Blob Data Reader ")


def test_images_are_pushed_below_an_owner_in_lower_case() -> None:
    (path,) = (path for path in WORKFLOWS if path.stem == "release")
    text = path.read_text(encoding="utf-8")

    assert 'echo "OWNER=${GITHUB_REPOSITORY_OWNER,,}"' in text
    assert set(re.findall(r"ghcr\.io/([^/]+)/", text)) == {"${{ env.OWNER }}"}, (
        "GitHub keeps the upper case of a name, which a reference of an image must not have"
    )


def test_a_deployment_refreshes_the_sizes_of_pools_that_it_sends_to_the_cloud() -> None:
    (path,) = (path for path in WORKFLOWS if path.stem == "deploy")
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()

    assert [job["with"]["refresh"] for job in jobs] == [True] * len(jobs), (
        "an update would return a pool to the size in the state"
    )


def test_tokens_for_aks_are_renewed_during_the_job() -> None:
    (job,) = yaml.safe_load(stack_workflow())["jobs"].values()
    environment = job["env"]  # kubectl before a destroy needs it, too

    assert environment["AAD_LOGIN_METHOD"] == "workloadidentity", (
        "GitHub's assertion is valid for five minutes, less than a new cluster takes"
    )
    assert environment["AZURE_CLIENT_ID"] == environment["ARM_CLIENT_ID"]


def test_a_preview_shares_no_concurrency_group_with_a_change_of_the_stack() -> None:
    (group,) = re.findall(r"group: (.*)", stack_workflow())

    assert group.startswith("${{ inputs.command == 'preview' && format('preview-"), (
        "GitHub cancels the pending run of a group when another one arrives"
    )


def test_outputs_that_pages_name_exist() -> None:
    names = {
        name
        for page in PAGES
        for name in re.findall(r"(?:stack output |output `)(\w+)", page.read_text())
    }
    program = "".join(
        path.read_text() for path in [ROOT / "__main__.py", *(ROOT / "components").rglob("*.py")]
    )

    assert names, "the pages name outputs"
    assert [name for name in sorted(names) if f'"{name}"' not in program] == []


def stack_workflow() -> str:
    """Return the text of the workflow that has the credentials."""
    return (ROOT / ".github" / "workflows" / "stack.yaml").read_text()


def test_dependabot_updates_the_base_images_of_every_dockerfile() -> None:
    configuration = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())
    (docker,) = [
        update for update in configuration["updates"] if update["package-ecosystem"] == "docker"
    ]
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "*Dockerfile"],
        capture_output=True,
        text=True,
        check=True,
    )
    folders = {f"/{Path(path).parent}" for path in listing.stdout.split()}

    assert set(docker["directories"]) == folders, (
        "a base image that nothing updates keeps its vulnerabilities"
    )
