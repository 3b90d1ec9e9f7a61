"""docker, podman and buildah: one interface, and errors that name the fix."""

from pathlib import Path

import pytest

from everstep.cli.image_builders import BUILDERS, find_builder
from everstep.errors import EverstepError
from everstep.progress import Silent

NAMES = [builder.program for builder in BUILDERS]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on PATH, with a link to the shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, name: str, body: str) -> None:
    file = folder / name
    file.write_text(f'#!/bin/sh\necho "$@" >> {folder}/{name}.calls\n{body}\n')
    file.chmod(0o755)


@pytest.mark.parametrize("name", NAMES)
def test_every_builder_builds_for_the_nodes_platform_and_pushes(programs: Path, name: str) -> None:
    install(programs, name, "exit 0")
    builder = find_builder()

    builder.build(Path("/context"), {"BASE_IMAGE": "base:1"}, "registry.example/x:1", Silent())
    builder.push("registry.example/x:1", Silent())

    _, build_arguments, push_arguments = (programs / f"{name}.calls").read_text().splitlines()
    assert build_arguments.startswith("build --platform=linux/amd64")
    assert build_arguments.endswith(
        "--build-arg=BASE_IMAGE=base:1 --tag=registry.example/x:1 /context"
    )
    assert push_arguments.startswith("push ")
    assert push_arguments.endswith("registry.example/x:1")
    assert "tls-verify" not in push_arguments, "TLS verification must stay on for a remote registry"


def test_an_installed_builder_that_does_not_work_is_skipped(programs: Path) -> None:
    install(programs, "docker", "exit 1")  # no daemon responds
    install(programs, "buildah", "exit 0")

    assert find_builder().program == "buildah"


@pytest.mark.usefixtures("programs")
def test_without_a_builder_the_error_names_one_to_install() -> None:
    with pytest.raises(EverstepError, match="cannot be built here") as error:
        find_builder()
    assert "apt-get install buildah" in error.value.fix


@pytest.mark.usefixtures("programs")
def test_an_unknown_builder_is_reported_with_the_valid_names() -> None:
    with pytest.raises(EverstepError, match="no builder named 'kaniko'") as error:
        find_builder("kaniko")
    assert "docker, podman, buildah" in error.value.fix


@pytest.mark.parametrize(
    ("output", "fix"),
    [
        ("write /layer: no space left on device", "Free some space"),
        ("denied: requested access to the resource is denied", "`buildah login`"),
        ("unauthorized: authentication required", "`buildah login`"),
        ("denied: permission denied for this repository", "`buildah login`"),
        ("open /var/lib/x: permission denied", "Correct the cause"),
        ("exit status 7", "run the same command again"),
    ],
)
def test_a_failed_push_shows_the_output_and_the_fix(programs: Path, output: str, fix: str) -> None:
    install(programs, "buildah", f'[ "$1" = info ] && exit 0; echo "{output}" >&2; exit 1')

    with pytest.raises(EverstepError, match=output) as error:
        find_builder("buildah").push("registry.example/x:1", Silent())
    assert fix in error.value.fix
