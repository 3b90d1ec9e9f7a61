"""Long waits in the collectives of a group, and the workers that they wait for."""

import queue
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.transport import abortable_group, stalls
from everstep.elastic.transport.abortable_group import AbortableGroup
from everstep.elastic.transport.group import PeerLostError
from everstep.elastic.transport.stalls import Stall, WaitRecord, late_nodes, report_after
from tests.everstep.elastic.transport.process_groups import WAIT_SECONDS, run


@given(numbers=st.lists(st.integers(0, 5), min_size=1, max_size=8), collective=st.integers(1, 5))
def test_exactly_the_workers_that_have_not_arrived_are_late(
    numbers: list[int], collective: int
) -> None:
    records = [WaitRecord(number, f"n{rank}") for rank, number in enumerate(numbers)]

    observed = late_nodes(records, collective)

    assert observed == {
        rank: f"n{rank}" for rank, number in enumerate(numbers) if number < collective
    }, "a worker that waits in this collective, or a later one, is not late"


def test_a_wait_is_reported_only_if_it_is_long_and_unusual() -> None:
    assert report_after(0.2) == stalls.REPORT_AFTER_SECONDS
    assert report_after(2 * stalls.REPORT_AFTER_SECONDS) == 2 * stalls.REPORT_AFTER_SECONDS


@pytest.mark.parametrize(
    ("stall", "expected"),
    [
        (
            Stall(0.0, 5.2, {3: "b", 1: "a"}),
            "the others have waited 5 s for node a (rank 1), node b (rank 3); the group waits at most 600 s",
        ),
        (
            Stall(0.0, 5.2, {}),
            "all workers have been in a collective for 5 s: the network is slow; the group waits at most 600 s",
        ),
        (
            Stall(0.0, 11.8, {1: "a"}, is_over=True),
            "the wait for node a (rank 1) is over after 12 s",
        ),
        (
            Stall(0.0, 600.0, {1: "a"}, is_over=True, is_lost=True),
            "the group is aborted after a wait of 600 s for node a (rank 1)",
        ),
    ],
    ids=["late", "network", "over", "lost"],
)
def test_a_stall_is_logged_in_a_sentence(stall: Stall, expected: str) -> None:
    assert stall.sentence() == expected


@pytest.fixture(autouse=True)
def record_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abortable_group, "RECORD_AFTER_SECONDS", 0.01)


def test_one_waiting_worker_reports_the_late_one_and_the_end_of_the_stall(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for both waiting workers to record their waits on a busy machine.
    monkeypatch.setattr(stalls, "REPORT_AFTER_SECONDS", 2.0)
    reports: queue.SimpleQueue[Stall] = queue.SimpleQueue()
    over, all_built = threading.Event(), threading.Barrier(3)
    observed = list[Stall]()

    def work(process_group: AbortableGroup) -> bool:
        all_built.wait(WAIT_SECONDS)
        if process_group.rank == 1:  # it computes until the others have reported it
            observed.append(reports.get(timeout=WAIT_SECONDS))
        process_group.sum(torch.ones(1))
        if process_group.rank == 1:
            observed.append(reports.get(timeout=WAIT_SECONDS))
            over.set()
        return over.wait(WAIT_SECONDS)

    assert run(port, 3, work, report=reports.put) == [True] * 3

    begun, ended = observed
    assert list(begun.late_nodes) == [1]
    assert begun.late_nodes == ended.late_nodes
    assert begun.began_at == ended.began_at
    assert (begun.is_over, ended.is_over, ended.is_lost) == (False, True, False)
    assert reports.empty(), "a stall is reported once, by one worker"


def test_a_group_gives_up_on_a_worker_that_never_arrives(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "REPORT_AFTER_SECONDS", 0.3)
    monkeypatch.setattr(abortable_group, "COLLECTIVE_SECONDS", 3.0)
    reports: queue.SimpleQueue[Stall] = queue.SimpleQueue()
    given_up, all_built = threading.Event(), threading.Barrier(2)

    def work(process_group: AbortableGroup) -> bool:
        all_built.wait(WAIT_SECONDS)
        if process_group.rank == 1:
            return given_up.wait(WAIT_SECONDS)
        try:
            process_group.sum(torch.ones(1))
        finally:
            given_up.set()
        return False

    results = run(port, 2, work, report=reports.put)

    assert isinstance(results[0], PeerLostError), "a healthy worker must not wait endlessly"
    observed = [reports.get(timeout=WAIT_SECONDS) for _ in range(2)]
    assert [list(stall.late_nodes) for stall in observed] == [[1], [1]]
    assert [(stall.is_over, stall.is_lost) for stall in observed] == [(False, False), (True, True)]


def test_the_end_of_a_stall_is_reported_if_the_group_is_aborted(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "REPORT_AFTER_SECONDS", 0.3)
    reports: queue.SimpleQueue[Stall] = queue.SimpleQueue()
    observed = list[Stall]()
    over = threading.Event()

    def work(process_group: AbortableGroup) -> None:
        if process_group.rank == 1:
            over.wait(WAIT_SECONDS)
            return
        threading.Thread(target=abort_after_report, args=(process_group,)).start()
        try:
            process_group.sum(torch.ones(1))
        finally:
            over.set()

    def abort_after_report(process_group: AbortableGroup) -> None:
        observed.append(reports.get(timeout=WAIT_SECONDS))
        process_group.abort()

    run(port, 2, work, report=reports.put)
    observed.append(reports.get(timeout=WAIT_SECONDS))

    assert [list(stall.late_nodes) for stall in observed] == [[1], [1]]
    assert [(stall.is_over, stall.is_lost) for stall in observed] == [(False, False), (True, True)]
