"""Base images of all Dockerfiles: each is pinned by digest, and each image has one pin."""

import re
import subprocess
from pathlib import Path

from everstep.catalog import image_reference

ROOT = Path(__file__).parents[1]
BASE = re.compile(r"^(?:ARG BASE_IMAGE=|FROM )(\S+)", re.MULTILINE)
WITHOUT_DIGEST = {"pytorch/pytorch"}
"""docs/security.md names it as open."""


def base_images() -> dict[str, list[str]]:
    """Return the images that Dockerfiles begin with, by the path of the Dockerfile."""
    paths = subprocess.check_output(["git", "ls-files", "*Dockerfile"], cwd=ROOT, text=True)
    return {
        path: [name for name in BASE.findall((ROOT / path).read_text()) if "$" not in name]
        for path in paths.splitlines()
    }


def test_every_base_image_is_pinned_by_digest() -> None:
    references = {name for names in base_images().values() for name in names} - {"scratch"}
    unpinned_names = {name for name in references if not image_reference.parse(name).digest}

    assert references, "no Dockerfile was found"
    assert {name.partition(":")[0] for name in unpinned_names} == WITHOUT_DIGEST


def test_dockerfiles_on_the_same_image_have_the_same_pin() -> None:
    pins: dict[str, set[str]] = {}
    for names in base_images().values():
        for name in names:
            pins.setdefault(name.partition(":")[0], set()).add(name)

    assert {repository: names for repository, names in pins.items() if len(names) > 1} == {}
