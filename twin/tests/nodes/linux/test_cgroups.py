"""Trees of cgroups, versions 1 and 2, in folders of a test."""

import subprocess
from pathlib import Path

import pytest
from cloudtwin.nodes.linux.cgroups import Tree


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


def test_version_1_has_a_tree_for_each_controller(version_1: Path) -> None:
    tree = Tree.here(version_1)

    assert (tree.version, set(tree.controllers)) == (1, {"memory", "pids", "cpuset", "freezer"})
    assert version_1 / "memory" / "a/b" in tree.folders("a/b")


def test_version_2_has_one_tree(version_2: Path) -> None:
    tree = Tree.here(version_2)

    assert tree.version == 2
    assert tree.folders("a/b") == [version_2 / "a/b"]


def test_a_hybrid_host_counts_as_version_1(version_1: Path) -> None:
    (version_1 / "unified").mkdir()
    (version_1 / "unified" / "cgroup.controllers").write_text("")

    assert Tree.here(version_1).version == 1


def test_every_process_below_a_cgroup_is_found_once(version_1: Path) -> None:
    tree = Tree.here(version_1)
    for controller, path, pids in (
        ("memory", "e", "7\n8\n"),
        ("memory", "e/pods/x", "9\n"),
        ("pids", "e", "8\n0\n"),
    ):
        folder = version_1 / controller / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text(pids)

    assert tree.processes("e") == {7, 8, 9}
    assert tree.processes("unknown") == set()


def test_removing_a_cgroup_removes_its_children_and_no_sibling(version_1: Path) -> None:
    tree = Tree.here(version_1)
    for controller in tree.controllers:
        (version_1 / controller / "cloudtwin-a" / "machine" / "pods").mkdir(parents=True)
        (version_1 / controller / "cloudtwin-b").mkdir()
    assert tree.twin_names() == {"cloudtwin-a", "cloudtwin-b"}

    tree.remove("cloudtwin-a")

    assert tree.twin_names() == {"cloudtwin-b"}


def test_version_2_delegates_the_controllers_that_containers_need(version_2: Path) -> None:
    (version_2 / "cloudtwin-a").mkdir()
    (version_2 / "cloudtwin-a" / "cgroup.controllers").write_text("memory\n")

    Tree.here(version_2).create("cloudtwin-a/machine-b")

    assert (version_2 / "cgroup.subtree_control").read_text() in {"+cpu", "+memory", "+pids"}
    assert (version_2 / "cloudtwin-a" / "cgroup.subtree_control").read_text() == "+memory"
    assert (version_2 / "cloudtwin-a" / "machine-b").is_dir()


def test_a_program_is_in_its_cgroup_before_it_starts(version_1: Path) -> None:
    tree = Tree.here(version_1)
    for controller in tree.controllers:
        (version_1 / controller / "cloudtwin-a").mkdir()

    result = subprocess.run(
        [*tree.command_prefix("cloudtwin-a"), "sh", "-c", "echo $$"],
        capture_output=True,
        text=True,
        check=True,
    )

    for controller in tree.controllers:
        listing = version_1 / controller / "cloudtwin-a" / "cgroup.procs"
        assert listing.read_text() == result.stdout, "another process was put into the cgroup"
