"""Programs of the toolchain: found on PATH with the right version, or built."""

import dataclasses
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.progress import Silent
from cloudtwin.toolchain import binaries, tools
from cloudtwin.toolchain.binaries import PROGRAMS


@pytest.fixture
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put_program(folder: Path, name: str, output: str, code: int = 0) -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("etcd", "etcd Version: 3.5.0"),
        ("kubelet", "Kubernetes v1.36.0"),
        ("pulumi", "v3.259.0"),
        ("coredns", "CoreDNS-1.14.0"),
    ],
)
def test_a_program_on_path_with_the_right_version_is_used(
    path_folder: Path, name: str, output: str
) -> None:
    program = put_program(path_folder, name, output)

    assert tools.ensure_tools([name], Silent()) == {name: program}


@pytest.mark.parametrize(
    ("name", "output", "code"),
    [
        ("etcd", "etcd Version: 3.6.1", 0),
        ("kubelet", "Kubernetes v1.35.9", 0),
        ("pulumi", "v3.260.0", 0),
        ("etcd", "etcd Version: 3.5.35", 1),
        ("etcd", "what do you want?", 0),
    ],
)
def test_a_program_on_path_that_is_broken_or_has_another_version_is_not_used(
    path_folder: Path, name: str, output: str, code: int
) -> None:
    put_program(path_folder, name, output, code)

    assert tools.on_path(name) is None


def test_a_program_for_an_image_is_never_taken_from_path(path_folder: Path) -> None:
    put_program(path_folder, "etcd", "etcd Version: 3.5.35")

    with pytest.raises(TwinError, match="Go is needed"):
        tools.ensure_tools(["etcd"], Silent(), static=True)


def test_pause_is_never_taken_from_path(path_folder: Path) -> None:
    put_program(path_folder, "pause", "pause 3.5.35")

    assert tools.on_path("pause") is None


def test_an_unknown_program_is_refused() -> None:
    with pytest.raises(ValueError, match="not a program of the toolchain: kubectl"):
        tools.ensure_tools(["etcd", "kubectl"], Silent())


def test_a_module_is_built_again_when_its_sources_its_flags_or_go_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = PROGRAMS["pause"]
    monkeypatch.setattr(binaries, "MODULES_FOLDER", tmp_path)
    folder = tmp_path / "pause"
    folder.mkdir()
    (folder / "go.mod").write_text("module pause\n")
    (folder / "main.go").write_text("package main\n")
    key = tools.module_key(module, "1.26.8")

    assert tools.module_key(module, "1.26.8") == key
    assert tools.module_key(module, "1.26.9") != key
    assert tools.module_key(dataclasses.replace(module, tags="netgo"), "1.26.8") != key
    (folder / "README").write_text("not a source")
    assert tools.module_key(module, "1.26.8") == key
    (folder / "go.sum").write_text("x v1.0.0 h1:abc=\n")
    assert tools.module_key(module, "1.26.8") != key
