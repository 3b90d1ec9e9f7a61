"""The state of a copy on disk: journal, compaction, lock."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import EverstepError
from everstep.staging import spool
from everstep.staging.entry import Record
from everstep.staging.journal import StagingState, locked_state, state_folder
from tests.effort import examples
from tests.everstep.staging.strategies import records


@settings(max_examples=examples(20))  # each example syncs files
@given(
    groups=st.lists(st.lists(records, max_size=4), max_size=4),
    compaction_interval=st.integers(1, 3),
)
def test_the_newest_record_of_each_file_survives_compaction(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[Record]], compaction_interval: int
) -> None:
    state = StagingState(tmp_path_factory.mktemp("state"))
    for number, group in enumerate(groups):
        state.append(group)
        if number % compaction_interval == 0:
            state.compact()
    state.compact()

    expected = {record.name: record for group in groups for record in group}
    kept_records = list(spool.read(state.records, Record))
    assert kept_records == sorted(expected.values(), key=spool.key_of)


def test_a_compaction_that_was_killed_before_its_end_is_repeated(tmp_path: Path) -> None:
    state = StagingState(tmp_path)
    state.append([Record("a", 1, "v1", "old")])
    state.compact()
    state.append([Record("a", 1, "v2", "new"), Record("b", 1, "v1", "b")])
    journal = state.journal.read_bytes()
    state.compact()
    # The state is the same as if the process had been killed before it removed the journal.
    state.journal.write_bytes(journal)

    state.compact()

    assert [record.sha256 for record in spool.read(state.records, Record)] == ["new", "b"]


def test_records_after_a_torn_line_are_kept(tmp_path: Path) -> None:
    state = StagingState(tmp_path)
    state.append([Record("a", 1, "v1", "a"), Record("b", 1, "v1", "b")])
    state.journal.write_bytes(state.journal.read_bytes()[:-5])
    state.compact()
    state.append([Record("c", 1, "v1", "c")])
    state.compact()

    assert [record.name for record in spool.read(state.records, Record)] == ["a", "c"]


def test_two_processes_cannot_stage_to_one_destination(tmp_path: Path) -> None:
    with (
        locked_state(tmp_path / "data"),
        pytest.raises(EverstepError, match="another process"),
        locked_state(tmp_path / "data"),
    ):
        pass


def test_the_state_is_beside_the_destination_and_the_destination_stays_empty(
    tmp_path: Path,
) -> None:
    with locked_state(tmp_path / "data") as state:
        assert state.folder.parent == tmp_path
        assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="/dev/shm does not exist")
def test_the_state_is_in_a_destination_that_is_mounted(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other_disk_folder:
        if Path(other_disk_folder).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is not a separate file system")
        mounted_folder = tmp_path / "mounted"
        # As with a mount, the parent is on another file system.
        mounted_folder.symlink_to(other_disk_folder)

        assert state_folder(mounted_folder) == mounted_folder / ".everstep-staging"
        assert [path.name for path in tmp_path.iterdir()] == ["mounted"]
        assert list(Path(other_disk_folder).iterdir()) == []
