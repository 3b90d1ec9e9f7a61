"""Pools get their machines and keep them: a real daemon, real kubelets. The tests share a twin and run in order."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from cloudtwin import capacity
from cloudtwin.capacity import CapacityLimits, Pool, PoolStore, daemon
from cloudtwin.capacity.scaler import SCAN_SECONDS
from cloudtwin.errors import TwinError
from cloudtwin.images.recipes import stand_in_for
from cloudtwin.nodes import Role, Taint, Twin, leftovers
from cloudtwin.nodes.control_plane import components
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.model import pool_key
from cloudtwin.progress import Lines

from twin.tests.nodes.conftest import api_of, leftovers_of, wait_until
from twin.tests.nodes.pods import OPTIONS, PODS, phase, pod

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

WAIT_SECONDS = 200.0  # limit on a busy machine; typically a few seconds

AUTOSCALER = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.0"
SYSTEM = Pool(
    name="system",
    cloud="azure",
    cluster="everstep",
    role=Role.SYSTEM,
    instance_types=("Standard_D4s_v5",),
    region="eastus",
    desired_size=1,
    max_size=2,
)
SPOT = Pool(
    name="spot",
    cloud="aws",
    cluster="everstep",
    role=Role.GPU,
    instance_types=("g5.xlarge", "g6.xlarge"),
    zone="us-east-1a",
    region="us-east-1",
    labels={"everstep.dev/pool": "gpu-spot"},
    taints=(Taint("everstep.dev/spot", "true"),),
    gpus=1,
    desired_size=2,
    max_size=4,
    capacity="spot",
)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    root = tmp_path_factory.mktemp("twins")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDTWIN_STATE", str(root))
        twin = Twin.open("pools-test")
        try:
            capacity.ensure_control_plane(twin.state, Lines(), OPTIONS)
            image = stand_in_for(AUTOSCALER)
            assert image is not None
            twin.alias_images({AUTOSCALER: image})  # for later machines
            yield twin
        finally:
            twin.down(Lines())


@pytest.fixture
def store(twin: Twin) -> PoolStore:
    return PoolStore(twin.state)


def key(name: str) -> str:
    return pool_key("everstep", name)


def names(twin: Twin, pool: str) -> set[str]:
    return {m.spec.name for m in twin.status().machines if m.spec.group == pool}


def desired_size(store: PoolStore, pool: str) -> int:
    stored_pool = store.get(key(pool))
    assert stored_pool is not None, f"the pool {pool} is gone"
    return stored_pool.desired_size


def running_daemon(twin: Twin) -> processes.Process:
    process = daemon.find(twin.layout)
    assert process is not None, "the daemon does not run"
    return process


def ready_machines(twin: Twin, pool: str) -> tuple[str, ...] | None:
    """Return the names of a pool's machines; None until it has its desired size and release and all are Ready."""
    with contextlib.suppress(TwinError, OSError):
        return capacity.wait(twin.state, key(pool), 0.0)
    return None


def events(twin: Twin, kind: str) -> dict[str, float]:
    """Return the time of the last event of a kind for each node, in seconds since the epoch."""
    lines = [json.loads(line) for line in twin.events.read_text().splitlines()]
    return {line["node"]: line["at"] for line in lines if line["kind"] == kind}


def test_a_pool_gets_its_desired_machines_with_the_labels_of_its_cloud(
    twin: Twin, store: PoolStore
) -> None:
    store.put(SYSTEM)
    store.put(SPOT)

    assert capacity.wait(twin.state, key("system"), WAIT_SECONDS, Lines()) == ("system-0",)
    assert capacity.wait(twin.state, key("spot"), WAIT_SECONDS, Lines()) == ("spot-0", "spot-1")

    nodes = {n["metadata"]["name"]: n for n in api_of(twin).get("/api/v1/nodes")["items"]}
    assert (
        nodes["spot-0"]["metadata"]["labels"].items()
        >= {
            "eks.amazonaws.com/capacityType": "SPOT",
            "eks.amazonaws.com/nodegroup": "spot",
            "everstep.dev/pool": "gpu-spot",
        }.items()
    )
    assert nodes["system-0"]["metadata"]["labels"]["kubernetes.azure.com/mode"] == "system"


