"""Pools become machines, and stay what they should be: a real daemon, real kubelets."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from everstep.progress import Lines
from tests.twin.nodes.conftest import api_of, eventually, left_of
from tests.twin.nodes.pods import PODS, phase, pod
from twin.clouds import capacity
from twin.clouds.capacity import Pool, PoolStore, Supply, daemon
from twin.clouds.capacity.scaling import SCAN_SECONDS
from twin.images.recipes import stand_in_for
from twin.nodes import Role, Taint, Twin, components, leftovers, processes

pytestmark = [pytest.mark.twin, pytest.mark.timeout(300)]

AUTOSCALER = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.0"
SYSTEM = Pool(
    name="system",
    cloud="azure",
    cluster="everstep",
    role=Role.SYSTEM,
    instance_types=("Standard_D4s_v5",),
    region="eastus",
    desired=1,
    maximum=2,
)
SPOT = Pool(
    name="spot",
    cloud="aws",
    cluster="everstep",
    role=Role.GPU,
    instance_types=("g5.xlarge", "g6.xlarge"),
    zone="us-east-1a",
    region="us-east-1",
    labels={"everstep/pool": "gpu-spot"},
    taints=(Taint("everstep/spot", "true"),),
    gpus=1,
    desired=2,
    maximum=4,
    capacity="spot",
)


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    root = tmp_path_factory.mktemp("twins")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERSTEP_STATE", str(root))
        twin = Twin.open("pools-test")
        try:
            capacity.ensure_control_plane(twin.state, Lines())
            twin.alias_images({AUTOSCALER: stand_in_for(AUTOSCALER)})  # for machines to come
            yield twin
        finally:
            twin.down(Lines())


@pytest.fixture
def store(twin):
    return PoolStore(twin.state)


def names(twin, pool):
    return {m.spec.name for m in twin.status().machines if m.spec.group == pool}


def settled(twin, pool):
    with contextlib.suppress(Exception):
        return capacity.wait(twin.state, pool, 0.0)
    return None


def events(twin, kind):
    lines = [json.loads(line) for line in twin.events.read_text().splitlines()]
    return {line["node"]: line["at"] for line in lines if line["kind"] == kind}


def test_a_pool_gets_the_machines_it_wants_with_the_labels_of_its_cloud(twin, store):
    store.put(SYSTEM)
    store.put(SPOT)

    assert capacity.wait(twin.state, "system", 60, Lines()) == ("system-0",)
    assert capacity.wait(twin.state, "spot", 60, Lines()) == ("spot-0", "spot-1")

    nodes = {n["metadata"]["name"]: n for n in api_of(twin).get("/api/v1/nodes")["items"]}
    assert (
        nodes["spot-0"]["metadata"]["labels"].items()
        >= {
            "eks.amazonaws.com/capacityType": "SPOT",
            "eks.amazonaws.com/nodegroup": "spot",
            "everstep/pool": "gpu-spot",
        }.items()
    )
    assert nodes["system-0"]["metadata"]["labels"]["kubernetes.azure.com/mode"] == "system"


def test_a_reclaimed_machine_is_replaced_when_the_capacity_returns_and_not_before(twin, store):
    began = time.time()

    capacity.reclaim(twin.state, ["spot-0"], notice_seconds=2, back_after_seconds=9)

    assert names(twin, "spot") == {"spot-1"}, "there is no room for another one"
    assert "no capacity for 1 more" in daemon.last_fault(twin.state, "spot")
    capacity.wait(twin.state, "spot", 60, Lines())
    assert names(twin, "spot") == {"spot-1", "spot-2"}
    assert events(twin, "reclaim")["spot-0"] - events(twin, "notice")["spot-0"] >= 2
    assert events(twin, "add")["spot-2"] - began >= 9
    assert daemon.last_fault(twin.state, "spot") == ""


def test_less_room_takes_spot_machines_with_the_notice_of_their_cloud(twin, store):
    capacity.compress_time(twin.state, 60)
    Supply(twin.state).limit("spot", 0)

    eventually(lambda: not names(twin, "spot"), 30, "all are taken")

    taken = events(twin, "reclaim")
    assert taken["spot-1"] - events(twin, "notice")["spot-1"] >= 2, "120 s, sixty times as fast"
    Supply(twin.state).lift("spot")
    capacity.wait(twin.state, "spot", 60, Lines())


def test_a_machine_that_vanishes_is_replaced_by_another(twin, store):
    before = names(twin, "spot")
    lost = min(before)

    twin.vanish(lost)

    eventually(
        lambda: settled(twin, "spot") and lost not in names(twin, "spot"), 60, "it is replaced"
    )
    assert len(names(twin, "spot")) == 2


def test_a_killed_daemon_is_followed_by_one_that_goes_on_where_it_stopped(twin, store):
    running = daemon.find(twin.layout)
    doomed = min(names(twin, "spot"))
    twin.notice(doomed, 3, take=True)
    os.kill(running.pid, signal.SIGKILL)
    store.resize("spot", 3)

    assert capacity.wait(twin.state, "spot", 60, Lines())
    eventually(lambda: doomed not in names(twin, "spot"), 30, "the notice is kept")
    eventually(lambda: len(settled(twin, "spot") or ()) == 3, 60, "there are three again")
    assert doomed in events(twin, "reclaim")


def test_a_second_daemon_ends_by_itself(twin):
    first = daemon.find(twin.layout)
    command = [sys.executable, "-m", "twin.clouds.capacity", "--state", str(twin.state)]

    second = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert (second.returncode, "another daemon" in second.stdout) == (0, True)
    assert daemon.find(twin.layout) == first


def test_an_autoscaled_pool_grows_for_pods_that_wait_and_shrinks_when_they_are_gone(twin, store):
    api, workers = (
        api_of(twin),
        Pool(
            name="t4",
            cloud="azure",
            cluster="everstep",
            role=Role.GPU,
            instance_types=("Standard_NC4as_T4_v3",),
            region="eastus",
            labels={"for": "work"},
            taints=(Taint("kubernetes.azure.com/scalesetpriority", "spot"),),
            gpus=1,
            maximum=2,
            capacity="spot",
            autoscaled=True,
            idle_seconds=240,  # 4 s, sixty times as fast
        ),
    )
    store.put(workers)
    api.post(PODS, waiting_pod("works", {"for": "work"}))

    eventually(lambda: phase(api, "works") == "Running", 60, "a machine came for the pod")
    assert names(twin, "t4") == {"t4-0"}
    api.delete(f"{PODS}/works")

    eventually(lambda: not names(twin, "t4"), 60, "the idle machine went")
    assert store.get("t4").desired == 0


def test_on_eks_the_autoscaler_is_a_pod_and_without_it_nothing_grows(twin, store):
    api = api_of(twin)
    store.put(replace(SPOT, name="eks", labels={"for": "eks"}, desired=0, maximum=1))
    work = waiting_pod("asks", {"for": "eks"})
    api.post(PODS, work)
    eventually(lambda: phase(api, "asks") == "Pending", 10, "nobody takes it")
    time.sleep(2 * SCAN_SECONDS)
    assert store.get("eks").desired == 0

    api.post(PODS, autoscaler_pod())

    eventually(
        lambda: phase(api, "autoscaler") == "Running", 30, "its published image is answered for"
    )
    eventually(lambda: names(twin, "eks") == {"eks-0"}, 30, "a machine comes")
    for name in ("asks", "autoscaler"):
        api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
    store.delete("eks")


def waiting_pod(name, selector):
    wanted = pod(name, "", "import time; time.sleep(600)")
    del wanted["spec"]["nodeName"]
    wanted["spec"]["nodeSelector"] = selector
    return wanted


def autoscaler_pod():
    wanted = pod("autoscaler", "system-0", "")
    container = wanted["spec"]["containers"][0]
    container |= {"image": AUTOSCALER, "command": ["./cluster-autoscaler"], "args": ["--v=4"]}
    return wanted


def test_an_evicted_machine_of_azure_is_not_replaced_unless_somebody_wants_it(twin, store):
    store.put(SYSTEM)
    decaying = Pool(
        name="decays",
        cloud="azure",
        cluster="everstep",
        role=Role.GPU,
        instance_types=("Standard_NC4as_T4_v3",),
        region="eastus",
        gpus=1,
        desired=1,
        maximum=1,
        capacity="spot",
    )
    store.put(decaying)
    capacity.wait(twin.state, "decays", 60, Lines())

    capacity.reclaim(twin.state, ["decays-0"], notice_seconds=1)

    eventually(lambda: store.get("decays").desired == 0, 10, "the scale set is smaller by one")
    assert capacity.wait(twin.state, "decays", 10) == ()


def test_a_deleted_pool_leaves_no_machine(twin, store):
    for name in ("spot", "decays", "t4"):
        store.delete(name)

    for name in ("spot", "decays", "t4"):
        assert capacity.wait(twin.state, name, 60, Lines()) == ()
    assert names(twin, "system") == {"system-0"}


def test_a_daemon_whose_twin_no_longer_stands_is_found_by_the_doctor(twin):
    for component in components.COMPONENTS:
        processes.load(twin.layout.process(component)).kill()
    pid = daemon.find(twin.layout).pid

    assert any(what.startswith(f"{pid} ") and "capacity" in what for what in processes_left(twin))
    twin.up([], Lines())
    assert daemon.find(twin.layout).pid == pid, "a repair leaves it alone"


def processes_left(twin):
    named = {entry.what for entry in leftovers() if entry.kind == "process"}
    return {what for what in named if str(twin.state) in what}


def test_down_ends_the_daemon_and_leaves_nothing(twin):
    running = daemon.find(twin.layout)

    twin.down(Lines())

    assert not running.alive
    assert left_of(twin) == []
