"""The benchmark between two network namespaces whose link has a known rate."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest
import torch

from everstep.interconnect import benchmark
from everstep.interconnect.collectives import ALL_REDUCE, COLLECTIVES, MIN_BYTES, SEND_RECV
from everstep.interconnect.results import Results, read
from everstep.interconnect.transport import Transport

REPOSITORY = Path(__file__).parents[3]
MEGABITS_PER_SECOND = 50
RATE = MEGABITS_PER_SECOND * 1e6 / 8 / 1e9  # GB/s
TOKEN_BUCKET = f"tbf rate {MEGABITS_PER_SECOND}mbit burst 32kb limit 200kb"
"""A link with a queue of tens of milliseconds; in a longer queue, acknowledgments would wait behind data."""

MEASUREMENTS = 3
"""The median counts: a machine that is briefly too busy for 6 MB/s measures less than the rate of the link."""

MTU = "9000"
"""Size of packets, as in a VPC: headers take less than 1 % of the rate."""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """Yield the names of two network namespaces, connected by a link that is shaped in both directions."""
    names = [f"everstep-{os.getpid()}-{side}" for side in "ab"]
    with ExitStack() as cleanup:
        for name in names:
            ip("netns", "add", name)
            cleanup.callback(ip, "netns", "delete", name)
        ip(
            "link",
            "add",
            "eth0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            names[1],
        )
        for number, name in enumerate(names):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "mtu", MTU, "up")
            shape = f"qdisc add dev eth0 root {TOKEN_BUCKET}"
            subprocess.run(["tc", "-n", name, *shape.split()], check=True, capture_output=True)
        yield names


def start_rank(machine: str, rank: int, *arguments: str) -> "subprocess.Popen[str]":
    variables = {
        "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29400",
        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "USE_LIBUV": "0",
        "PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "everstep.interconnect.benchmark", *arguments]
    return subprocess.Popen(
        ["ip", "netns", "exec", machine, *command],
        env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def results_of(machines: list[str], *options: str) -> Results:
    """Return the results of a measurement over the link."""
    ranks = [start_rank(name, rank, *options) for rank, name in enumerate(machines)]
    log, errors = ranks[0].communicate(timeout=240)
    ranks[1].communicate(timeout=60)
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    return read([log])


def is_rate_of_link(rate: float) -> bool:
    return rate == pytest.approx(RATE, rel=0.1)


@pytest.mark.twin
@pytest.mark.timeout(600)
def test_the_rate_of_a_shaped_link_is_found(machines: list[str]) -> None:
    options = ["--collectives", SEND_RECV, "--min-bytes", "8388608", "--max-bytes", "8388608"]

    rates: list[float] = []
    # A third one cannot move the median out of the range of two.
    while len(rates) < MEASUREMENTS and (len(rates) < 2 or not all(map(is_rate_of_link, rates))):
        rates.append(results_of(machines, *options).link_rate or 0.0)

    assert is_rate_of_link(median(rates)), rates


@pytest.mark.twin
@pytest.mark.timeout(600)
def test_no_collective_is_faster_than_the_link(machines: list[str]) -> None:
    results = results_of(machines, "--min-bytes", "2097152", "--max-bytes", "2097152")

    assert results.is_complete
    assert results.wrong_results == 0
    assert results.verdict.transport is Transport.SOCKETS
    for collective in COLLECTIVES:
        summary = results.summary(collective)
        assert summary is not None
        assert 0.3 * RATE < summary.maximum < 1.1 * RATE, collective


HANGING_DESTRUCTOR = """
import sys, time
import torch.distributed
from everstep.interconnect import benchmark

torch.distributed.destroy_process_group = lambda: time.sleep(600)
benchmark.end(benchmark.main(sys.argv[1:]))
"""
"""The benchmark with a group whose destructor does not return."""


def test_a_process_over_gloo_ends_without_the_destructor_of_its_group() -> None:
    """The destructor holds the GIL while it waits for a thread that may need the GIL."""
    variables = {
        "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
        "PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "USE_LIBUV": "0",
    }  # fmt: skip
    options = ["--collectives", ALL_REDUCE, "--max-bytes", "8", "--iterations", "1"]

    result = subprocess.run(
        [sys.executable, "-c", HANGING_DESTRUCTOR, *options],
        env=variables, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip

    assert read([result.stdout]).is_complete


@pytest.mark.parametrize(
    ("available", "expected"),
    [(-1, MIN_BYTES), (0, MIN_BYTES), (1, MIN_BYTES), (30, MIN_BYTES), (2**20, 2**18)],
)
def test_the_smallest_array_is_measured_even_without_free_memory(
    monkeypatch: pytest.MonkeyPatch, available: int, expected: int
) -> None:
    """The available memory is negative while a container uses more than its limit."""
    monkeypatch.setattr(benchmark, "available_bytes", lambda device: available)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *arguments: None)

    assert benchmark.agree_on_size(2**30, torch.device("cpu")) == expected


@pytest.mark.parametrize("option", ["--min-bytes", "--max-bytes", "--iterations"])
def test_a_size_or_number_less_than_one_is_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        benchmark.parse([option, "0"])

    assert f"argument {option}: invalid positive value: '0'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "reason"),
    [("", "RuntimeError"), ("CUDA out of memory\nmore", "CUDA out of memory")],
)
def test_a_rank_that_fails_reports_the_reason_in_one_line(
    error: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError(error)

    monkeypatch.setattr(benchmark, "run", fail)
    monkeypatch.setenv("RANK", "3")

    assert benchmark.main([]) == 1
    assert capsys.readouterr().err == f"error: rank 3 failed: {reason}\n"


@pytest.mark.twin
@pytest.mark.timeout(600)
def test_a_rank_reports_the_loss_of_its_peer_during_a_measurement(machines: list[str]) -> None:
    options = ["--collectives", ALL_REDUCE, "--min-bytes", "64", "--iterations", "100000"]
    rank_0, rank_1 = (start_rank(name, rank, *options) for rank, name in enumerate(machines))
    assert rank_0.stdout is not None
    kinds = (json.loads(line)["kind"] for line in rank_0.stdout if line.startswith("{"))
    assert "measurement" in kinds, "the group works"

    rank_1.send_signal(signal.SIGKILL)

    _, errors = rank_0.communicate(timeout=240)
    rank_1.communicate()
    assert rank_0.returncode == 1
    assert "error: rank 0 failed: " in errors
    assert "Traceback" not in errors
