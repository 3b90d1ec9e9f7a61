"""The decision about which files to copy, and the space that they need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import EverstepError
from everstep.staging import plan
from everstep.staging.entry import Entry, Record
from everstep.staging.plan import Action, Tally, Task, Volume
from everstep.staging.spool import key_of
from everstep.staging.totals import Totals
from tests.everstep.staging.strategies import entries, records, sizes

GIB = 1 << 30


def no_file_below_a_file(items: list[Entry]) -> bool:
    names = {item.name for item in items}
    return not any(path.startswith(name + "/") for name in names for path in names)


source_lists = st.lists(entries, unique_by=key_of).filter(no_file_below_a_file)
record_lists = st.lists(records, unique_by=key_of)


@given(
    listed_entries=source_lists,
    recorded_files=record_lists,
    present_sizes=st.dictionaries(st.integers(0, 9), sizes),
    verify=st.booleans(),
)
def test_the_decision_for_a_file_depends_only_on_its_own_record(
    listed_entries: list[Entry],
    recorded_files: list[Record],
    present_sizes: dict[int, int],
    verify: bool,
) -> None:
    listed_entries, recorded_files = (
        sorted(listed_entries, key=key_of),
        sorted(recorded_files, key=key_of),
    )
    sizes_at_destination = {
        entry.name: present_sizes[number]
        for number, entry in enumerate(listed_entries)
        if number in present_sizes
    }
    by_name = {record.name: record for record in recorded_files}

    tasks = list(
        plan.tasks(
            listed_entries, recorded_files, sizes_at_destination.get, "source", verify=verify
        )
    )

    assert [task.entry for task in tasks] == listed_entries
    for task in tasks:
        record = by_name.get(task.name)
        size = sizes_at_destination.get(task.name)
        decision = plan.decide(task.entry, record, size, verify=verify)
        assert (task.action, task.reason) == decision
        check_is_safe(task, record, size)


def check_is_safe(task: Task, record: Record | None, present_size: int | None) -> None:
    """Check that a file is left as it is only if its content is known to equal the source's."""
    is_recorded = record and (record.version, record.size) == (task.version, task.size)
    if task.action == Action.KEEP:
        assert is_recorded
        assert present_size == task.size
    if task.action == Action.CHECK:
        assert task.sha256 or task.md5, "there would be nothing to compare with"
        assert present_size == task.size
    if task.sha256:
        assert record
        assert is_recorded
        assert task.sha256 == record.sha256


@pytest.mark.parametrize(
    ("record", "present_size", "md5", "verify", "action"),
    [
        (None, None, "", False, Action.COPY),
        (None, 3, "", False, Action.COPY),
        (None, 3, "md5", False, Action.CHECK),
        (None, 2, "md5", False, Action.COPY),
        (Record("a", 3, "v1", "sha"), 3, "", False, Action.KEEP),
        (Record("a", 3, "v1", "sha"), 3, "", True, Action.CHECK),
        (Record("a", 3, "v1", "sha"), None, "", False, Action.COPY),
        (Record("a", 3, "v1", "sha"), 2, "", False, Action.COPY),
        (Record("a", 3, "v0", "sha"), 3, "", False, Action.COPY),
        (Record("a", 3, "v0", "sha"), 3, "md5", True, Action.CHECK),
    ],
)
def test_a_file_is_kept_only_if_its_version_was_copied_and_is_there(
    record: Record | None, present_size: int | None, md5: str, verify: bool, action: Action
) -> None:
    entry = Entry("a", 3, "v1", md5=md5)

    assert plan.decide(entry, record, present_size, verify=verify).action is action


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a", "a"], "two files for 'a'"),
        (["a", "a/b"], "the file 'a' and the file 'a/b' below it"),
    ],
)
def test_conflicting_names_are_refused(names: list[str], words: str) -> None:
    with pytest.raises(EverstepError, match=words):
        list(plan.checked_entries([Entry(name, 0, "") for name in names], "s3://bucket"))


def task_of(size: int, action: Action, present: int | None = None) -> Task:
    return Task("a", size, "v", "", "", action, "reason", "", present)


def test_a_file_needs_whole_blocks_and_a_kept_file_needs_none() -> None:
    tally = Tally(block_bytes=4096)
    for size, action in [
        (0, Action.COPY),
        (1, Action.COPY),
        (4096, Action.COPY),
        (4097, Action.CHECK),
        (9_999, Action.KEEP),
    ]:
        tally.add(task_of(size, action))

    assert tally.required(16) == Totals(4, 4 * 4096)
    assert tally.totals(Action.COPY) == Totals(3, 4097)
    assert tally.totals(Action.KEEP) == Totals(1, 9_999)


@pytest.mark.parametrize(
    ("workers", "expected"), [(1, Totals(1, 3)), (2, Totals(2, 5)), (9, Totals(3, 7))]
)
def test_a_replaced_file_needs_its_growth_and_stays_until_its_copy_is_complete(
    workers: int, expected: Totals
) -> None:
    tally = Tally(block_bytes=1)
    for size, present in [(2, 2), (2, 1), (1, 5)]:
        tally.add(task_of(size, Action.COPY, present))

    assert tally.required(workers) == expected


def test_a_volume_that_is_too_small_is_refused_with_the_missing_bytes() -> None:
    with pytest.raises(EverstepError) as error:
        plan.check_volume(Totals(2, 150), Volume(100, 1, 0), "/data")

    assert "/data has 100 bytes free; 150 are needed" in error.value.problem
    assert "50 bytes" in error.value.fix


@pytest.mark.parametrize("free_files", [0, 1])
def test_a_volume_with_too_few_inodes_is_refused(free_files: int) -> None:
    with pytest.raises(EverstepError, match=f"can hold {free_files} more files; 2 are needed"):
        plan.check_volume(Totals(2, 10), Volume(GIB, 1, free_files), "/data")


@pytest.mark.parametrize("free_files", [None, 2])
def test_a_volume_that_is_just_large_enough_is_accepted(free_files: int | None) -> None:
    plan.check_volume(Totals(2, 100), Volume(100, 1, free_files), "/data")
