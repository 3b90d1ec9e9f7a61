"""`everstep scale` and `everstep nccl-test` on stacks of a cloud on the twin.

    pytest -m e2e tests/e2e/test_measured_stacks.py -k eks-prod     # or eks-dev

The etcd of the production stack requires TLS and user authentication. The interconnect test has to find the rate to
which a token bucket limits the links of its machines.
"""

import json
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.network.addressing import MTU

from everstep.catalog.names import JOB_NAMESPACE
from everstep.interconnect.collectives import COLLECTIVES
from everstep.progress import Silent
from tests.e2e.life_cycle import (
    ALL_TRAIN_SECONDS,
    DOWN_SECONDS,
    JOB_PATH,
    SHORT_TRAINING,
    TRAIN_SECONDS,
    UP_SECONDS,
    LifeCycle,
    copy_project,
    output,
)

STACKS = ("eks-dev", "eks-prod")
SIZES = (1, 2)
STEPS, BATCH = 6, 8
MEGABITS_PER_SECOND = 20  # at 50, a machine with a load of 80 on 2 CPUs measured 0.88 of the rate
PAYLOAD_SHARE = (MTU - 52) / (MTU + 14)
"""Share of data in an Ethernet frame: the token bucket counts the headers of Ethernet, IP and TCP, too."""

RATE = MEGABITS_PER_SECOND * 1e6 / 8 * PAYLOAD_SHARE / 1e9  # GB/s
TESTS = 3
MEASURE_SECONDS = 1200

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(UP_SECONDS + TRAIN_SECONDS + (1 + TESTS) * MEASURE_SECONDS + DOWN_SECONDS),
]


@dataclass
class MeasuredCycle(LifeCycle):
    """The life cycle of a stack whose speed is measured.

    Attributes:
        study: output of `everstep scale`.
        tests: outputs of `everstep nccl-test` over the limited links.
        leftovers: names of the objects that the two commands left in the cluster.
    """

    study: dict[str, Any] = field(default_factory=dict)
    tests: list[dict[str, Any]] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)

    def free_nodes(self) -> None:
        """Suspend the training if the stack's controller can do so, otherwise wait for its end."""
        if self.stack.endswith("-prod"):
            self.api().merge(JOB_PATH, {"spec": {"RunPolicy": {"suspend": True}}})
        self.wait_until("the training leaves its nodes", self._has_stopped, TRAIN_SECONDS)

    def _has_stopped(self) -> bool:
        conditions = self.api().get(JOB_PATH)["status"]["conditions"]
        kinds = {entry["type"] for entry in conditions if str(entry["status"]) == "True"}
        return bool(kinds & {"Succeeded", "Suspended"})

    def measure(self, *command: str) -> dict[str, Any]:
        """Run a measuring command, and return its JSON."""
        options = ("--stack", self.stack, "--twin", "--json")
        self.run_checked(command[0], *command, *options, seconds=MEASURE_SECONDS)
        result: dict[str, Any] = json.loads(self.results[command[0]].stdout)
        return result

    @contextmanager
    def limited_links(self) -> Iterator[None]:
        """Limit the rate at which each machine sends."""
        layout = Layout(self.twin)
        names = [machine.spec.name for machine in Twin(layout).status().machines]
        machines = [processes.load(layout.machine(name).process) for name in names]
        pids = [machine.pid for machine in machines if machine and machine.alive]
        limit = f"tbf rate {MEGABITS_PER_SECOND}mbit burst 32kb limit 200kb"
        for pid in pids:
            shape(pid, ["replace", "dev", "eth0", "root", *limit.split()])
        yield
        for pid in pids:
            shape(pid, ["delete", "dev", "eth0", "root"])

    def objects_of_measurements(self) -> list[str]:
        """Return the names of the objects that the commands have left in the cluster."""
        core, batch = (
            f"/api/v1/namespaces/{JOB_NAMESPACE}",
            f"/apis/batch/v1/namespaces/{JOB_NAMESPACE}",
        )
        paths = [
            f"{core}/configmaps",
            f"{core}/services",
            f"{batch}/jobs",
            JOB_PATH.rpartition("/")[0],
        ]
        names = [
            item["metadata"]["name"] for path in paths for item in self.api().get(path)["items"]
        ]
        return [name for name in names if name.startswith(("scale-", "nccl-test"))]


