from pathlib import Path

import pytest

from twin.images import bases, builders


def test_the_mirror_is_the_one_this_host_takes_debian_from():
    targets = (
        "nodesource|nodistro|https://deb.example/node/\n"
        "Debian|Debian-Security|http://mirror.example/debian-security/\n"
        "Debian|Debian|http://mirror.example/debian/\n"
    )

    assert bases.mirror_from(targets) == "http://mirror.example/debian"


@pytest.mark.parametrize("targets", ["", "Ubuntu|Ubuntu|http://mirror.example/ubuntu/\n", "||\n"])
def test_a_host_without_debian_sources_leaves_the_choice_to_mmdebstrap(targets):
    assert bases.mirror_from(targets) == ""


def test_how_the_host_reaches_its_mirror_is_passed_on_and_nothing_else():
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
    ("line", "what"),
    [
        ("tar: write error: No space left on device", "disk ran full"),
        ("E: Failed to fetch http://mirror.example Could not resolve", "could not be downloaded"),
        ("E: unable to chroot: Operation not permitted", "may not make torch"),
        ("E: Unable to locate package python3-torch", "could not make the base image torch"),
    ],
)
def test_a_base_that_cannot_be_made_says_why(line, what):
    assert what in bases.explain("torch", ["I: started", line], Path("/cache")).what


def test_a_base_is_made_anew_when_its_packages_change():
    one = bases.Base("python", ("python3",))
    two = bases.Base("python", ("python3", "python3-pip"))

    assert one.key != two.key
    assert one.reference == f"localhost/everstep/base-python:{one.key}"


@pytest.mark.parametrize(
    ("said", "what", "remedy"),
    [
        ("write /x: no space left on device", "The disk ran full", "Free"),
        ("kernel: overlay: invalid argument", "could not build x", "ext4"),
        ('COPY "gone": no such file', "no such file", ""),
    ],
)
def test_a_failed_build_says_what_a_user_can_put_right(said, what, remedy):
    error = builders.explain("buildah", "build x", said)

    assert what in error.what
    assert remedy in error.remedy