def test_a_reclaimed_machine_is_replaced_when_the_capacity_returns_and_not_before(
    twin: Twin,
) -> None:
    started_at = time.time()

    reclaim = partial(capacity.reclaim, notice_seconds=2, unavailable_seconds=9)
    with ThreadPoolExecutor(1) as background:
        reclamation = background.submit(reclaim, twin.state, ["spot-0"])
        wait_until(
            lambda: "InsufficientInstanceCapacity" in daemon.last_fault(twin.state, key("spot")),
            WAIT_SECONDS,
            "there is no capacity for another one",
        )
        reclamation.result()
    capacity.wait(twin.state, key("spot"), WAIT_SECONDS, Lines())
    assert names(twin, "spot") == {"spot-1", "spot-2"}
    assert events(twin, "reclaim")["spot-0"] - events(twin, "notice")["spot-0"] >= 2
    assert events(twin, "add")["spot-2"] - started_at >= 9
    assert daemon.last_fault(twin.state, key("spot")) == ""


def test_lower_capacity_reclaims_spot_machines_with_the_notice_of_their_cloud(twin: Twin) -> None:
    capacity.compress_time(twin.state, 60)
    CapacityLimits(twin.state).set(key("spot"), 0)

    wait_until(lambda: not names(twin, "spot"), WAIT_SECONDS, "all are reclaimed")

    assert events(twin, "reclaim")["spot-1"] - events(twin, "notice")["spot-1"] >= 2, (
        "120 s, sixty times as fast"
    )
    CapacityLimits(twin.state).remove(key("spot"))
    capacity.wait(twin.state, key("spot"), WAIT_SECONDS, Lines())


def test_a_machine_that_vanishes_is_replaced_by_another(twin: Twin) -> None:
    before = names(twin, "spot")
    lost_name = min(before)

    twin.vanish(lost_name)

    wait_until(
        lambda: ready_machines(twin, "spot") and lost_name not in names(twin, "spot"),
        WAIT_SECONDS,
        "it is replaced",
    )
    assert len(names(twin, "spot")) == 2


def test_a_new_release_replaces_one_machine_at_a_time_and_adds_each_successor_first(
    twin: Twin, store: PoolStore
) -> None:
    before, started_at = names(twin, "spot"), time.time()

    store.put(replace(SPOT, release="1.37", surge=1))

    new_names = set(capacity.wait(twin.state, key("spot"), WAIT_SECONDS, Lines()))
    assert len(new_names) == 2
    assert not new_names & before, "every machine has the new release"
    add_times = sorted(
        added_at for added_at in events(twin, "add").values() if added_at >= started_at
    )
    remove_times = sorted(events(twin, "remove")[name] for name in before)
    assert all(new < old for new, old in zip(add_times, remove_times, strict=True))
    assert remove_times[0] < add_times[1], "one at a time"


def test_a_new_daemon_continues_where_a_killed_one_stopped(twin: Twin, store: PoolStore) -> None:
    process = running_daemon(twin)
    to_delete = min(names(twin, "spot"))
    twin.notice(to_delete, 3, terminate=True)
    os.kill(process.pid, signal.SIGKILL)
    store.resize(key("spot"), 3)

    assert capacity.wait(twin.state, key("spot"), WAIT_SECONDS, Lines())
    wait_until(
        lambda: to_delete not in names(twin, "spot"), WAIT_SECONDS, "the machine is reclaimed"
    )
    wait_until(
        lambda: len(ready_machines(twin, "spot") or ()) == 3, WAIT_SECONDS, "there are three again"
    )
    assert to_delete in events(twin, "reclaim")


def test_a_second_daemon_exits(twin: Twin) -> None:
    first = running_daemon(twin)
    command = [sys.executable, "-m", "cloudtwin.capacity", "--state", str(twin.state)]

    second = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )

    assert (second.returncode, "another daemon" in second.stdout) == (0, True)
    assert running_daemon(twin) == first


