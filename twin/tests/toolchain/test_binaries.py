"""Versions of the programs: required, reported and accepted."""

import re

import pytest
from cloudtwin.toolchain.binaries import (
    MODULES,
    PROGRAMS,
    VersionPrecision,
    is_accepted,
    reported_version,
    required_version,
)

GO_MOD = """module everstep/toolchain/etcd

go 1.26.0

require go.etcd.io/etcd/server/v3 v3.5.35

require (
	go.etcd.io/etcd/api/v3 v3.5.34 // indirect
	k8s.io/kubernetes v1.36.3
)
"""


@pytest.mark.parametrize(
    ("origin", "version"),
    [
        ("go.etcd.io/etcd/server/v3", "3.5.35"),
        ("go.etcd.io/etcd/api/v3", "3.5.34"),
        ("k8s.io/kubernetes", "1.36.3"),
        ("k8s.io/kube", ""),
        ("", ""),
    ],
)
def test_a_version_is_read_from_a_line_or_a_block_of_go_mod(origin: str, version: str) -> None:
    assert required_version(GO_MOD, origin) == version


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("Kubernetes v1.36.3\n", "1.36.3"),
        ("etcd Version: 3.5.35\nGit SHA: abc1234\nGo Version: go1.26.8", "3.5.35"),
        ("CoreDNS-1.14.7\nlinux/amd64, go1.26.8, ", "1.14.7"),
        ("v3.259.0\n", "3.259.0"),
        ("usage: etcd", ""),
    ],
)
def test_a_version_is_read_from_the_output_of_each_program(output: str, version: str) -> None:
    assert reported_version(output) == version


@pytest.mark.parametrize(
    ("version", "precision", "expected"),
    [
        ("1.36.9", VersionPrecision.MINOR, True),
        ("1.35.3", VersionPrecision.MINOR, False),
        ("2.36.3", VersionPrecision.MINOR, False),
        ("1.36.3", VersionPrecision.PATCH, True),
        ("1.36.4", VersionPrecision.PATCH, False),
        ("", VersionPrecision.MINOR, False),
    ],
)
def test_a_program_on_path_is_accepted_if_its_version_matches_at_its_precision(
    version: str, precision: VersionPrecision, expected: bool
) -> None:
    assert is_accepted(version, "1.36.3", precision) is expected


def test_every_module_is_locked_at_one_version_and_has_its_checksums() -> None:
    for module in MODULES:
        if module.origin:
            assert re.fullmatch(r"\d+\.\d+\.\d+", module.version), module.name
            sums = (module.folder / "go.sum").read_text()
            assert f"{module.origin} v{module.version} h1:" in sums, module.name


def test_kubernetes_is_linked_with_the_version_it_reports() -> None:
    flags = PROGRAMS["kubelet"].linker_flags

    version = PROGRAMS["kubelet"].version
    assert f"gitVersion=v{version}" in flags
    assert f"gitMinor={version.split('.')[1]}" in flags
