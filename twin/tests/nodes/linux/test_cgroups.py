"""Cgroup hierarchies, versions 1 and 2, in temporary folders."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cloudtwin.nodes.linux.cgroups import V1_REQUIRED, CgroupHierarchies


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    for name in ("memory", "pids", "cpuset", "freezer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("1\n")
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    return tmp_path


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids rdma\n")
    return tmp_path


def test_version_1_has_a_hierarchy_for_each_controller(version_1: Path) -> None:
    cgroups = CgroupHierarchies.detect(version_1)

    assert (cgroups.version, set(cgroups.controllers)) == (
        1,
        {"memory", "pids", "cpuset", "freezer"},
    )
    assert version_1 / "memory" / "a/b" in cgroups.folders("a/b")


def test_version_2_has_one_hierarchy(version_2: Path) -> None:
    cgroups = CgroupHierarchies.detect(version_2)

    assert cgroups.version == 2
    assert cgroups.folders("a/b") == [version_2 / "a/b"]


def test_a_hybrid_host_counts_as_version_1(version_1: Path) -> None:
    (version_1 / "unified").mkdir()
    (version_1 / "unified" / "cgroup.controllers").write_text("")

    assert CgroupHierarchies.detect(version_1).version == 1


def test_every_process_below_a_cgroup_is_found_once(version_1: Path) -> None:
    cgroups = CgroupHierarchies.detect(version_1)
    for controller, path, pids in (
        ("memory", "e", "7\n8\n"),
        ("memory", "e/pods/x", "9\n"),
        ("pids", "e", "8\n0\n"),
    ):
        folder = version_1 / controller / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text(pids)

    assert cgroups.processes("e") == {7, 8, 9}
    assert cgroups.processes("unknown") == set()


def test_cgroups_that_others_remove_meanwhile_are_skipped(version_1: Path) -> None:
    """The kubelet and runc remove the cgroups of pods while a twin is taken down."""
    cgroups = CgroupHierarchies.detect(version_1)
    pods = version_1 / "memory" / "e" / "pods"
    pods.mkdir(parents=True)
    (pods.parent / "cgroup.procs").write_text("7\n")
    end = threading.Event()

    def create_and_remove() -> None:
        while not end.is_set():
            (pods / "pod" / "container").mkdir(parents=True)
            (pods / "pod" / "container").rmdir()
            (pods / "pod").rmdir()

    with ThreadPoolExecutor() as executor:
        churn = executor.submit(create_and_remove)
        try:
            readings = [cgroups.processes("e") for _ in range(1000)]
        finally:
            end.set()
        churn.result()

    assert readings == [{7}] * 1000


def test_removing_a_cgroup_removes_its_children_and_no_sibling(version_1: Path) -> None:
    cgroups = CgroupHierarchies.detect(version_1)
    for controller in cgroups.controllers:
        (version_1 / controller / "cloudtwin-a" / "machine" / "pods").mkdir(parents=True)
        (version_1 / controller / "cloudtwin-b").mkdir()
    assert cgroups.twin_names() == {"cloudtwin-a", "cloudtwin-b"}

    cgroups.remove("cloudtwin-a")

    assert cgroups.twin_names() == {"cloudtwin-b"}


def test_version_2_delegates_the_controllers_that_containers_need(
    version_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = version_2 / "cloudtwin-a"
    twin.mkdir()
    (twin / "cgroup.controllers").write_text("memory\n")
    writes: list[tuple[Path, str]] = []
    monkeypatch.setattr(Path, "write_text", lambda path, text: writes.append((path, text)))

    CgroupHierarchies.detect(version_2).create("cloudtwin-a/machine-b")

    assert {path.name for path, _ in writes} == {"cgroup.subtree_control"}
    assert sorted((path.parent, text) for path, text in writes) == [
        (version_2, "+cpu"),
        (version_2, "+memory"),
        (version_2, "+pids"),
        (twin, "+memory"),
    ]
    assert (twin / "machine-b").is_dir()


def test_a_program_is_in_its_cgroup_before_it_starts(version_1: Path) -> None:
    cgroups = CgroupHierarchies.detect(version_1)
    for controller in cgroups.controllers:
        (version_1 / controller / "cloudtwin-a").mkdir()

    result = subprocess.run(
        [*cgroups.command_prefix("cloudtwin-a"), "sh", "-c", "echo $$"],
        capture_output=True,
        text=True,
        check=True,
    )

    for controller in cgroups.controllers:
        listing = version_1 / controller / "cloudtwin-a" / "cgroup.procs"
        assert listing.read_text() == result.stdout, "another process was put into the cgroup"


def test_cgroups_can_be_created_where_every_required_hierarchy_is_writable(tmp_path: Path) -> None:
    for name in V1_REQUIRED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()

    assert not CgroupHierarchies.detect(tmp_path).problems()


def test_missing_hierarchies_are_named(version_1: Path, tmp_path: Path) -> None:
    (problem,) = CgroupHierarchies.detect(version_1).problems()
    assert problem == f"no cgroup hierarchy cpu, cpuacct, devices in {version_1}"

    (problem,) = CgroupHierarchies.detect(tmp_path / "none").problems()
    assert problem == f"no cgroup hierarchies in {tmp_path / 'none'}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_hierarchy_that_is_mounted_read_only_is_named_even_to_root(version_2: Path) -> None:
    check = (
        "from pathlib import Path; from cloudtwin.nodes.linux.cgroups import CgroupHierarchies; "
        f"print(CgroupHierarchies.detect(Path({str(version_2)!r})).problems())"
    )
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3"'

    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(version_2), sys.executable]
    result = subprocess.run([*command, check], capture_output=True, text=True, check=False)
    if "mount" in result.stderr:
        pytest.skip(f"mounts are not allowed here: {result.stderr}")

    assert result.stdout.strip() == str([f"read-only cgroups: {version_2}"]), result.stderr
