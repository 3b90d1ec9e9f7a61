"""A result that one worker of a node has received reaches all of them, or none uses it."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.recovery import node_agreements
from everstep.elastic.recovery.node_agreements import (
    RESULT_NUMBERS,
    SLOT_BYTES,
    NodeAgreements,
    Slot,
)
from everstep.errors import EverstepError

FIRST_RESULT, SECOND_RESULT = (1.0, *[0.0] * 6), (0.0, 2.5, *[0.0] * 5)
GENERATION = 3


def node_of(folder: Path, workers: int) -> list[NodeAgreements]:
    """Return the access of each worker of a node, in one generation."""
    node = [NodeAgreements(folder / "agreements", workers, rank) for rank in range(workers)]
    for worker in node:
        worker.begin(GENERATION)
    return node


def test_a_worker_finds_the_result_that_another_one_has_received(tmp_path: Path) -> None:
    first, second = node_of(tmp_path, 2)
    first.record(FIRST_RESULT)

    assert second.find_result() == FIRST_RESULT


def test_an_earlier_result_does_not_count(tmp_path: Path) -> None:
    first, second = node_of(tmp_path, 2)
    for worker in (first, second):
        worker.record(FIRST_RESULT)
    first.leave()

    assert second.find_result() is None


def test_a_result_of_an_earlier_generation_does_not_count(tmp_path: Path) -> None:
    first, second = node_of(tmp_path, 2)
    first.record(FIRST_RESULT)
    second.begin(GENERATION + 1)

    assert second.find_result() is None


def test_the_successor_of_a_worker_process_has_no_result(tmp_path: Path) -> None:
    first, second = node_of(tmp_path, 2)
    first.record(FIRST_RESULT)
    NodeAgreements(tmp_path / "agreements", 2, 0)

    assert second.find_result() is None


@pytest.mark.parametrize("outcome", [SECOND_RESULT, None])
def test_a_worker_waits_while_another_may_still_receive_the_result(
    outcome: tuple[float, ...] | None, tmp_path: Path
) -> None:
    first, second = node_of(tmp_path, 2)
    for worker in (first, second):
        worker.record(FIRST_RESULT)
    with ThreadPoolExecutor(1) as executor:
        search = executor.submit(second.find_result)
        with pytest.raises(TimeoutError):
            search.result(timeout=0.2)
        first.record(outcome) if outcome else first.leave()

        assert search.result(timeout=60) == outcome


def test_a_worker_does_not_wait_for_a_process_that_has_ended(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from everstep.elastic.recovery.node_agreements import NodeAgreements
NodeAgreements(Path({str(tmp_path / "agreements")!r}), 2, 0).begin({GENERATION})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    second = NodeAgreements(tmp_path / "agreements", 2, 1)
    second.begin(GENERATION)

    assert second.find_result() is None


def test_the_wait_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_agreements, "WAIT_SECONDS", 0.1)
    _, second = node_of(tmp_path, 2)

    assert second.find_result() is None


# --- any order of events ---


class Fate(Enum):
    """What happens to a worker in an agreement."""

    RECEIVES = auto()
    RECEIVES_AND_ENDS = auto()  # its slot stays
    LACKS = auto()  # the group is aborted before the result arrives
    LEAVES = auto()  # it is not in the agreement: it has left the group earlier in the step


FATES = st.lists(
    st.tuples(st.sampled_from(Fate), st.sampled_from([0.0, 0.002])), min_size=2, max_size=5
)


@given(FATES)
def test_either_all_workers_of_a_node_have_a_result_or_none(
    tmp_path_factory: pytest.TempPathFactory, fates: list[tuple[Fate, float]]
) -> None:
    """A worker leaves earlier only if none receives the result: it would contain the worker's share."""
    if any(fate is Fate.LEAVES for fate, _ in fates):
        fates = [(f if f is Fate.LEAVES else Fate.LACKS, delay) for f, delay in fates]
    workers = node_of(tmp_path_factory.mktemp("node"), len(fates))
    start = threading.Barrier(len(fates))

    def run(worker: NodeAgreements, fate: Fate, delay: float) -> tuple[float, ...] | None:
        start.wait(60)
        time.sleep(delay)
        match fate:
            case Fate.RECEIVES | Fate.RECEIVES_AND_ENDS:
                worker.record(FIRST_RESULT)
                return FIRST_RESULT
            case Fate.LACKS:
                return worker.find_result()
            case Fate.LEAVES:
                worker.leave()
                return None

    with ThreadPoolExecutor(len(fates)) as executor:
        tasks = [executor.submit(run, w, *fate) for w, fate in zip(workers, fates, strict=True)]
        results = {task.result(60) for task in tasks}

    assert len(results) == 1


# --- the file ---


def test_only_this_user_can_access_the_file(tmp_path: Path) -> None:
    node_of(tmp_path, 2)

    assert (tmp_path / "agreements").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "occupy",
    [
        lambda path: path.symlink_to(path.parent / "other"),
        lambda path: path.mkdir(),
        os.mkfifo,
    ],
    ids=["link", "folder", "pipe"],
)
def test_another_kind_of_file_is_refused(occupy: Callable[[Path], object], tmp_path: Path) -> None:
    occupy(tmp_path / "agreements")

    with pytest.raises(EverstepError, match="which the workers of this node share, cannot be used"):
        NodeAgreements(tmp_path / "agreements", 2, 0)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agreements").touch()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(EverstepError, match="it belongs to another user"):
        NodeAgreements(tmp_path / "agreements", 2, 0)


SLOTS = st.builds(
    Slot,
    process=st.integers(1, 2**22),
    generation=st.integers(0, 2**40),
    number=st.integers(0, 2**40),
    has_left=st.booleans(),
    result=st.tuples(*[st.floats(allow_nan=False)] * RESULT_NUMBERS),
)


@given(SLOTS)
def test_a_slot_is_read_as_it_was_written(slot: Slot) -> None:
    assert Slot.unpack(slot.pack()) == slot


@given(SLOTS, SLOTS, st.integers(1, SLOT_BYTES - 1))
def test_a_torn_slot_is_recognized(old: Slot, new: Slot, written: int) -> None:
    torn = new.pack()[:written] + old.pack()[written:]

    assert Slot.unpack(torn) in {None, old, new}
