"""Builds with Go: commands, versions and errors."""

from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.progress import Silent
from cloudtwin.toolchain import gobuild
from cloudtwin.toolchain.binaries import PROGRAMS


@pytest.mark.parametrize(
    ("line", "cause", "fix"),
    [
        ("write /tmp/go-build1/b001: no space left on device", "disk filled up", "GOCACHE"),
        ("dial tcp: lookup proxy.invalid: no such host", "could not be downloaded", "GOPROXY"),
        ("go: module lookup disabled by GOPROXY=off", "could not be downloaded", "GOPROXY"),
        ("compile: signal: killed", "memory ran out", "GOFLAGS=-p=1"),
        ("main.go:3: undefined: Run", "undefined: Run", ""),
    ],
)
def test_a_failed_build_explains_the_cause_and_the_fix(line: str, cause: str, fix: str) -> None:
    error = gobuild.explain("etcd", ["go: finding x", line], Path("/cache/.staging"))

    assert "etcd" in error.problem
    assert cause in error.problem
    assert fix in error.fix
    assert bool(error.fix) is bool(fix)


@pytest.mark.parametrize(
    ("version", "other", "expected"),
    [
        ("1.25.9", "1.26.0", True),
        ("1.26", "1.26.0", False),
        ("1.26.8", "1.26", False),
        ("1.9.1", "1.26", True),
        ("2.0", "1.26", False),
    ],
)
def test_go_versions_are_compared_by_number(version: str, other: str, expected: bool) -> None:
    assert gobuild.is_older(version, other) is expected


def test_a_go_that_is_too_old_and_may_not_download_a_newer_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOTOOLCHAIN", "local")
    old_go = gobuild.Go("/usr/bin/go", "1.19.8")

    with pytest.raises(TwinError, match=r"etcd needs Go 1\.26\S* or newer; /usr/bin/go is 1\.19"):
        gobuild.build(PROGRAMS["etcd"], old_go, tmp_path, Silent())


def test_the_error_for_a_missing_go_has_its_download_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(TwinError, match="not on PATH") as error:
        gobuild.find_go()

    assert "https://go.dev/dl/" in error.value.fix


def test_a_build_changes_no_lock_file_and_embeds_no_path_of_the_host() -> None:
    for module in PROGRAMS.values():
        assert {"-mod=readonly", "-trimpath"} <= set(gobuild.flags(module))


def test_a_single_program_gets_its_name_from_the_output_path() -> None:
    go = gobuild.Go("go", "1.26")

    assert "/out/etcd" in gobuild.command(PROGRAMS["etcd"], go, Path("/out"))
    assert "/out/" in gobuild.command(PROGRAMS["kubelet"], go, Path("/out"))
