"""The network of a run, from the logs of NCCL: EFA only if all data of all processes use it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.interconnect.transport import Transport, judge
from tests.everstep.interconnect import nccl_logs as logs

RANKS = 2
LOGS_WITHOUT_EFA = (*logs.SOCKET_RUNS, *logs.LIBFABRIC_RUNS, *logs.OTHER_RUNS)


@pytest.mark.parametrize("log", logs.EFA_RUNS)
def test_a_run_in_which_all_processes_use_efa_is_recognized(log: str) -> None:
    verdict = judge(log.splitlines(), RANKS)

    assert verdict.uses_efa, verdict.reason


@pytest.mark.parametrize(
    ("log", "adapters"),
    [
        (logs.EFA_P4D, 4),
        (logs.EFA_UNDER_MPI, 1),
        (logs.EFA_DIRECT, 16),
        (logs.EFA_2019, None),
    ],
)
def test_the_number_of_adapters_comes_from_the_log(log: str, adapters: int | None) -> None:
    assert judge(log.splitlines(), RANKS).adapters == adapters


def test_processes_with_different_numbers_of_adapters_leave_the_number_open() -> None:
    log = logs.EFA_P4D.replace("found 4 nics", "found 2 nics", 1)

    verdict = judge(log.splitlines(), RANKS)

    assert verdict.uses_efa
    assert verdict.adapters is None


@pytest.mark.parametrize(
    ("log", "transport"),
    [
        *((log, Transport.SOCKETS) for log in logs.SOCKET_RUNS),
        *((log, Transport.LIBFABRIC) for log in logs.LIBFABRIC_RUNS),
        (logs.INFINIBAND, Transport.INFINIBAND),
        (logs.TCPX, Transport.OTHER),
        (logs.ONE_NODE, Transport.UNKNOWN),
        ("", Transport.UNKNOWN),
    ],
)
def test_any_other_network_is_named(log: str, transport: Transport) -> None:
    verdict = judge(log.splitlines(), RANKS)

    assert verdict.transport is transport, verdict.reason
    assert not verdict.uses_efa


@given(
    st.sampled_from(logs.EFA_RUNS),
    st.sampled_from((*logs.SOCKET_RUNS, *logs.LIBFABRIC_RUNS)),
    st.randoms(),
)
def test_a_run_in_which_a_process_does_not_use_efa_is_never_efa(
    efa: str, other: str, random: Random
) -> None:
    lines = [*efa.splitlines(), *other.splitlines()]
    random.shuffle(lines)

    verdict = judge(lines, RANKS)

    assert not verdict.uses_efa, "the slowest link determines the speed of a collective"


LOGS_OF_OTHER_NETWORKS = [
    log for log in LOGS_WITHOUT_EFA if "rovider is efa" not in log or "Libfabric" not in log
]
"""The logs in which no process names both EFA and another provider: a sample of its lines may name EFA only."""


@given(st.sampled_from(LOGS_OF_OTHER_NETWORKS), st.data())
def test_no_part_of_a_log_without_efa_passes_for_efa(log: str, data: st.DataObject) -> None:
    lines = log.splitlines()
    sampled_lines = data.draw(st.lists(st.sampled_from(lines), max_size=30)) if lines else []

    assert not judge(sampled_lines, len(sampled_lines) and 1).uses_efa


@given(st.sampled_from(logs.EFA_RUNS), st.randoms())
def test_the_order_of_lines_of_different_processes_does_not_matter(
    log: str, random: Random
) -> None:
    lines = log.splitlines()
    random.shuffle(lines)

    assert judge(lines, RANKS).uses_efa


def test_a_process_that_logged_nothing_leaves_the_verdict_open() -> None:
    verdict = judge(logs.EFA_P4D.splitlines(), ranks=3)

    assert verdict.transport is Transport.UNKNOWN
    assert "only 2 of 3 processes" in verdict.reason
