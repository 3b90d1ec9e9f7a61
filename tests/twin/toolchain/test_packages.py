from twin.toolchain import packages
from twin.toolchain.packages import PACKAGES


def test_a_package_is_missing_when_any_proof_of_it_is():
    lacking = packages.missing(lambda proof: proof not in {"ctr", "/usr/lib/cni/bridge"})

    assert [package.name for package in lacking] == ["containerd", "containernetworking-plugins"]


def test_nothing_is_missing_where_every_proof_is_there():
    assert packages.missing(lambda proof: True) == []


def test_the_error_names_each_package_its_purpose_and_the_line_that_installs_all():
    error = packages.cannot_install(PACKAGES[:2])

    assert "containerd: runs a node's containers" in error.what
    assert error.remedy.endswith("apt-get install --no-install-recommends containerd runc")


def test_programs_are_found_in_sbin_where_path_leaves_it_out(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    lacking = packages.missing(lambda proof: proof != "ldconfig" or packages._is_there(proof))

    assert lacking == []
    assert packages._is_there("ldconfig"), "it lives in /sbin"