def test_an_autoscaled_pool_grows_for_pending_pods_and_shrinks_without_them(
    twin: Twin, store: PoolStore
) -> None:
    api = api_of(twin)
    workers = Pool(
        name="t4",
        cloud="azure",
        cluster="everstep",
        role=Role.GPU,
        instance_types=("Standard_NC4as_T4_v3",),
        region="eastus",
        labels={"for": "work"},
        taints=(Taint("kubernetes.azure.com/scalesetpriority", "spot"),),
        gpus=1,
        max_size=2,
        capacity="spot",
        autoscaled=True,
        idle_seconds=240,  # 4 s, sixty times as fast
    )
    store.put(workers)
    api.post(PODS, waiting_pod("works", {"for": "work"}))

    wait_until(
        lambda: phase(api, "works") == "Running", WAIT_SECONDS, "a machine started for the pod"
    )
    assert names(twin, "t4") == {"t4-0"}
    api.delete(f"{PODS}/works")

    wait_until(lambda: not names(twin, "t4"), WAIT_SECONDS, "the idle machine is removed")
    assert desired_size(store, "t4") == 0


def test_on_eks_the_autoscaler_is_a_pod_and_without_it_no_pool_grows(
    twin: Twin, store: PoolStore
) -> None:
    api = api_of(twin)
    store.put(replace(SPOT, name="eks", labels={"for": "eks"}, desired_size=0, max_size=1))
    api.post(PODS, waiting_pod("work", {"for": "eks"}))
    wait_until(lambda: phase(api, "work") == "Pending", WAIT_SECONDS, "the pod is pending")
    time.sleep(2 * SCAN_SECONDS)  # an autoscaler would have seen the pod in this time
    assert desired_size(store, "eks") == 0

    api.post(PODS, autoscaler_pod())

    wait_until(
        lambda: phase(api, "autoscaler") == "Running",
        WAIT_SECONDS,
        "a local image replaces the published one",
    )
    wait_until(lambda: names(twin, "eks") == {"eks-0"}, WAIT_SECONDS, "a machine starts")
    for name in ("work", "autoscaler"):
        api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
    store.delete(key("eks"))


def waiting_pod(name: str, selector: dict[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = pod(name, "", "import time; time.sleep(600)")
    del body["spec"]["nodeName"]
    body["spec"]["nodeSelector"] = selector
    return body


def autoscaler_pod() -> dict[str, Any]:
    body: dict[str, Any] = pod("autoscaler", "system-0", "")
    container = body["spec"]["containers"][0]
    container |= {"image": AUTOSCALER, "command": ["./cluster-autoscaler"], "args": ["--v=4"]}
    return body


def test_an_evicted_azure_machine_shrinks_its_pool_and_is_not_replaced(
    twin: Twin, store: PoolStore
) -> None:
    store.put(SYSTEM)
    scale_set = Pool(
        name="evicted",
        cloud="azure",
        cluster="everstep",
        role=Role.GPU,
        instance_types=("Standard_NC4as_T4_v3",),
        region="eastus",
        gpus=1,
        desired_size=1,
        max_size=1,
        capacity="spot",
    )
    store.put(scale_set)
    capacity.wait(twin.state, key("evicted"), WAIT_SECONDS, Lines())

    capacity.reclaim(twin.state, ["evicted-0"], notice_seconds=1)

    wait_until(
        lambda: desired_size(store, "evicted") == 0, WAIT_SECONDS, "the scale set is smaller by one"
    )
    assert capacity.wait(twin.state, key("evicted"), WAIT_SECONDS) == ()


def test_a_deleted_pool_leaves_no_machine(twin: Twin, store: PoolStore) -> None:
    for name in ("spot", "evicted", "t4"):
        store.delete(key(name))

    for name in ("spot", "evicted", "t4"):
        assert capacity.wait(twin.state, key(name), WAIT_SECONDS, Lines()) == ()
    assert names(twin, "system") == {"system-0"}


def test_the_doctor_finds_a_daemon_whose_twin_no_longer_runs(twin: Twin) -> None:
    for component in components.COMPONENTS:
        process = processes.load(twin.layout.process(component))
        assert process is not None
        process.kill()
    pid = running_daemon(twin).pid

    assert any(
        process.startswith(f"{pid} ") and "capacity" in process for process in processes_left(twin)
    )
    twin.up([], Lines())
    assert running_daemon(twin).pid == pid, "a repair does not affect it"


def processes_left(twin: Twin) -> set[str]:
    """Return the processes of a twin that are reported as leftovers."""
    names_of_processes = {entry.name for entry in leftovers() if entry.kind == "process"}
    return {process for process in names_of_processes if str(twin.state) in process}


def test_down_ends_the_daemon_and_leaves_nothing(twin: Twin) -> None:
    process = running_daemon(twin)

    twin.down(Lines())

    assert not process.alive
    assert leftovers_of(twin) == []
