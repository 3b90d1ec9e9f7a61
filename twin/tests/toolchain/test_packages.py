"""Packages of the host that a twin needs."""

import pytest
from cloudtwin.toolchain import packages
from cloudtwin.toolchain.packages import PACKAGES


def test_a_package_is_missing_when_one_of_its_files_is() -> None:
    missing_packages = packages.missing(lambda proof: proof not in {"ctr", "/usr/lib/cni/bridge"})

    assert [package.name for package in missing_packages] == [
        "containerd",
        "containernetworking-plugins",
    ]


def test_no_package_is_missing_when_every_file_exists() -> None:
    assert packages.missing(lambda proof: True) == []


def test_the_error_names_each_package_its_purpose_and_the_install_command() -> None:
    error = packages.cannot_install(PACKAGES[:2])

    assert "containerd: runs a node's containers" in error.problem
    assert error.fix.endswith("apt-get install --no-install-recommends containerd runc")


def test_programs_in_sbin_are_found_without_it_on_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert packages._is_present("ldconfig"), "it is in /sbin"
