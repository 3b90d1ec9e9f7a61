import dataclasses

import pytest

from everstep.errors import EverstepError
from everstep.progress import Silent
from twin.toolchain import binaries, tools
from twin.toolchain.binaries import PROGRAMS


@pytest.fixture
def only_path(tmp_path, monkeypatch):
    """Make an empty folder all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put_program(folder, name, prints, code=0):
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{prints}'\nexit {code}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("name", "prints"),
    [
        ("etcd", "etcd Version: 3.5.0"),
        ("kubelet", "Kubernetes v1.36.0"),
        ("pulumi", "v3.259.0"),
        ("coredns", "CoreDNS-1.14.0"),
    ],
)
def test_a_program_on_path_in_the_right_version_is_taken(only_path, name, prints):
    program = put_program(only_path, name, prints)

    assert tools.ensure_tools([name], Silent()) == {name: program}


@pytest.mark.parametrize(
    ("name", "prints", "code"),
    [
        ("etcd", "etcd Version: 3.6.1", 0),
        ("kubelet", "Kubernetes v1.35.9", 0),
        ("pulumi", "v3.260.0", 0),
        ("etcd", "etcd Version: 3.5.35", 1),
        ("etcd", "what do you want?", 0),
    ],
)
def test_a_program_on_path_that_is_another_version_or_broken_is_not(only_path, name, prints, code):
    put_program(only_path, name, prints, code)

    assert tools.on_path(name) is None


def test_what_goes_into_an_image_is_never_taken_from_path(only_path):
    put_program(only_path, "etcd", "etcd Version: 3.5.35")

    with pytest.raises(EverstepError, match="Go is needed"):
        tools.ensure_tools(["etcd"], Silent(), static=True)


def test_pause_is_ours_alone(only_path):
    put_program(only_path, "pause", "pause 3.5.35")

    assert tools.on_path("pause") is None


def test_an_unknown_program_is_refused():
    with pytest.raises(ValueError, match="no such program in the toolchain: kubectl"):
        tools.ensure_tools(["etcd", "kubectl"], Silent())


def test_a_module_is_built_anew_when_its_sources_its_flags_or_go_change(tmp_path, monkeypatch):
    module = PROGRAMS["pause"]
    monkeypatch.setattr(binaries, "MODULES_FOLDER", tmp_path)
    folder = tmp_path / "pause"
    folder.mkdir()
    (folder / "go.mod").write_text("module pause\n")
    (folder / "main.go").write_text("package main\n")
    before = tools.module_key(module, "1.26.8")

    assert tools.module_key(module, "1.26.8") == before
    assert tools.module_key(module, "1.26.9") != before
    assert tools.module_key(dataclasses.replace(module, tags="netgo"), "1.26.8") != before
    (folder / "README").write_text("not built from")
    assert tools.module_key(module, "1.26.8") == before
    (folder / "go.sum").write_text("x v1.0.0 h1:abc=\n")
    assert tools.module_key(module, "1.26.8") != before
