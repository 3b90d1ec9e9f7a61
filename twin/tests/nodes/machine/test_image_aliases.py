"""Aliases of images, without a machine."""

import os
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.machine import image_aliases, init

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


def test_aliases_of_one_image_are_set_by_one_command_without_the_image_itself() -> None:
    commands = image_aliases.commands({"b:1": "x:local", "a:1": "x:local", "x:local": "x:local"})

    assert [command[-4:] for command in commands] == [["--force", "x:local", "a:1", "b:1"]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the events that machines record from now on."""
    recorded: list[dict[str, Any]] = []

    def post(_: KubernetesClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/default/events"
        recorded.append(body)
        return body

    monkeypatch.setattr(KubernetesClient, "post", post)
    return recorded


@pytest.fixture
def ctr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `ctr` with a program that finds no image, and `nsenter` with a program that enters no namespace."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ctr").write_text('#!/bin/sh\necho "ctr: image \\"$6\\": not found" >&2\nexit 1\n')
    (programs / "nsenter").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')  # --mount --target=ID
    for program in programs.iterdir():
        program.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    monkeypatch.setattr(processes, "ENVIRONMENT", {"PATH": path})
    monkeypatch.setenv("PATH", path)


@pytest.mark.usefixtures("ctr")
def test_the_error_for_an_image_that_a_machine_lacks_names_all_aliases_and_the_reason(
    tmp_path: Path,
) -> None:
    aliases = {"a:1": LOCAL, "b:1": LOCAL}

    with pytest.raises(TwinError) as error:
        image_aliases.add(Layout(tmp_path), aliases, {"gpu-0": os.getpid()})

    assert error.value.problem == (
        f"The machine 'gpu-0' cannot use {LOCAL} in place of a:1, b:1: "
        f'ctr: image "{LOCAL}": not found'
    )


@pytest.mark.usefixtures("ctr")
def test_a_machine_that_boots_without_an_image_names_it_in_its_log_and_in_an_event(
    events: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    init.tag_images("gpu-0", {"a:1": LOCAL, "b:1": LOCAL})

    problem = f'cannot use {LOCAL} in place of a:1, b:1: ctr: image "{LOCAL}": not found'
    assert capfd.readouterr().out.splitlines() == [f"The machine 'gpu-0' {problem}"]
    (event,) = events
    assert (event["type"], event["reason"]) == ("Warning", "ImageAliasFailed")
    assert event["involvedObject"] == {"kind": "Node", "name": "gpu-0", "uid": "gpu-0"}
    assert event["message"] == f"The machine {problem}"


@pytest.mark.usefixtures("ctr")
def test_a_machine_boots_even_if_the_cluster_refuses_the_event(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise ApiError(403, "forbidden", {})

    monkeypatch.setattr(KubernetesClient, "post", refuse)

    init.tag_images("gpu-0", {"a:1": LOCAL})

    assert "The event ImageAliasFailed was not recorded: 403" in capfd.readouterr().out


def test_an_alias_of_an_image_for_itself_reports_nothing(
    events: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    init.tag_images("gpu-0", {LOCAL: LOCAL})

    assert (capfd.readouterr().out, events) == ("", [])
