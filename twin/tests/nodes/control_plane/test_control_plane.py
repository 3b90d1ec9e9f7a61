"""A control plane without machines, enough for most tests of a program or a controller."""

import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.nodes import Twin, twins
from cloudtwin.nodes.control_plane import dns, startup
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.network import addressing
from cloudtwin.progress import Lines

from twin.tests.nodes.conftest import api_of, kill_everything, leftovers_of, wait_until

pytestmark = pytest.mark.twin
DNS = "/api/v1/namespaces/kube-system/services/kube-dns"


@pytest.fixture(scope="module")
def twin(nodes_twin: Twin) -> Twin:
    nodes_twin.up([], Lines())
    return nodes_twin


def pid_of(twin: Twin, component: str) -> int:
    process = processes.load(twin.layout.process(component))
    assert process is not None, f"{component} has no record"
    return process.pid


def test_a_started_control_plane_is_ready_for_pods_and_reports_it(twin: Twin) -> None:
    api = api_of(twin)

    assert api.ready()
    account = api.get("/api/v1/namespaces/default/serviceaccounts/default")
    assert account["metadata"]["name"] == "default", "pods are refused without it"
    assert twin.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert twin.shared.stat().st_mode & 0o7777 == 0o1777
    status = twin.status()
    assert status.api_ready
    assert status.machines == ()
    assert set(status.components.values()) == {True}
    assert leftovers_of(twin) == [], "a running twin must not be reported as a leftover"
    (entry,) = (entry for entry in twins() if entry.state == str(twin.state))
    assert 0 <= entry.age_seconds < 3600
    assert f"CLOUDTWIN_NAME={twin.state.name}" in entry.how_to_remove


def test_the_dns_service_can_be_applied_concurrently(twin: Twin) -> None:
    api = api_of(twin)

    for _ in range(5):
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: dns.apply(twin.layout, api), range(4)))
        service = api.get(DNS)
        assert service["spec"]["clusterIP"] == str(addressing.DNS_SERVICE)
        api.delete(DNS)


def test_a_second_up_changes_nothing(twin: Twin) -> None:
    before = {name: pid_of(twin, name) for name in twin.status().components}

    twin.up([], Lines())

    assert {name: pid_of(twin, name) for name in twin.status().components} == before


@pytest.mark.parametrize("component", ["network-holder", "kube-apiserver", "etcd"])
def test_up_restarts_a_killed_component_and_keeps_its_data(twin: Twin, component: str) -> None:
    api = api_of(twin)
    name = f"kept-{component}"
    api.apply(
        f"/api/v1/namespaces/{name}",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
    )
    kubeconfig = twin.kubeconfig.read_text()
    os.kill(pid_of(twin, component), signal.SIGKILL)
    wait_until(
        lambda: not twin.status().components[component], 20, "the dead component is reported"
    )

    twin.up([], Lines())

    assert api.get(f"/api/v1/namespaces/{name}")["metadata"]["name"] == name
    assert twin.kubeconfig.read_text() == kubeconfig, "clients that have read it would lose access"


def test_a_twin_starts_next_to_another_after_killed_ups_and_is_removed_with_a_damaged_state(
    twin: Twin,
) -> None:
    second = Twin.open("nodes-test-2")
    program = "from cloudtwin.nodes import Twin; from cloudtwin.progress import Lines\n"
    program += "Twin.open('nodes-test-2').up([], Lines())"
    try:
        for seconds in (0.3, 1.0):  # the second continues after the first
            with contextlib.suppress(subprocess.TimeoutExpired):  # the timeout kills it
                subprocess.run([sys.executable, "-c", program], timeout=seconds, check=False)
        # As if the last one had been killed right after it started etcd.
        second.layout.process("etcd").unlink(missing_ok=True)
        second.up([], Lines())

        assert second.status().api_ready
        recorded_pids = {pid_of(second, component) for component in second.status().components}
        running_pids = CgroupHierarchies.detect().processes(second.layout.control_plane_cgroup)
        assert running_pids == recorded_pids, (
            "processes of a killed run must not remain next to the new ones"
        )

        first_api, second_api = api_of(twin), api_of(second)
        second_api.apply(
            "/api/v1/namespaces/x",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}},
        )
        assert first_api.port != second_api.port
        names = [item["metadata"]["name"] for item in first_api.get("/api/v1/namespaces")["items"]]
        assert "x" not in names

        second.layout.settings.unlink()
        for record in second.layout.control_plane.glob("*.json"):
            record.write_text("{")
    finally:
        second.down(Lines())
    assert leftovers_of(second) == []
    assert twin.status().api_ready, "taking one down must not affect the other"


def test_the_second_of_two_concurrent_ups_names_the_process_of_the_first(twin: Twin) -> None:
    program = (
        "from cloudtwin.nodes import Twin, lock; t = Twin.open('nodes-test')\n"
        "with lock.held(t.layout.lock, 'twin', 'up'): print(flush=True); input()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert first.stdout is not None
        first.stdout.readline()
        with pytest.raises(TwinError, match=f"process {first.pid} is running `up`"):
            twin.up([], Lines())
        with pytest.raises(TwinError, match=f"process {first.pid}"):
            twin.down(Lines())
    finally:
        first.communicate(b"\n")
    twin.up([], Lines())


def test_down_after_everything_was_killed_leaves_nothing(twin: Twin) -> None:
    kill_everything(twin)
    assert leftovers_of(twin), "a killed twin is a leftover until it is taken down"

    twin.down(Lines())

    assert leftovers_of(twin) == []
    assert not twin.state.exists()
    twin.down(Lines())  # a second `down` has nothing to do


def test_a_program_that_cannot_start_is_named_with_its_last_output(twin: Twin) -> None:
    twin.down(Lines())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "_scheduler", lambda _: ["--no-such-flag"])
        with pytest.raises(TwinError, match="kube-scheduler") as error:
            twin.up([], Lines())

    assert "no-such-flag" in error.value.problem
