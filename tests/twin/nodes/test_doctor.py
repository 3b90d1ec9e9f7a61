from pathlib import Path

import pytest

from everstep.errors import EverstepError
from everstep.progress import Silent
from twin import paths
from twin.nodes import MachineSpec, Role, Twin, doctor, mounts
from twin.nodes.layout import Layout


def test_a_keeper_is_told_by_its_command_line():
    keeper = ["/venv/bin/python", "-m", "twin.nodes.keeper", "/state/default"]

    assert doctor.state_of_keeper(keeper) == Path("/state/default")
    assert doctor.state_of_keeper(keeper[:3]) is None
    assert doctor.state_of_keeper(["python", "-m", "twin.nodes.boot", "/state/default"]) is None
    assert doctor.state_of_keeper([]) is None


def test_mounts_are_found_deepest_first_with_blanks_in_their_names(tmp_path):
    info = tmp_path / "mountinfo"
    info.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:4 net:[1] /state/a/net rw - nsfs nsfs rw\n"
        "3 1 8:1 /x /state/a/my\\040disk/var rw - ext4 /dev/a rw\n"
        "4 1 8:1 /x /statement rw - ext4 /dev/a rw\n"
    )

    assert mounts.below(Path("/state"), info) == [
        Path("/state/a/my disk/var"),
        Path("/state/a/net"),
    ]


def test_namesakes_under_different_roots_are_different_twins():
    assert Layout(Path("/a/default")).identity != Layout(Path("/b/default")).identity
    assert Layout(Path("/a/default")).identity.startswith("everstep-default-")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERSTEP_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("EVERSTEP_TWIN", raising=False)
    return tmp_path / "state"


def test_the_folder_of_a_twin_follows_the_environment(elsewhere, monkeypatch):
    assert paths.state_directory() == elsewhere / "default"
    monkeypatch.setenv("EVERSTEP_TWIN", "second")
    assert paths.state_directory() == elsewhere / "second"
    assert paths.state_directory("third") == elsewhere / "third"


@pytest.mark.parametrize("name", ["../etc", "A", "a b", "-a", "a" * 31, "."])
def test_a_name_that_could_not_be_a_folder_is_refused(elsewhere, name):
    with pytest.raises(EverstepError, match="cannot name a twin"):
        Twin.open(name)


def test_a_verb_on_a_twin_that_does_not_stand_says_so_and_makes_nothing(elsewhere):
    with pytest.raises(EverstepError, match="'default' does not stand"):
        Twin.open().vanish("gpu-0")

    assert not elsewhere.exists()


def test_the_status_of_a_twin_that_does_not_stand_can_be_asked(elsewhere):
    status = Twin.open().status()

    assert not status.standing
    assert not elsewhere.exists()


def test_a_state_folder_without_its_keeper_is_a_leftover(elsewhere):
    (elsewhere / "old").mkdir(parents=True)

    found = [entry for entry in doctor.leftovers() if entry.kind == "state"]

    assert [entry.what for entry in found] == [str(elsewhere / "old")]
    assert "EVERSTEP_TWIN=old" in found[0].how_to_remove


@pytest.mark.parametrize("fault", ["host", "name"])
def test_an_up_that_cannot_be_leaves_nothing_behind(elsewhere, monkeypatch, fault):
    lacking = ["root"] if fault == "host" else []
    monkeypatch.setattr("twin.nodes.host.missing_abilities", lambda: lacking)

    with pytest.raises(EverstepError, match=r"missing: root|'No_Name'"):
        Twin.open().up([MachineSpec("No_Name", Role.GPU)], Silent())

    assert not elsewhere.exists()
