"""Base images: mirrors, options of apt, keys and errors of builds."""

from pathlib import Path

import pytest
from cloudtwin.images import bases, buildah


def test_the_mirror_is_taken_from_the_debian_sources_of_the_host() -> None:
    targets = (
        "nodesource|nodistro|https://deb.example/node/\n"
        "Debian|Debian-Security|http://mirror.example/debian-security/\n"
        "Debian|Debian|http://mirror.example/debian/\n"
    )

    assert bases.mirror_from(targets) == "http://mirror.example/debian"


@pytest.mark.parametrize("targets", ["", "Ubuntu|Ubuntu|http://mirror.example/ubuntu/\n", "||\n"])
def test_a_host_without_debian_sources_leaves_the_choice_to_mmdebstrap(targets: str) -> None:
    assert bases.mirror_from(targets) == ""


def test_only_transport_options_of_apt_are_copied_from_the_host() -> None:
    dump = (
        'APT::Architecture "amd64";\n'
        'Acquire::http "";\n'
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::IndexTargets::deb "";\n'
        'Acquire::Check-Valid-Until "false";\n'
    )

    assert bases.transport_options(dump) == [
        'Acquire::http::Proxy "http://proxy.example:3128"',
        'Acquire::Check-Valid-Until "false"',
    ]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("tar: write error: No space left on device", "disk is full"),
        ("E: Failed to fetch http://mirror.example Could not resolve", "could not be downloaded"),
        ("E: unable to chroot: Operation not permitted", "not permitted to build torch"),
        ("E: Unable to locate package python3-torch", "could not build the base image torch"),
    ],
)
def test_a_failed_build_of_a_base_names_the_cause(line: str, cause: str) -> None:
    assert cause in bases.explain("torch", ["I: started", line], Path("/cache")).problem


def test_a_base_is_built_again_when_its_packages_change() -> None:
    base = bases.Base("python", ("python3",))
    changed_base = bases.Base("python", ("python3", "python3-pip"))

    assert base.key != changed_base.key
    assert base.reference == f"localhost/cloudtwin/base-python:{base.key}"


@pytest.mark.parametrize(
    ("output", "cause", "fix"),
    [
        ("write /x: no space left on device", "The disk is full", "Free"),
        (
            "kernel: overlay: invalid argument",
            "could not build x",
            "ext4, xfs): set CLOUDTWIN_CACHE",
        ),
        ('COPY "gone": no such file', "no such file", ""),
    ],
)
def test_a_failed_build_explains_the_cause_and_the_fix(output: str, cause: str, fix: str) -> None:
    error = buildah.explain("build x", output)

    assert cause in error.problem
    assert fix in error.fix
    assert bool(error.fix) is bool(fix)
