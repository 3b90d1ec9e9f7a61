"""The workflow `release`, run by `act`."""

import subprocess
from pathlib import Path

import pytest
import yaml

from everstep.catalog.names import RELEASED_IMAGE
from tests.github.act import ROOT, Repository, WorkflowRun
from tests.github.stand_ins import DIGEST

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

DISTRIBUTIONS = ["cloudfacts", "cloudtwin", "everstep"]
"""The distributions, each after those that it requires."""

IMAGES = {"trainer", "controller", "spot", "etcd-rejoin"}
VERSION = RELEASED_IMAGE.rpartition(":")[2]
PUSH_ENVIRONMENT = {"STAND_IN_DIGEST": DIGEST}


MAKEFILE = """
.venv/.%:
	@true
wheels:
	@mkdir -p build/dist
	@touch build/dist/cloudfacts-1.whl build/dist/cloudtwin-1.whl build/dist/everstep-1.whl
"""


def release(repository: Repository, tag: str, **arguments: str) -> WorkflowRun:
    """Run the workflow for a tag, or one job of it, or for one image; other arguments are variables."""
    payload = {"ref": f"refs/tags/{tag}"}
    job, image = arguments.pop("job", None), arguments.pop("image", None)
    matrix = {"image": image} if image else None
    return repository.run(
        "release", "push", payload=payload, environment=arguments, job=job, matrix=matrix
    )


@pytest.fixture
def without_wheels(changed_repository: Repository) -> Repository:
    """Return a copy in which a wheel is an empty file."""
    (changed_repository.folder / "Makefile").write_text(MAKEFILE)
    return changed_repository


def test_a_tag_publishes_wheels_and_all_images_with_provenance(repository: Repository) -> None:
    run = release(repository, f"v{VERSION}", **PUSH_ENVIRONMENT)

    assert run.is_green, run.log
    pushed_tags = {
        call["tags"].rpartition("/")[2] for call in run.calls("docker/build-push-action")
    }
    assert pushed_tags == {RELEASED_IMAGE.format(image).rpartition("/")[2] for image in IMAGES}
    digests = [call.get("subject-digest") for call in run.calls("actions/attest-build-provenance")]
    assert digests.count(DIGEST) == len(IMAGES), "each image's provenance names its digest"
    assert f"trainer@{DIGEST}" in run.summary, "stack files name images by these digests"
    wheels = repository.artifacts.glob("*.whl")
    assert {wheel.name.partition("-")[0] for wheel in wheels} == set(DISTRIBUTIONS)
    *uploads, view, release_call = run.programs
    assert [upload.partition("-")[0] for upload in uploads] == [
        f"pypi upload {name}" for name in DISTRIBUTIONS
    ], "PyPI refuses a second upload of a file: it comes first, and the release only after it"
    assert view == f"gh release view v{VERSION}"
    assert release_call.startswith(f"gh release create v{VERSION} ")


def test_a_repeated_release_adds_its_files_to_the_release_that_exists(
    without_wheels: Repository,
) -> None:
    run = release(
        without_wheels, f"v{VERSION}", image="spot", **PUSH_ENVIRONMENT, STAND_IN_RELEASED="yes"
    )

    assert run.is_green, run.log
    assert run.programs[-1].startswith(f"gh release upload v{VERSION} ")
    assert run.programs[-1].endswith(" --clobber"), "the files of the failed run are replaced"
    assert all(
        call["skip-existing"] == "true" for call in run.calls("pypa/gh-action-pypi-publish")
    ), "PyPI refuses a file that it has"


def test_each_distribution_has_its_own_environment() -> None:
    """PyPI accepts one pending publisher for each combination of repository, workflow and environment."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    publish = workflow["jobs"]["publish"]

    assert publish["environment"] == "pypi-${{ matrix.distribution }}"
    assert publish["strategy"]["matrix"]["distribution"] == DISTRIBUTIONS
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`pypi-{name}`" in guide for name in DISTRIBUTIONS)


def test_a_tag_on_a_commit_outside_main_publishes_nothing(without_wheels: Repository) -> None:
    commit_outside_main(without_wheels.folder)

    run = release(without_wheels, f"v{VERSION}", **PUSH_ENVIRONMENT)

    assert "which is not on main" in run.log
    check_nothing_is_published(run)


def commit_outside_main(folder: Path) -> None:
    """Add a commit that the remote's main branch does not have."""
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    command = ["git", *identity, "commit", "--quiet", "--allow-empty", "--message=Unreviewed"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)


def test_a_tag_that_is_not_the_version_publishes_nothing(repository: Repository) -> None:
    run = release(repository, "v9.9.9", **PUSH_ENVIRONMENT)

    check_nothing_is_published(run)


def test_a_version_without_an_entry_in_the_changelog_publishes_nothing(
    changed_repository: Repository,
) -> None:
    changed_repository.replace("CHANGELOG.md", f"## {VERSION}", "## Some other version")

    run = release(changed_repository, f"v{VERSION}", **PUSH_ENVIRONMENT)

    check_nothing_is_published(run)


def check_nothing_is_published(run: WorkflowRun) -> None:
    """Check that a run failed before it pushed an image, created a release or published a wheel."""
    assert "failure" in run.jobs.values(), run.log
    assert not run.programs, run.log
    for action in ("docker/build-push-action", "pypa/gh-action-pypi-publish"):
        assert not run.calls(action), run.log


def test_a_push_without_a_digest_fails(without_wheels: Repository) -> None:
    run = release(without_wheels, f"v{VERSION}", job="images", image="trainer", STAND_IN_DIGEST="")

    results = {result for job, result in run.jobs.items() if "images" in job}
    assert results == {"failure"}, run.log
    attested = {call.get("subject-name") for call in run.calls("actions/attest-build-provenance")}
    assert not attested & {f"ghcr.io/example/{image}" for image in IMAGES}, "there is no digest"


def test_a_vulnerable_image_is_neither_attested_nor_released(without_wheels: Repository) -> None:
    image = "ghcr.io/example/trainer"
    run = release(
        without_wheels,
        f"v{VERSION}",
        image="trainer",
        **PUSH_ENVIRONMENT,
        STAND_IN_VULNERABLE=image,
    )

    assert not run.is_green
    scans = run.calls("anchore/scan-action")
    assert scans[0]["image"] == f"{image}@{DIGEST}", "the digest that stack files name is scanned"
    attested = {call.get("subject-name") for call in run.calls("actions/attest-build-provenance")}
    assert image not in attested
    assert not run.programs, "no release is created"
    assert not run.calls("pypa/gh-action-pypi-publish"), run.log
