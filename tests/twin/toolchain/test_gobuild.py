from pathlib import Path

import pytest

from everstep.errors import EverstepError
from everstep.progress import Silent
from twin.toolchain import gobuild
from twin.toolchain.binaries import PROGRAMS


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("write /tmp/go-build1/b001: no space left on device", "disk ran full", "GOCACHE"),
        ("dial tcp: lookup proxy.invalid: no such host", "could not be downloaded", "GOPROXY"),
        ("go: module lookup disabled by GOPROXY=off", "could not be downloaded", "GOPROXY"),
        ("compile: signal: killed", "memory ran out", "GOFLAGS=-p=1"),
        ("main.go:3: undefined: Run", "undefined: Run", ""),
    ],
)
def test_a_failed_build_says_what_a_user_can_put_right(line, what, remedy):
    error = gobuild.explain("etcd", ["go: finding x", line], Path("/cache/.staging"))

    assert "etcd" in error.what
    assert what in error.what
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("1.25.9", "1.26.0", True),
        ("1.26", "1.26.0", False),
        ("1.26.8", "1.26", False),
        ("1.9.1", "1.26", True),
        ("2.0", "1.26", False),
    ],
)
def test_go_versions_are_compared_by_number(version, than, older):
    assert gobuild.is_older(version, than) is older


def test_a_go_that_is_too_old_and_may_not_fetch_a_newer_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("GOTOOLCHAIN", "local")
    old = gobuild.Go("/usr/bin/go", "1.19.8")

    with pytest.raises(
        EverstepError, match=r"etcd needs Go 1\.26\S* or newer; /usr/bin/go is 1\.19"
    ):
        gobuild.build(PROGRAMS["etcd"], old, tmp_path, Silent())


def test_without_go_the_error_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(EverstepError, match="not on PATH") as caught:
        gobuild.find_go()

    assert "https://go.dev/dl/" in caught.value.remedy


def test_a_build_edits_no_lock_file_and_puts_no_path_of_this_machine_into_a_program():
    for module in {program.name: program for program in PROGRAMS.values()}.values():
        assert {"-mod=readonly", "-trimpath"} <= set(gobuild.flags(module))


def test_programs_that_are_built_alone_are_named_by_us():
    go = gobuild.Go("go", "1.26")

    assert "/out/etcd" in gobuild.command(PROGRAMS["etcd"], go, Path("/out"))
    assert "/out/" in gobuild.command(PROGRAMS["kubelet"], go, Path("/out"))