def shape(pid: int, arguments: Sequence[str]) -> None:
    """Run `tc qdisc` in a machine's network namespace."""
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", "tc", "qdisc", *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module", params=STACKS)
def cycle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MeasuredCycle]:
    """Run the commands once; the twin is always taken down."""
    folder = copy_project(tmp_path_factory.mktemp(f"measured-{request.param}"))
    cycle = MeasuredCycle(request.param, folder)
    cycle.change(job={**SHORT_TRAINING["job"], "epochs": 1})
    cycle.unprotect()
    options = ("--stack", cycle.stack, "--twin")
    try:
        cycle.run_checked("up", "up", "--detach", *options, seconds=UP_SECONDS)
        cycle.wait_until("the job trains", lambda: cycle.progress().steps, ALL_TRAIN_SECONDS)
        cycle.free_nodes()
        cycle.study = cycle.measure(
            "scale", "--replicas", ",".join(map(str, SIZES)), "--model", "resnet18",
            "--steps", str(STEPS), "--batch", str(BATCH),
        )  # fmt: skip
        with cycle.limited_links():
            cycle.tests = [
                cycle.measure("nccl-test", "--nodes", "2", "--min-size", "8M", "--max-size", "8M")
                for _ in range(TESTS)
            ]
        cycle.leftovers = cycle.objects_of_measurements()
        cycle.run_checked("down", "down", "--yes", *options, seconds=DOWN_SECONDS)
        yield cycle
    finally:
        if cycle.twin.exists():
            Twin(Layout(cycle.twin)).down(Silent())


def test_a_study_has_the_speed_and_the_cpu_time_of_each_size(cycle: MeasuredCycle) -> None:
    sizes = cycle.study["sizes"]

    assert [size["replicas"] for size in sizes] == list(SIZES)
    assert all(size["images_per_second"] > 0 for size in sizes)
    assert all(size["processor_milliseconds_per_image"] > 0 for size in sizes)
    assert sizes[0]["exchange_share"] < sizes[1]["exchange_share"], "one process exchanges nothing"
    assert (cycle.folder / "scaling" / "resnet18.svg").exists()


def test_a_study_states_that_the_machines_of_the_twin_share_cpus(
    cycle: MeasuredCycle,
) -> None:
    assert cycle.study["shared_processors"]


def test_the_interconnect_test_finds_the_rate_to_which_the_links_are_limited(
    cycle: MeasuredCycle,
) -> None:
    rates = [test["link_rate"] for test in cycle.tests]

    assert statistics.median(rates) == pytest.approx(RATE, rel=0.1), rates


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_bandwidth_of_each_collective_fits_the_rate_of_the_links(
    cycle: MeasuredCycle, collective: str
) -> None:
    bandwidths = [test["summary"][collective]["maximum"] for test in cycle.tests]

    assert all(0.3 * RATE < bandwidth < 1.1 * RATE for bandwidth in bandwidths), bandwidths


def test_the_interconnect_is_reported_as_tcp_and_all_results_are_correct(
    cycle: MeasuredCycle,
) -> None:
    for test in cycle.tests:
        assert test["network"]["efa"] is False
        assert test["network"]["transport"] == "TCP sockets"
        assert {measurement["wrong"] for measurement in test["measurements"]} == {0}


def test_the_commands_leave_nothing_in_the_cluster(cycle: MeasuredCycle) -> None:
    assert cycle.leftovers == []


def test_down_leaves_nothing(cycle: MeasuredCycle) -> None:
    assert not cycle.twin.exists(), output(cycle, "down")
