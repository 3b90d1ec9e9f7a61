"""Leftovers of twins, their folders, and twins that do not run."""

import shlex
import subprocess
from pathlib import Path

import pytest
from cloudtwin import paths
from cloudtwin.errors import TwinError
from cloudtwin.nodes import MachineSpec, Role, Twin, doctor
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import mounts
from cloudtwin.owned_folders import claim
from cloudtwin.progress import Silent

from twin.tests.waiting import wait_until


def test_a_network_holder_is_recognized_by_its_command_line() -> None:
    network_holder = [
        "/venv/bin/python",
        "-m",
        "cloudtwin.nodes.control_plane.network_holder",
        "/state/default",
    ]

    assert doctor.state_of_network_holder(network_holder) == Path("/state/default")
    assert doctor.state_of_network_holder(network_holder[:3]) is None
    assert (
        doctor.state_of_network_holder(
            ["python", "-m", "cloudtwin.nodes.machine.boot", "/state/default"]
        )
        is None
    )
    assert doctor.state_of_network_holder([]) is None


def test_mounts_are_found_deepest_first_with_spaces_in_their_names(tmp_path: Path) -> None:
    info = tmp_path / "mountinfo"
    info.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:4 net:[1] /state/a/net rw - nsfs nsfs rw\n"
        "3 1 8:1 /x /state/a/my\\040disk/var rw - ext4 /dev/a rw\n"
        "4 1 8:1 /x /statement rw - ext4 /dev/a rw\n"
    )

    assert mounts.mount_points_below(Path("/state"), info) == [
        Path("/state/a/my disk/var"),
        Path("/state/a/net"),
    ]


def test_equal_names_under_different_roots_are_different_twins() -> None:
    assert Layout(Path("/a/default")).identity != Layout(Path("/b/default")).identity
    assert Layout(Path("/a/default")).identity.startswith("cloudtwin-default-")


@pytest.fixture
def state_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("CLOUDTWIN_NAME", raising=False)
    return tmp_path / "state"


def test_the_environment_selects_the_folder_of_a_twin(
    state_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert paths.state_directory() == state_root / "default"
    monkeypatch.setenv("CLOUDTWIN_NAME", "second")
    assert paths.state_directory() == state_root / "second"
    assert paths.state_directory("third") == state_root / "third"


@pytest.mark.parametrize("name", ["../etc", "A", "a b", "-a", "a" * 31, "."])
def test_a_name_that_is_not_valid_for_a_folder_is_refused(state_root: Path, name: str) -> None:
    with pytest.raises(TwinError, match="cannot name a twin"):
        Twin.open(name)


def test_an_operation_on_a_stopped_twin_is_refused_and_creates_nothing(state_root: Path) -> None:
    with pytest.raises(TwinError, match="'default' is not running"):
        Twin.open().vanish("gpu-0")

    assert not state_root.exists()


def test_the_status_of_a_stopped_twin_can_be_read(state_root: Path) -> None:
    status = Twin.open().status()

    assert not status.machines
    assert not any(status.components.values())
    assert not state_root.exists()


def test_a_state_folder_without_its_network_holder_is_a_leftover(state_root: Path) -> None:
    claim(state_root / "old")

    states = [entry for entry in doctor.leftovers() if entry.kind == "state"]

    assert [entry.name for entry in states] == [str(state_root / "old")]
    assert "CLOUDTWIN_NAME=old" in states[0].how_to_remove


@pytest.mark.parametrize("name", ["default", "lost+found"])
def test_a_users_folder_in_the_state_root_survives_down_and_is_not_listed(
    state_root: Path, name: str
) -> None:
    photograph = state_root / name / "images" / "0.jpg"
    photograph.parent.mkdir(parents=True)
    photograph.touch()

    with pytest.raises(TwinError, match="it has files of another origin"):
        Twin(Layout(state_root / name)).down(Silent())

    assert [path for path in state_root.rglob("*") if path.is_file()] == [photograph]
    assert not [entry for entry in doctor.leftovers() if str(state_root) in entry.name]


def test_up_refuses_a_users_folder_and_changes_nothing(
    state_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtwin.nodes.linux.requirements.missing_requirements", list)
    (state_root / "default").mkdir(parents=True)
    (state_root / "default" / "notes.txt").touch()

    with pytest.raises(TwinError, match="it has files of another origin"):
        Twin.open().up([], Silent())

    assert [path.name for path in (state_root / "default").iterdir()] == ["notes.txt"]


def test_a_mount_is_a_leftover_only_in_the_folder_of_a_twin(
    state_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(state_root / "old")
    (state_root / "nfs").mkdir()
    targets = [state_root / "nfs", state_root / "old" / "disk"]
    monkeypatch.setattr(mounts, "mount_points_below", lambda _root: targets)

    listed = [entry.name for entry in doctor.leftovers() if entry.kind == "mount"]

    assert listed == [str(targets[1])]


def test_down_removes_the_folder_of_a_twin(state_root: Path) -> None:
    claim(state_root / "default")
    (state_root / "default" / "shared").mkdir()

    Twin.open().down(Silent())

    assert not state_root.exists()


@pytest.mark.parametrize(("missing", "problem"), [(["root"], "missing: root"), ([], "'No_Name'")])
def test_a_refused_up_leaves_nothing_behind(
    state_root: Path, monkeypatch: pytest.MonkeyPatch, missing: list[str], problem: str
) -> None:
    monkeypatch.setattr("cloudtwin.nodes.linux.requirements.missing_requirements", lambda: missing)

    with pytest.raises(TwinError, match=problem):
        Twin.open().up([MachineSpec("No_Name", Role.GPU)], Silent())

    assert not state_root.exists()


def test_a_command_for_a_folder_with_spaces_can_be_run_in_a_shell() -> None:
    command = doctor.down_command(Path("/my state/default"))

    assert shlex.split(command)[:2] == ["CLOUDTWIN_STATE=/my state", "CLOUDTWIN_NAME=default"]


def test_arguments_of_a_process_may_be_any_bytes() -> None:
    child = subprocess.Popen([b"sh", b"-c", b"read line", b"\xff"], stdin=subprocess.PIPE)
    try:
        arguments = Path(f"/proc/{child.pid}/cmdline")
        wait_until(lambda: bool(arguments.read_bytes()), "the program has its arguments", 60)
        described = f"{child.pid} sh -c read line \N{REPLACEMENT CHARACTER}"
        assert doctor._process(child.pid).name == described
    finally:
        child.communicate()
