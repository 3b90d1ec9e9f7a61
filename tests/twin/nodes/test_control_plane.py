"""A control plane without machines: what most developers of a program or a controller need."""

import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from everstep.errors import EverstepError
from everstep.progress import Lines
from tests.twin.nodes.conftest import api_of, eventually, kill_everything, left_of
from twin.nodes import Twin, addons, addressing, processes
from twin.nodes.cgroups import Tree

pytestmark = pytest.mark.twin
DNS = "/api/v1/namespaces/kube-system/services/kube-dns"


@pytest.fixture(scope="module")
def twin(nodes_twin):
    nodes_twin.up([], Lines())
    return nodes_twin


def pid_of(twin, component):
    return processes.load(twin.layout.process(component)).pid


def test_it_is_ready_for_pods_and_says_so(twin):
    api = api_of(twin)

    assert api.ready()
    assert api.get("/api/v1/namespaces/default/serviceaccounts/default"), (
        "pods would be refused without it"
    )
    assert twin.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert twin.shared.stat().st_mode & 0o7777 == 0o1777
    status = twin.status()
    assert status.api_ready
    assert status.machines == ()
    assert set(status.components.values()) == {True}
    assert left_of(twin) == [], "a twin that stands is no leftover"


def test_several_who_bring_machines_at_once_make_one_dns_service(twin):
    api = api_of(twin)

    for _ in range(5):
        with ThreadPoolExecutor(4) as makers:
            list(makers.map(lambda _: addons.apply(twin.layout, api), range(4)))
        service = api.get(DNS)
        assert service["spec"]["clusterIP"] == str(addressing.DNS_SERVICE)
        api.delete(DNS)


def test_a_second_up_changes_nothing(twin):
    before = {name: pid_of(twin, name) for name in twin.status().components}

    twin.up([], Lines())

    assert {name: pid_of(twin, name) for name in twin.status().components} == before


@pytest.mark.parametrize("component", ["keeper", "kube-apiserver", "etcd"])
def test_up_starts_what_was_killed_and_loses_nothing(twin, component):
    api = api_of(twin)
    name = f"kept-{component}"
    api.apply(
        f"/api/v1/namespaces/{name}",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
    )
    kubeconfig = twin.kubeconfig.read_text()
    os.kill(pid_of(twin, component), signal.SIGKILL)
    eventually(lambda: not twin.status().components[component], 20, "the death is noticed")

    twin.up([], Lines())

    assert api.get(f"/api/v1/namespaces/{name}")["metadata"]["name"] == name
    assert twin.kubeconfig.read_text() == kubeconfig, "whoever uses it would have to read it again"


def test_two_twins_stand_side_by_side_and_do_not_know_each_other(twin):
    other = Twin.open("nodes-test-2")
    try:
        other.up([], Lines())
        here, there = api_of(twin), api_of(other)
        there.apply(
            "/api/v1/namespaces/x",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}},
        )

        assert here.port != there.port
        names = [item["metadata"]["name"] for item in here.get("/api/v1/namespaces")["items"]]
        assert "x" not in names
    finally:
        other.down(Lines())
    assert twin.status().api_ready, "taking one down must leave the other alone"
    assert left_of(other) == []


def test_the_second_of_two_ups_is_told_who_the_first_is(twin):
    program = (
        "from twin.nodes import Twin, lock; t = Twin.open('nodes-test')\n"
        "with lock.held(t.layout.lock, 'twin', 'up'): print(flush=True); input()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        first.stdout.readline()
        with pytest.raises(EverstepError, match=f"process {first.pid} is at `up`"):
            twin.up([], Lines())
        with pytest.raises(EverstepError, match=f"process {first.pid}"):
            twin.down(Lines())
    finally:
        first.communicate(b"\n")
    twin.up([], Lines())


@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.0])
def test_an_up_that_was_killed_midway_can_be_run_again(twin, seconds):
    twin.down(Lines())
    program = "from twin.nodes import Twin; from everstep.progress import Lines\n"
    program += "Twin.open('nodes-test').up([], Lines())"
    with contextlib.suppress(subprocess.TimeoutExpired):  # on which it is killed
        subprocess.run([sys.executable, "-c", program], timeout=seconds, check=False)

    twin.up([], Lines())

    assert twin.status().api_ready
    remembered = {pid_of(twin, component) for component in twin.status().components}
    found = Tree.here().processes(twin.layout.control_plane_cgroup)
    assert found == remembered, "what the killed one had started must not be left beside the new"


def test_down_after_everything_was_killed_leaves_nothing(twin):
    kill_everything(twin)
    assert left_of(twin), "what was killed is a leftover until it is taken down"

    twin.down(Lines())

    assert left_of(twin) == []
    assert not twin.state.exists()
    twin.down(Lines())  # and again: there is nothing to do


def test_down_copes_with_a_state_that_is_half_gone(twin):
    twin.up([], Lines())
    twin.layout.settings.unlink()
    for record in twin.layout.control_plane.glob("*.json"):
        record.write_text("{")

    twin.down(Lines())

    assert left_of(twin) == []


def test_a_program_that_cannot_start_is_named_with_its_last_words(twin):
    from twin.nodes import control_plane

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_plane, "_scheduler", lambda _: ["--no-such-flag"])
        with pytest.raises(EverstepError, match="kube-scheduler") as caught:
            twin.up([], Lines())

    assert "no-such-flag" in caught.value.what
    twin.up([], Lines())
    assert twin.status().components["kube-scheduler"]
