"""`everstep images`: user errors end with a fix, before anything is built."""

import os
from importlib.metadata import version
from pathlib import Path

import pytest
from cloudtwin.facade import Recipe, RegistryError
from typer.testing import CliRunner

from everstep.cli import image_push
from everstep.cli.app import build_app
from everstep.cli.commands import images
from everstep.cli.engine.context import StackContext, open_stack
from everstep.cli.engine.file_lock import exclusive_lock
from everstep.cli.image_push import PushedImage, fix_of, login_command
from everstep.errors import EverstepError
from tests.everstep.cli.projects import enter_project

ECR = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"


def error_of(*arguments: str) -> EverstepError:
    result = CliRunner().invoke(build_app(), ["images", *arguments])
    assert isinstance(result.exception, EverstepError), result.output
    return result.exception


@pytest.mark.parametrize(
    ("arguments", "problem", "fix"),
    [
        (("push",), "runs on this machine", "--stack"),
        (("push", "--stack", "eks-de"), "no stack named", "Did you mean eks-dev"),
        (("push", "--stack", "eks-dev", "--registry", "ghcr.io/Team"), "upper-case", "lower case"),
        (("push", "--stack", "eks-dev", "--registry", "my-team"), "has no host", "docker.io/my-team"),
        (("push", "--stack", "eks-dev", "--registry", "ghcr.io/x:1"), "not a registry", "without a tag"),
        (("push", "--stack", "eks-dev", "--only", "spott"), "no image named", "Did you mean spot"),
        (("build", "--stack", "eks-dev", "--builder", "kaniko"), "no builder named", "buildah"),
    ],
)  # fmt: skip
def test_bad_input_is_reported_with_its_fix(
    arguments: tuple[str, ...], problem: str, fix: str
) -> None:
    error = error_of(*arguments)

    assert problem in error.problem
    assert fix in error.fix


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("trainer", "--base 'trainer' is not IMAGE=BASE"),
        ("trainer=", "--base 'trainer=' is not IMAGE=BASE"),
        ("trainer=A b", "--base 'trainer=A b' is not IMAGE=BASE"),
        ("=x:1", "no image named ''"),
    ],
)
def test_a_base_without_an_image_or_a_valid_reference_is_refused(option: str, problem: str) -> None:
    with pytest.raises(EverstepError, match=problem):
        image_push.parse_bases([option])


def test_bases_are_keyed_by_image() -> None:
    assert image_push.parse_bases(["trainer=a/b:1", "spot=c@sha256:" + "0" * 64]) == {
        "trainer": "a/b:1",
        "spot": "c@sha256:" + "0" * 64,
    }


@pytest.mark.parametrize("program", ["docker", "podman", "buildah"])
def test_the_login_command_fits_the_registry_and_the_program(program: str) -> None:
    password = "aws ecr get-login-password --region eu-west-1"
    token = "az acr login --name everstepprod"
    stdin = f"{program} login --username 00000000-0000-0000-0000-000000000000 --password-stdin"
    query = "--expose-token --query accessToken --output tsv"

    assert login_command(ECR, program) == (
        f"{password} | {program} login --username AWS --password-stdin {ECR}"
    )
    assert login_command("ghcr.io", program) == f"{program} login ghcr.io"
    assert login_command("everstepprod.azurecr.io", program) == (
        token if program == "docker" else f"{token} {query} | {stdin} everstepprod.azurecr.io"
    )


def test_a_login_is_for_the_program_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert login_command("ghcr.io") == "docker login ghcr.io"

    (tmp_path / "buildah").touch(mode=0o755)
    assert login_command("ghcr.io") == "buildah login ghcr.io"


@pytest.mark.parametrize(
    ("status", "code", "fix"),
    [
        (401, "UNAUTHORIZED", "Log in first: az acr login"),
        (403, "DENIED", "Log in first"),
        (404, "NAME_UNKNOWN", "--target registry"),
        (400, "TAG_INVALID", "immutable"),
        (0, "", "network"),
        (503, "", "again later"),
    ],
)
def test_every_error_of_a_registry_has_a_fix(status: int, code: str, fix: str) -> None:
    assert fix in fix_of(RegistryError("refused", status, code), "x.azurecr.io")


def test_a_tag_has_the_version_and_a_hash_of_only_the_sources_and_the_base(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").touch()
    source = tmp_path / "program.py"
    source.write_text("1")
    recipe = Recipe("example", "Dockerfile", tmp_path, ("program.py",))

    tag = image_push.image_tag(recipe)
    assert tag.startswith(f"{version('everstep')}-")

    os.utime(source, (0, 0))
    assert image_push.image_tag(recipe) == tag, "a clone has other modification times"
    assert image_push.image_tag(recipe, "python:3.14") != tag
    source.write_text("2")
    assert image_push.image_tag(recipe) != tag


@pytest.fixture
def job_on_a_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackContext:
    """Enter a project with a stack that has a platform; return a stack with only a job on it."""
    tags = '{owner: me, costCenter: "1", environment: dev}'
    cluster = "{kind: eks, publicAccess: [192.0.2.0/24]}"
    texts = {
        "eks-dev": f"config:\n  everstep:tags: {tags}\n  everstep:cluster: {cluster}\n",
        "second": "config:\n  everstep:platformStack: {name: eks-dev}\n  everstep:job: {name: second}\n",
    }
    enter_project(tmp_path, monkeypatch, texts)
    return open_stack("second")


def test_a_job_on_a_shared_platform_pushes_only_its_own_image(
    job_on_a_platform: StackContext,
) -> None:
    file = job_on_a_platform.workspace.stack_file
    text = file.read_text()

    assert images._names(job_on_a_platform, []) == ["trainer"]
    image = PushedImage("controller", "ghcr.io/x/controller:1", "sha256:" + "0" * 64, existed=False)
    assert images._write(job_on_a_platform, image) == []
    assert file.read_text() == text, "its stack file must not set the sections of the platform"


def test_a_job_on_a_shared_platform_uses_the_registry_of_that_platform(
    job_on_a_platform: StackContext,
) -> None:
    with pytest.raises(EverstepError, match="stack eks-dev has no registry") as error:
        images._registry_of(job_on_a_platform)

    assert "everstep images push --stack second" in error.value.fix
    assert "Pulumi.eks-dev.yaml" in error.value.fix


def test_a_push_to_the_twin_is_refused_while_another_command_changes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path))
    monkeypatch.setattr(images, "_twin_state", lambda context: tmp_path)
    monkeypatch.setattr(image_push, "push_to_twin", lambda *_: [])
    lock = open_stack("eks-dev", twin=True).workspace.lock

    with exclusive_lock(lock, "`everstep down`", ""):
        error = error_of("push", "--stack", "eks-dev", "--twin", "--registry", ECR)

    assert "`everstep down` is already running" in error.problem


@pytest.mark.parametrize(
    "arguments",
    [
        ("build", "--only", "spot"),
        ("build", "--stack", "eks-dev", "--twin", "--base", "trainer=x:1"),
        ("push", "--stack", "eks-dev", "--twin", "--registry", ECR, "--builder", "podman"),
    ],
)
def test_options_that_the_twin_would_ignore_are_refused(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path))
    for name in ("_build_for_twin", "_twin_state"):
        monkeypatch.setattr(images, name, lambda *_: pytest.fail("a build began"))

    assert "cannot be used on the twin" in error_of(*arguments).problem
