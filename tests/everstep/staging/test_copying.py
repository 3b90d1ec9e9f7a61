"""The copy of one file, with interruptions."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep.staging import copying
from everstep.staging.content import BrokenContentError, ChangedError, Checksum, Content, FileError
from everstep.staging.copying import copy, discard_other_partials, partial_of
from everstep.staging.entry import Entry
from everstep.staging.plan import Task

CONTENT = bytes(range(250)) * 4
ENTRY = Entry("folder/file", len(CONTENT), "v1")


class FaultySource:
    """A source whose first connections break, one at each of the given offsets.

    Attributes:
        offsets: offset of each request.
    """

    name = "faulty"

    def __init__(self, *ends: int, content: bytes = CONTENT, changed: bool = False) -> None:
        self._ends, self._content, self._changed = list(ends), content, changed
        self.offsets: list[int] = []

    def entries(self) -> Iterator[Entry]:
        yield ENTRY

    @contextmanager
    def open(self, entry: Entry, offset: int) -> Iterator[Content]:
        self.offsets.append(offset)
        end = self._ends.pop(0) if self._ends else None
        yield Content(self._chunks(offset, end), Checksum(hashlib.md5(CONTENT).hexdigest()))
        if self._changed:
            raise ChangedError(entry.name)

    def _chunks(self, offset: int, end: int | None) -> Iterator[bytes]:
        for start in range(offset, len(self._content), 100):
            if end is not None and start >= end:
                raise BrokenContentError("ended early")
            yield self._content[start : start + 100]


@pytest.fixture
def partials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(copying, "FIRST_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(copying, "SYNC_BYTES", 300)
    (tmp_path / "partial").mkdir()
    return tmp_path / "partial"


def test_a_copy_continues_at_the_last_synced_byte(tmp_path: Path, partials: Path) -> None:
    source, counts = FaultySource(500, 800), list[int]()

    record = copy(source, ENTRY, tmp_path / ENTRY.name, partials, counts.append)

    assert source.offsets == [0, 300, 600]
    assert (tmp_path / ENTRY.name).read_bytes() == CONTENT
    assert record == (*ENTRY[:3], hashlib.sha256(CONTENT).hexdigest())
    assert sum(counts) == len(CONTENT), "repeated bytes are counted once"
    assert list(partials.iterdir()) == []


def test_bytes_after_the_last_sync_are_not_trusted(tmp_path: Path, partials: Path) -> None:
    partial = partial_of(ENTRY, partials)
    partial.data.write_bytes(CONTENT[:300] + b"\0" * 200)
    partial.length.write_text("300")

    copy(FaultySource(), ENTRY, tmp_path / "x", partials, lambda _: None)

    assert (tmp_path / "x").read_bytes() == CONTENT


def test_another_version_of_a_file_is_not_continued() -> None:
    folder = Path("partial")

    assert partial_of(ENTRY, folder) != partial_of(ENTRY._replace(version="v2"), folder)
    assert partial_of(ENTRY, folder) != partial_of(ENTRY._replace(size=1), folder)


@pytest.mark.parametrize(
    ("new_source", "words"),
    [
        (lambda: FaultySource(content=CONTENT[:-1]), "ended after 999 of 1,000 bytes, 2 times"),
        (lambda: FaultySource(content=CONTENT[:-1] + b"x"), "has the checksum"),
        (lambda: FaultySource(content=CONTENT + b"x"), "has more than its 1,000 bytes"),
        (lambda: FaultySource(changed=True), "folder/file changed while it was copied"),
        (lambda: FaultySource(100, 100), "ended early, 2 times"),
    ],
)
def test_a_file_that_cannot_be_copied_correctly_does_not_appear(
    tmp_path: Path, partials: Path, new_source: Callable[[], FaultySource], words: str
) -> None:
    with pytest.raises(FileError, match=words):
        copy(new_source(), ENTRY, tmp_path / ENTRY.name, partials, lambda _: None, attempts=2)

    assert not (tmp_path / ENTRY.name).exists()


def test_the_bytes_of_a_file_that_changed_are_discarded(tmp_path: Path, partials: Path) -> None:
    with pytest.raises(FileError, match="changed while it was copied"):
        copy(FaultySource(changed=True), ENTRY, tmp_path / "x", partials, lambda _: None)

    assert list(partials.iterdir()) == []


def test_bytes_synced_before_a_connection_broke_are_kept_for_the_next_run(
    tmp_path: Path, partials: Path
) -> None:
    with pytest.raises(FileError, match="ended early"):
        copy(FaultySource(500), ENTRY, tmp_path / "x", partials, lambda _: None, attempts=1)
    source = FaultySource()

    copy(source, ENTRY, tmp_path / "x", partials, lambda _: None)

    assert source.offsets == [300]


def test_synced_bytes_are_kept_when_the_store_refuses_the_rest(
    tmp_path: Path, partials: Path
) -> None:
    """The credentials of a long copy expire in the middle of a file, which has not changed."""

    class RefusingSource(FaultySource):
        @contextmanager
        def open(self, entry: Entry, offset: int) -> Iterator[Content]:
            if offset:
                raise FileError("the credentials have expired", "Renew them.")
            with super().open(entry, offset) as content:
                yield content

    with pytest.raises(FileError, match="have expired"):
        copy(RefusingSource(500), ENTRY, tmp_path / "x", partials, lambda _: None)
    source = FaultySource()

    copy(source, ENTRY, tmp_path / "x", partials, lambda _: None)

    assert source.offsets == [300]


def test_after_a_wrong_checksum_the_file_is_copied_from_its_beginning(
    tmp_path: Path, partials: Path
) -> None:
    source = FaultySource(content=CONTENT[:-1] + b"x")

    with pytest.raises(FileError, match=r"has the checksum .*, 3 times"):
        copy(source, ENTRY, tmp_path / "x", partials, lambda _: None, attempts=3)

    assert source.offsets == [0, 0, 0], "it is unclear which bytes are wrong"


def test_a_folder_at_the_path_of_a_file_is_an_error_for_that_file(
    tmp_path: Path, partials: Path
) -> None:
    (tmp_path / ENTRY.name).mkdir(parents=True)

    with pytest.raises(FileError, match=f"cannot be written: {tmp_path / ENTRY.name} is a folder"):
        copy(FaultySource(), ENTRY, tmp_path / ENTRY.name, partials, lambda _: None)


def test_a_file_at_the_path_of_a_folder_is_an_error_for_the_files_below_it(
    tmp_path: Path, partials: Path
) -> None:
    (tmp_path / "a").touch()

    with pytest.raises(FileError, match=f"cannot be written: {tmp_path / 'a'} is not a folder"):
        copy(FaultySource(), ENTRY, tmp_path / "a/b/c", partials, lambda _: None)


def test_incomplete_files_of_other_versions_are_removed(partials: Path) -> None:
    current_partial, stale_partial = (
        partial_of(ENTRY._replace(version=v), partials) for v in ("v1", "v0")
    )
    for partial in (current_partial, stale_partial):
        partial.data.touch()
        partial.length.write_text("0")
    task = Task(*ENTRY, "copy", "reason", "")

    assert list(discard_other_partials(iter([task]), partials)) == [task]

    assert set(partials.iterdir()) == {current_partial.data, current_partial.length}


def test_a_file_is_synced_before_it_is_renamed_to_its_target(
    tmp_path: Path, partials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / ENTRY.name
    synced_files: list[tuple[int, int]] = []
    fsync = os.fsync

    def record_and_sync(descriptor: int) -> None:
        assert not target.exists(), "a reader could see an incomplete file"
        status = os.fstat(descriptor)
        synced_files.append((status.st_ino, status.st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_and_sync)

    copy(FaultySource(), ENTRY, target, partials, lambda _: None)

    assert synced_files[-1] == (target.stat().st_ino, len(CONTENT))
