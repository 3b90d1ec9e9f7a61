"""Machines of a cloud from inside their pods: metadata, notices, volumes, GPUs, published images."""

import json
import time
from typing import Any

import pytest
from cloudtwin import files
from cloudtwin.images.recipes import stand_in_for
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import MachineSpec, Role, Taint, Twin
from cloudtwin.nodes.kubelet import csi_drivers
from cloudtwin.progress import Lines

from twin.tests.nodes.conftest import api_of, wait_until
from twin.tests.nodes.pods import events_of, output_of, phase, pod, remove, start

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

SPOT_TAINT = Taint("example.com/spot", "true")
AGENT_TAINT = Taint("fsx.csi.aws.com/agent-not-ready", "", "NoExecute")
AWS = MachineSpec(
    name="gpu-aws",
    role=Role.GPU,
    gpus=2,
    labels={"example.com/pool": "gpu-spot", "team": "vision"},
    taints=(SPOT_TAINT, AGENT_TAINT),
    instance_type="g5.xlarge",
    zone="us-east-1a",
    region="us-east-1",
    cloud="aws",
    spot=True,
)
AZURE = MachineSpec(
    name="t4-7",
    role=Role.GPU,
    labels={"example.com/pool": "t4"},
    instance_type="Standard_NC4as_T4_v3",
    region="eastus",
    cloud="azure",
    spot=True,
    group="t4",
)
CLIENT = "11111111-2222-3333-4444-555555555555"
SUBJECT = "system:serviceaccount:default:trainer"
PLUGIN, EXPORTER = "nvcr.io/nvidia/k8s-device-plugin:v9", "nvcr.io/nvidia/k8s/dcgm-exporter:9"
READ_AWS_NOTICE = """
import json, time, urllib.error, urllib.request as web
BASE_URL = "http://169.254.169.254/latest/"
def request(path, method="GET", **headers):
    try:
        call = web.Request(BASE_URL + path, method=method, headers=headers)
        return web.urlopen(call, timeout=100).read().decode()
    except urllib.error.HTTPError as error:
        return error.code
without_token = request("meta-data/instance-id")
token = request("api/token", "PUT", **{"X-aws-ec2-metadata-token-ttl-seconds": "60"})
headers = {"X-aws-ec2-metadata-token": token}
first = request("meta-data/spot/instance-action", **headers)
print("READY", flush=True)
while (action := request("meta-data/spot/instance-action", **headers)) == 404: time.sleep(0.05)
print(json.dumps([without_token, first, json.loads(action)["action"], request("meta-data/instance-type", **headers)]))
"""
ACKNOWLEDGE_AZURE_EVENT = """
import json, time, urllib.request as web
URL = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
def request(body=None):
    call = web.Request(URL, data=body, headers={"Metadata": "true"})
    return web.urlopen(call, timeout=100).read()
print("READY", flush=True)
while not (events := json.loads(request())["Events"]): time.sleep(0.05)
print(json.dumps([events[0]["EventType"], events[0]["Resources"]]), flush=True)
request(json.dumps({"StartRequests": [{"EventId": events[0]["EventId"]}]}).encode())
time.sleep(60)
"""


@pytest.fixture(scope="module")
def twin(nodes_twin: Twin) -> Twin:
    nodes_twin.up([], Lines())
    for driver in (csi_drivers.FSX, csi_drivers.BLOB):
        csi_drivers.enable(nodes_twin.layout, api_of(nodes_twin), driver)
    nodes_twin.up([AWS, AZURE], Lines())
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}
    api_of(nodes_twin).apply("/api/v1/namespaces/default/serviceaccounts/trainer", account)
    volumes = {
        "fs-0123": {"folder": "lustre", "allowed": True, "attributes": {"mountname": "abcd"}},
        "fs-root": {"folder": "rooted", "allowed": True, "mode": "0755"},
        "rg#account#container": {"folder": "blob", "allowed": {CLIENT: [SUBJECT]}},
    }
    files.write_json(nodes_twin.layout.volumes, volumes)
    return nodes_twin


@pytest.fixture
def api(twin: Twin) -> KubernetesClient:
    return api_of(twin)


def node(api: KubernetesClient, machine: MachineSpec) -> dict[str, Any]:
    return api.get(f"/api/v1/nodes/{machine.name}")


