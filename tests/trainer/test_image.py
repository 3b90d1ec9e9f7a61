"""The trainer's image: its base and its packages agree with pyproject.toml."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
DOCKERFILE = (ROOT / "trainer" / "Dockerfile").read_text()


def pinned_versions(extra: str) -> dict[str, str]:
    """Return the pinned packages of an extra: name -> version."""
    pairs = (requirement.partition("==") for requirement in EXTRAS[extra])
    return {name: version for name, separator, version in pairs if separator}


def test_the_default_base_has_the_tested_version_of_pytorch() -> None:
    (version,) = re.findall(
        r"^ARG BASE_IMAGE=pytorch/pytorch:([0-9.]+)-cuda", DOCKERFILE, re.MULTILINE
    )

    assert version == pinned_versions("trainer")["torch"]


def test_the_packages_of_the_extra_are_locked() -> None:
    lock_file = (ROOT / "requirements" / "trainer.txt").read_text()
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock_file, re.MULTILINE))

    assert versions == pinned_versions("trainer-image") | pinned_versions("account")
    assert "numpy" not in versions, "the base image has the numpy that its PyTorch was built with"


def test_packages_of_tests_and_image_have_the_same_versions() -> None:
    tested_versions = pinned_versions("trainer")

    assert {
        name: version
        for name, version in pinned_versions("trainer-image").items()
        if name in tested_versions
    } == {name: tested_versions[name] for name in ("safetensors", "prometheus-client")}


def test_the_packages_of_the_image_are_installed_only_with_their_hashes() -> None:
    assert "--require-hashes -r /tmp/requirements.txt" in DOCKERFILE
