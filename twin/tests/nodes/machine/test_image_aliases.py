"""Aliases of images, without a machine."""

import os
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.machine import image_aliases

LOCAL = "localhost/everstep/stand-in:local"
DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    "published",
    [
        "busybox", "docker.io/library/busybox:1.36", "localhost:5000/a", f"ghcr.io/a/b_c@{DIGEST}",
        f"registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.0@{DIGEST}",
    ],
)  # fmt: skip
def test_aliases_are_stored_and_added_to_earlier_ones(tmp_path: Path, published: str) -> None:
    layout = Layout(tmp_path)
    image_aliases.add(layout, {"other:1": LOCAL}, {})
    image_aliases.add(layout, {published: LOCAL}, {})

    assert image_aliases.all_of(layout) == {"other:1": LOCAL, published: LOCAL}


@pytest.mark.parametrize(
    ("published", "local", "malformed"),
    [
        ("", LOCAL, "''"),
        ("--version", LOCAL, "'--version'"),
        ("Team/Python:1", LOCAL, "'Team/Python:1'"),
        ("a b:1", LOCAL, "'a b:1'"),
        ("busybox:", LOCAL, "'busybox:'"),
        (f"busybox@{DIGEST[:-1]}", LOCAL, "is not an image reference"),
        ("busybox:1", "https://localhost/a", "'https://localhost/a'"),
    ],
)
def test_a_malformed_alias_is_refused_before_a_later_machine_has_it(
    tmp_path: Path, published: str, local: str, malformed: str
) -> None:
    layout = Layout(tmp_path)

    with pytest.raises(TwinError, match="is not an image reference") as error:
        image_aliases.add(layout, {"other:1": LOCAL, published: local}, {})

    assert malformed in error.value.problem
    assert image_aliases.all_of(layout) == {}


def test_the_refusal_of_a_machine_names_all_images_and_the_reason(tmp_path: Path) -> None:
    aliases = {"a:1": LOCAL, "b:1": LOCAL}

    # This process has no containerd.
    with pytest.raises(TwinError) as error:
        image_aliases.add(Layout(tmp_path), aliases, {"gpu-0": os.getpid()})

    problem = error.value.problem
    assert problem.startswith(f"The machine 'gpu-0' cannot use {LOCAL} in place of a:1, b:1: ")
    assert "[" not in problem
