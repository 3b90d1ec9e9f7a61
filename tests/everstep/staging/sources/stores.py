"""Checks that every object store must pass."""

from pathlib import Path
from typing import Protocol

import pytest

from everstep.staging import copying
from everstep.staging.content import FileError, Source
from everstep.staging.copying import partial_of
from everstep.staging.stage import Observer, Options, stage
from tests.everstep.staging.trees import missing_files, wrong_files

SYNCED_BYTES = 7_000_000


class Store(Protocol):
    """A store whose source lists all of its objects."""

    def source(self) -> Source: ...

    def put(self, name: str, content: bytes, /) -> None: ...


def check_second_run_copies_nothing(source: Source, data: Path, target: Path, files: int) -> None:
    """Check that a prefix is staged completely, and that a second run finds nothing to copy."""
    first_plan = stage(source, target, Options(), Observer())
    second_plan = stage(source, target, Options(), Observer())

    assert wrong_files(data, target) == []
    assert missing_files(data, target) == set()
    assert first_plan.to_copy.files == second_plan.complete.files == files


def check_copy_continues(store: Store, folder: Path, content: bytes) -> None:
    """Check that the copy of the only object continues at the last synced byte."""
    (entry,) = store.source().entries()
    partial = partial_of(entry, folder)
    partial.data.write_bytes(content[:SYNCED_BYTES] + b"lost in a power cut")
    partial.length.write_text(str(SYNCED_BYTES))
    counts: list[int] = []

    copying.copy(store.source(), entry, folder / "large", folder, counts.append)

    assert (folder / "large").read_bytes() == content
    assert counts[0] == SYNCED_BYTES


def check_wrong_checksum_is_refused(store: Store, folder: Path) -> None:
    """Check that content which differs from the checksum in the listing is refused."""
    store.put("file", b"content")
    (entry,) = store.source().entries()
    wrong_entry = entry._replace(md5="0" * 32)

    with pytest.raises(FileError, match=f"the store's is {'0' * 32}"):
        copying.copy(store.source(), wrong_entry, folder / "file", folder, lambda _: None, 2)
