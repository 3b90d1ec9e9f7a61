"""Packages of the host that a twin needs."""

from pathlib import Path

import pytest
from cloudtwin.toolchain import packages
from cloudtwin.toolchain.packages import PACKAGES, Package


def test_a_package_is_missing_when_one_of_its_files_is() -> None:
    missing_packages = packages.missing(lambda file: file not in {"ctr", "/usr/lib/cni/bridge"})

    assert [package.name for package in missing_packages] == [
        "containerd",
        "containernetworking-plugins",
    ]


def test_no_package_is_missing_when_every_file_exists() -> None:
    assert packages.missing(lambda file: True) == []


def test_the_error_names_each_package_its_purpose_and_the_install_command() -> None:
    error = packages.not_installed_error(PACKAGES[:2])

    assert "containerd: runs a node's containers" in error.problem
    assert error.fix.endswith("apt-get install --no-install-recommends containerd runc")


def test_programs_in_the_system_folders_are_found_without_them_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Package("nftables", ("nft",), "applies the rules of services")
    monkeypatch.setattr(packages, "PACKAGES", (package,))
    monkeypatch.setattr(packages, "SYSTEM_FOLDERS", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")

    assert packages.missing() == [package]
    (tmp_path / "nft").touch(mode=0o755)
    assert packages.missing() == []
