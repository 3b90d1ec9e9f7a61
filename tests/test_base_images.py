"""Base images of all Dockerfiles: each is pinned by digest, with one exception, and each image has one pin."""

import re
import subprocess
from collections import Counter
from pathlib import Path

from everstep.catalog import image_reference
from everstep.catalog.image_reference import ImageReference

ROOT = Path(__file__).parents[1]
BASE = re.compile(r"^(?:ARG BASE_IMAGE=|FROM )(\S+)", re.MULTILINE)
WITHOUT_DIGEST = {"docker.io/pytorch/pytorch"}
"""The exception; docs/security.md lists it as an open finding."""


def base_images() -> set[ImageReference]:
    """Return the base images of all Dockerfiles."""
    paths = subprocess.check_output(["git", "ls-files", "*Dockerfile"], cwd=ROOT, text=True)
    names = [
        name for path in paths.splitlines() for name in BASE.findall((ROOT / path).read_text())
    ]
    return {image_reference.parse(name) for name in names if "$" not in name and name != "scratch"}


def test_every_base_image_except_the_open_finding_is_pinned_by_digest() -> None:
    images = base_images()

    assert {image.name for image in images if image.digest}, "no Dockerfile was found"
    assert {image.name for image in images if not image.digest} == WITHOUT_DIGEST


def test_dockerfiles_on_the_same_image_have_the_same_pin() -> None:
    counts = Counter(image.name for image in base_images())

    assert [name for name, count in counts.items() if count > 1] == []
