"""A complete copy: its manifest, a second run, verification, interruption."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep.errors import EverstepError
from everstep.staging import copier
from everstep.staging import stage as staging
from everstep.staging.content import Content, FileError
from everstep.staging.copier import CopyProgress
from everstep.staging.entry import MANIFEST, STATE_FOLDER, Entry
from everstep.staging.plan import Volume
from everstep.staging.sources.folder import FolderSource
from everstep.staging.stage import Observer, Options, StagingPlan, plan, stage
from tests.everstep.staging.kills import kill_repeatedly
from tests.everstep.staging.trees import files_of, make_tree, missing_files, wrong_files

TEBIBYTE = 1 << 40


class InterruptingObserver(Observer):
    """An observer that interrupts a run, as Ctrl-C does, after a number of progress reports."""

    def __init__(self, reports: int) -> None:
        self._reports = reports

    def report_progress(self, progress: CopyProgress) -> None:
        self._reports -= 1
        if self._reports < 0:
            raise KeyboardInterrupt


class RecordingSource(FolderSource):
    """A folder that runs an action before a file is read, and records the names of files."""

    def __init__(self, folder: Path, action: Callable[[Entry], None] = lambda _: None) -> None:
        super().__init__(folder)
        self._action = action
        self.names_read: list[str] = []

    @contextmanager
    def open(self, entry: Entry, offset: int) -> Iterator[Content]:
        with super().open(entry, offset) as content:
            self.names_read.append(entry.name)
            self._action(entry)
            yield content


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "source", 60)


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "volume" / "data"


def run(source: FolderSource, destination: Path, *, verify: bool = False) -> StagingPlan:
    return stage(source, destination, Options(workers=4, verify=verify), Observer())


def test_a_copy_has_all_files_and_a_manifest_that_sha256sum_accepts(
    source: Path, destination: Path
) -> None:
    (source / "new\nline \\ and space").write_text("x")
    (source / os.fsdecode(b"not-utf-8-\xff")).write_text("y")

    staging_plan = run(FolderSource(source), destination)

    assert staging_plan.listed.files == staging_plan.to_copy.files == 62
    assert wrong_files(source, destination) == []
    assert missing_files(source, destination) == set()
    result = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", MANIFEST],
        cwd=destination, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert len((destination / MANIFEST).read_text(errors="replace").splitlines()) == 62


def test_a_second_run_reads_nothing(source: Path, destination: Path) -> None:
    run(FolderSource(source), destination)
    recording_source = RecordingSource(source)

    staging_plan = run(recording_source, destination)

    assert recording_source.names_read == []
    assert staging_plan.complete == staging_plan.listed


def test_a_run_copies_files_that_are_new_changed_or_lost_since_the_last_one(
    source: Path, destination: Path
) -> None:
    run(FolderSource(source), destination)
    names = sorted(files_of(source))
    (source / names[1]).write_text("changed")
    (source / "new").write_text("new")
    (destination / names[2]).unlink()
    (destination / names[3]).write_bytes(b"of another size")
    (source / names[4]).unlink()
    recording_source = RecordingSource(source)

    run(recording_source, destination)

    assert sorted(recording_source.names_read) == sorted([names[1], "new", names[2], names[3]])
    assert wrong_files(source, destination) == [names[4]], "a file is never removed"
    assert names[4] not in (destination / MANIFEST).read_text()


def test_verification_finds_and_repairs_a_file_that_was_damaged(
    source: Path, destination: Path
) -> None:
    run(FolderSource(source), destination)
    damaged_name = next(name for name, path in files_of(source).items() if path.stat().st_size > 1)
    content = (source / damaged_name).read_bytes()
    (destination / damaged_name).write_bytes(b"x" * len(content))
    recording_source = RecordingSource(source)

    staging_plan = run(recording_source, destination, verify=True)

    assert recording_source.names_read == [damaged_name]
    assert staging_plan.to_check == staging_plan.listed
    assert wrong_files(source, destination) == []


def test_an_interrupted_run_continues_where_it_ended(
    source: Path, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "GROUP_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        stage(FolderSource(source), destination, Options(workers=2), InterruptingObserver(5))
    assert wrong_files(source, destination) == []
    copied_names = set(files_of(destination))
    assert 0 < len(copied_names) < 60
    recording_source = RecordingSource(source)

    run(recording_source, destination)

    assert len(recording_source.names_read) < 60
    assert missing_files(source, destination) == set()


def test_a_file_that_changes_while_it_is_copied_is_named_and_the_others_are_complete(
    source: Path, destination: Path
) -> None:
    changing_name = sorted(files_of(source))[9]

    def write(entry: Entry) -> None:
        if entry.name == changing_name:
            path = source / changing_name
            path.write_bytes(b"y" * path.stat().st_size)
            os.utime(
                path, ns=(0, int(entry.version))
            )  # detected even if the modification time is set back

    with pytest.raises(EverstepError, match="1 file could not be copied") as error:
        run(RecordingSource(source, write), destination)

    assert f"{changing_name} changed while it was copied" in error.value.problem
    assert "Run the command again" in error.value.fix
    assert missing_files(source, destination) == {changing_name}
    assert not (destination / MANIFEST).exists()
    run(FolderSource(source), destination)
    assert wrong_files(source, destination) == []
    assert missing_files(source, destination) == set()


def test_a_file_that_is_removed_after_it_was_listed_is_named(
    source: Path, destination: Path
) -> None:
    *_, last_name = sorted(files_of(source))

    def remove(entry: Entry) -> None:
        (source / last_name).unlink(missing_ok=True)

    with pytest.raises(EverstepError, match=f"{last_name} was removed after it was listed"):
        stage(RecordingSource(source, remove), destination, Options(workers=1), Observer())


def test_a_run_with_many_files_that_cannot_be_copied_stops_and_says_so(
    tmp_path: Path, destination: Path
) -> None:
    def fail(entry: Entry) -> None:
        raise FileError(f"{entry.name} cannot be read", "Check its permissions.")

    many_files = make_tree(tmp_path / "many", 2 * copier.MAX_FAILURES)

    with pytest.raises(EverstepError, match="could not be copied; then the copy stopped") as error:
        run(RecordingSource(many_files, fail), destination)

    assert "complete" not in error.value.problem, "some of the others were not copied"


def test_a_volume_that_is_too_small_is_reported_before_anything_is_copied(
    source: Path, destination: Path
) -> None:
    with (source / "sparse").open("wb") as file:
        file.truncate(15 * TEBIBYTE)  # ext4 limits a file to 16 TiB

    with pytest.raises(EverstepError, match=r"bytes free; 16,\d{3},") as error:
        run(FolderSource(source), destination)

    assert "Enlarge the volume" in error.value.fix
    assert files_of(destination) == {}


def test_space_that_an_incomplete_file_occupies_counts_as_free(
    source: Path, destination: Path
) -> None:
    staging_plan = plan(FolderSource(source), destination, Options(), Observer())
    partial = destination.parent / ".data.everstep-staging" / "partial" / "file"
    with partial.open("wb") as file:
        file.truncate(TEBIBYTE)

    second_plan = plan(FolderSource(source), destination, Options(), Observer())

    assert second_plan.free_bytes - staging_plan.free_bytes > TEBIBYTE // 2
    assert not partial.exists(), "it belongs to no file of the source"


def test_a_plan_copies_nothing(source: Path, destination: Path) -> None:
    staging_plan = plan(FolderSource(source), destination, Options(), Observer())

    assert staging_plan.to_copy.files == 60
    assert files_of(destination) == {}


def test_an_empty_source_is_refused(tmp_path: Path, destination: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(EverstepError, match="has no files"):
        run(FolderSource(tmp_path / "empty"), destination)


def test_the_manifest_of_a_source_that_was_itself_staged_is_not_copied(
    source: Path, destination: Path, tmp_path: Path
) -> None:
    run(FolderSource(source), destination)

    staging_plan = run(FolderSource(destination), tmp_path / "second")

    assert staging_plan.listed.files == 60


def test_the_state_in_a_source_that_was_itself_staged_is_not_copied(
    source: Path, destination: Path
) -> None:
    (source / STATE_FOLDER).mkdir()
    (source / STATE_FOLDER / "records").touch()

    run(FolderSource(source), destination)

    assert missing_files(source, destination) == set()
    assert not (destination / STATE_FOLDER).exists(), "later runs would take it for their own"


def test_a_destination_that_cannot_be_written_stops_the_run(
    source: Path, destination: Path
) -> None:
    def fail(entry: Entry) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/volume")

    with pytest.raises(EverstepError, match="/volume: No space left on device") as error:
        run(RecordingSource(source, fail), destination)

    assert "run the same command again" in error.value.fix


@pytest.mark.timeout(300)
def test_kills_at_random_points_leave_no_wrong_file(tmp_path: Path) -> None:
    outcome = kill_repeatedly(tmp_path, kills=5, seed=7)

    assert outcome.wrong == []
    assert outcome.missing == set()
    assert outcome.most_complete > 0, "no run continued another one"


def test_complete_data_are_verified_on_a_volume_without_space_for_a_second_copy(
    source: Path, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(FolderSource(source), destination, Options(), Observer())
    largest = max(path.stat().st_size for path in source.rglob("*") if path.is_file())
    monkeypatch.setattr(staging, "volume_of", lambda *_: Volume(2 * largest, 1, 2))

    stage(FolderSource(source), destination, Options(workers=2, verify=True), Observer())

    with pytest.raises(EverstepError, match="bytes free"):
        stage(FolderSource(source), destination, Options(workers=3, verify=True), Observer())


@pytest.mark.parametrize("removes", [True, False])
def test_files_that_the_source_no_longer_has_are_removed_only_on_request(
    source: Path, destination: Path, removes: bool
) -> None:
    (source / "gone" / "deep").mkdir(parents=True)
    (source / "gone" / "deep" / "file").write_text("old")
    stage(FolderSource(source), destination, Options(), Observer())
    (destination / "own").write_text("not copied by a run")
    shutil.rmtree(source / "gone")

    stage(FolderSource(source), destination, Options(removes=removes), Observer())

    assert (destination / "gone").exists() is not removes, "no empty folder, which may be a class"
    assert (destination / "own").exists()
    assert not missing_files(source, destination)


def write_files(folder: Path, *names: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


@pytest.mark.parametrize("becomes_folder", [True, False])
def test_an_interrupted_run_may_have_put_a_folder_where_a_file_was(
    tmp_path: Path, becomes_folder: bool
) -> None:
    source, destination = tmp_path / "source", tmp_path / "data"
    file, files = ("train", "a"), tuple(f"train/{n}" for n in range(20))
    before, after = (file, files) if becomes_folder else (files, file)
    write_files(source, *before)
    stage(FolderSource(source), destination, Options(removes=True), Observer())
    write_files(source, *after)

    def interrupt(entry: Entry) -> None:
        if entry.name == max(after):
            raise KeyboardInterrupt

    interrupted = RecordingSource(source, interrupt)
    with pytest.raises(KeyboardInterrupt):
        stage(interrupted, destination, Options(removes=True, workers=1), Observer())
    assert (destination / "train").is_dir() is becomes_folder

    stage(FolderSource(source), destination, Options(removes=True), Observer())

    assert sorted(files_of(destination)) == sorted(after)
