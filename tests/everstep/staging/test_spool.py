"""Sorted lists on disk."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.staging import spool
from everstep.staging.entry import Entry, Record
from tests.effort import examples
from tests.everstep.staging.strategies import entries, records


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool")


@settings(max_examples=examples(30))  # each example syncs files
@given(items=st.lists(entries), chunk=st.integers(1, 4))
def test_a_list_sorted_in_chunks_equals_the_list_sorted_in_memory(
    folder: Path, items: list[Entry], chunk: int
) -> None:
    totals = spool.write_sorted(folder / "list", items, Entry, chunk)

    assert list(spool.read(folder / "list", Entry)) == sorted(items, key=spool.key_of)
    assert totals == (len(items), sum(item.size for item in items))
    assert [path.name for path in folder.glob("list*")] == ["list"], "temporary lists remain"


@settings(max_examples=examples(30))
@given(items=st.lists(records, min_size=1), cut_bytes=st.integers(1, 10))
def test_a_torn_last_line_costs_only_its_record(
    folder: Path, items: list[Record], cut_bytes: int
) -> None:
    path = folder / "torn"
    spool.write(path, items)
    path.write_bytes(path.read_bytes()[: -cut_bytes - 1])

    assert list(spool.read(path, Record)) == items[:-1]


def test_files_of_a_folder_are_next_to_each_other(tmp_path: Path) -> None:
    items = [Entry(name, 0, "") for name in ("a-b", "a/c", "a", "a.d", "a/b/c")]

    spool.write_sorted(tmp_path / "list", items, Entry)

    names = [item.name for item in spool.read(tmp_path / "list", Entry)]
    assert names == ["a", "a/b/c", "a/c", "a-b", "a.d"]


@given(items=st.lists(records))
def test_the_last_of_several_records_with_the_same_name_is_kept(items: list[Record]) -> None:
    kept_records = list(spool.last_of_each(sorted(items, key=spool.key_of)))

    assert {record.name: record for record in kept_records} == {
        record.name: record for record in items
    }
    assert len(kept_records) == len({record.name for record in items})