def create_claim(
    api: KubernetesClient, name: str, driver: str, handle: str, **attributes: str
) -> dict[str, str]:
    """Create a volume and a claim; return the claim by its mount path."""
    common_fields = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    source = {"driver": driver, "volumeHandle": handle, "volumeAttributes": attributes}
    core = {"apiVersion": "v1", "metadata": {"name": name}}
    volume = {"kind": "PersistentVolume"} | core
    volume["spec"] = common_fields | {"capacity": {"storage": "1Gi"}, "csi": source}
    body = {"kind": "PersistentVolumeClaim"} | core
    body["spec"] = common_fields | {
        "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    api.apply(f"/api/v1/persistentvolumes/{name}", volume)
    api.apply(f"/api/v1/namespaces/default/persistentvolumeclaims/{name}", body)
    return {"/data": name}


def create_blob_claim(api: KubernetesClient, name: str, client: str = CLIENT) -> dict[str, str]:
    attributes = {"clientID": client, "mountWithWorkloadIdentityToken": "true"}
    return create_claim(api, name, csi_drivers.BLOB, "rg#account#container", **attributes)


def test_a_node_has_the_labels_and_taints_of_its_pool_and_of_its_cloud(
    twin: Twin, api: KubernetesClient
) -> None:
    def taints() -> list[str]:
        return [taint["key"] for taint in node(api, AWS)["spec"].get("taints", [])]

    wait_until(lambda: AGENT_TAINT.key not in taints(), 20, "the driver has removed its taint")
    aws, azure = node(api, AWS), node(api, AZURE)
    assert taints() == [SPOT_TAINT.key]
    assert (
        aws["metadata"]["labels"].items()
        >= {
            "example.com/pool": "gpu-spot",
            "team": "vision",
            "node.kubernetes.io/instance-type": "g5.xlarge",
            "topology.kubernetes.io/zone": "us-east-1a",
            "topology.kubernetes.io/region": "us-east-1",
        }.items()
    )
    assert aws["spec"]["providerID"].startswith("aws:///us-east-1a/i-0")
    assert azure["spec"]["providerID"].endswith("aks-t4-00000000-vmss/virtualMachines/7")


@pytest.mark.parametrize("host_network", [False, True], ids=["pod network", "host network"])
def test_a_pod_on_aws_reads_its_notice_in_each_network(
    twin: Twin, api: KubernetesClient, host_network: bool
) -> None:
    # Two names: the log of the other pod contains READY as well.
    name = "reads-host" if host_network else "reads-own"
    twin.layout.machine(AWS.name).notice.unlink(missing_ok=True)
    start(api, pod(name, AWS.name, READ_AWS_NOTICE, host_network=host_network))
    wait_until(lambda: "READY" in output_of(twin, AWS.name, name), 60, "the pod runs")

    twin.notice(AWS.name, 120)

    wait_until(lambda: phase(api, name) == "Succeeded", 20, "the pod has read its notice")
    responses = json.loads(output_of(twin, AWS.name, name)[-1])
    assert responses == [401, 404, "terminate", "g5.xlarge"]


def test_a_notice_is_one_event_and_removes_no_machine(twin: Twin) -> None:
    twin.layout.machine(AWS.name).notice.unlink(missing_ok=True)
    before = twin.events.read_text().count('"notice"')

    twin.notice(AWS.name, 0.5)
    twin.notice(AWS.name, 0.5)
    time.sleep(1)  # longer than the notice

    assert twin.events.read_text().count('"notice"') == before + 1
    assert {m.spec.name for m in twin.status().machines} == {AWS.name, AZURE.name}


def test_files_that_a_pod_writes_to_a_volume_are_on_the_shared_disk(
    twin: Twin, api: KubernetesClient
) -> None:
    volumes = create_claim(api, "lustre", csi_drivers.FSX, "fs-0123", mountname="abcd")

    start(
        api, pod("writes", AWS.name, "open('/data/file', 'w').write('by a pod')", volumes=volumes)
    )

    wait_until(lambda: phase(api, "writes") == "Succeeded", 60, "the pod has written")
    assert (twin.shared / "lustre" / "file").read_text() == "by a pod"


def test_the_group_of_a_pod_does_not_get_access_to_a_file_system_that_root_owns(
    twin: Twin, api: KubernetesClient
) -> None:
    # The driver has AWS's fsGroupPolicy, with which the kubelet does not apply `fsGroup` to shared volumes.
    body = pod(
        "prints-group",
        AWS.name,
        "import os; print(os.access('/data', os.W_OK))",
        volumes=create_claim(api, "rooted", csi_drivers.FSX, "fs-root"),
    )
    body["spec"]["securityContext"] = {"fsGroup": 1000}

    start(api, body)

    wait_until(
        lambda: phase(api, "prints-group") == "Succeeded", 60, "the pod has checked its access"
    )
    assert output_of(twin, AWS.name, "prints-group") == ["False"]


@pytest.mark.parametrize(
    ("handle", "mountname", "reason"),
    [
        ("fs-0999", "abcd", "the account has no volume 'fs-0999'"),
        ("fs-0123", "zzzz", "attribute 'mountname' is 'zzzz'"),
    ],
)
def test_a_pod_without_its_volume_waits_and_its_events_name_the_reason(
    twin: Twin, api: KubernetesClient, handle: str, mountname: str, reason: str
) -> None:
    name = f"{handle}-{mountname}"
    volumes = create_claim(api, name, csi_drivers.FSX, handle, mountname=mountname)

    start(api, pod(name, AWS.name, "", volumes=volumes))

    wait_until(lambda: reason in events_of(api, name), 90, "the kubelet reports the reason")
    assert phase(api, name) == "Pending"
    # The kubelet mounts a volume for one pod at a time, with exponential back-off: the next pod must not wait.
    remove(api, name)


def test_an_allowed_identity_gets_its_volume(twin: Twin, api: KubernetesClient) -> None:
    volumes = create_blob_claim(api, "allowed")

    start(
        api, pod("allowed", AZURE.name, "open('/data/x', 'w')", volumes=volumes, account="trainer")
    )

    wait_until(lambda: phase(api, "allowed") == "Succeeded", 60, "the pod has written")


@pytest.mark.parametrize(
    ("name", "client", "account", "reason"),
    [
        (
            "other-client",
            "99999999-0000-0000-0000-000000000000",
            "trainer",
            "AuthorizationPermission",
        ),
        ("other-account", CLIENT, "default", "AADSTS700213"),
    ],
)
def test_the_refusal_of_another_identity_is_in_the_events_of_the_pod(
    twin: Twin, api: KubernetesClient, name: str, client: str, account: str, reason: str
) -> None:
    volumes = create_blob_claim(api, name, client)

    start(api, pod(name, AZURE.name, "", volumes=volumes, account=account))

    wait_until(lambda: reason in events_of(api, name), 90, "the kubelet reports the reason")
    assert phase(api, name) == "Pending"
    # The kubelet mounts a volume for one pod at a time, with exponential back-off: the next pod must not wait.
    remove(api, name)


def test_gpus_and_their_utilization_are_visible_while_the_stand_ins_of_plugin_and_exporter_run(
    twin: Twin, api: KubernetesClient
) -> None:
    twin.alias_images(
        {image: local for image in (PLUGIN, EXPORTER) if (local := stand_in_for(image))}
    )

    def gpus() -> int:
        return int(node(api, AWS)["status"]["allocatable"].get("nvidia.com/gpu", 0))

    assert gpus() == 0, "no device plugin is installed yet"
    folder = "/var/lib/kubelet/device-plugins"
    start(api, daemon_pod("plugin", PLUGIN, folder))
    start(api, daemon_pod("exporter", EXPORTER))
    wait_until(lambda: gpus() == 2, 40, "the GPUs of the plugin are allocatable")
    wait_until(lambda: phase(api, "exporter") == "Running", 20, "the exporter runs")
    address = api.get("/api/v1/namespaces/default/pods/exporter")["status"]["podIP"]
    script = f"import urllib.request as w; print(w.urlopen('http://{address}:9400/metrics').read())"
    start(api, pod("scrapes", AWS.name, script))

    wait_until(lambda: phase(api, "scrapes") == "Succeeded", 30, "the metrics were read")
    assert 'DCGM_FI_DEV_GPU_UTIL{gpu="1"' in output_of(twin, AWS.name, "scrapes")[-1]
    api.delete("/api/v1/namespaces/default/pods/plugin")
    wait_until(lambda: gpus() == 0, 40, "no GPU is allocatable without the plugin")


def daemon_pod(name: str, image: str, folder: str | None = None) -> dict[str, Any]:
    """Return a pod as a DaemonSet creates it: it runs its image's entrypoint, optionally with a hostPath volume."""
    body = pod(name, AWS.name, "")
    container = body["spec"]["containers"][0]
    del container["command"], container["securityContext"]
    container["image"] = image
    if folder:
        container["volumeMounts"] = [{"name": "folder", "mountPath": folder}]
        body["spec"]["volumes"] = [{"name": "folder", "hostPath": {"path": folder}}]
    return body


def test_azure_reclaims_a_machine_as_soon_as_its_event_is_acknowledged(
    twin: Twin, api: KubernetesClient
) -> None:
    start(api, pod("acknowledges", AZURE.name, ACKNOWLEDGE_AZURE_EVENT))
    wait_until(lambda: "READY" in output_of(twin, AZURE.name, "acknowledges"), 60, "the pod runs")
    started_at = time.monotonic()

    twin.reclaim(AZURE.name, 200)

    assert time.monotonic() - started_at < 150, "the wait must end once a program has acknowledged"
    assert AZURE.name not in {n["metadata"]["name"] for n in api.get("/api/v1/nodes")["items"]}


def test_a_reclaimed_machine_ends_after_its_notice_and_is_removed(
    twin: Twin, api: KubernetesClient
) -> None:
    twin.layout.machine(AWS.name).notice.unlink(missing_ok=True)
    started_at = time.monotonic()

    twin.reclaim(AWS.name, 3)

    assert time.monotonic() - started_at >= 3, "the full notice time must pass"
    assert AWS.name not in {m.spec.name for m in twin.status().machines}
    assert not api.get("/api/v1/nodes")["items"]
    events = [json.loads(line) for line in twin.events.read_text().splitlines()][-2:]
    assert [(e["kind"], e["node"]) for e in events] == [("notice", AWS.name), ("reclaim", AWS.name)]
    assert events[1]["at"] - events[0]["at"] >= 3
