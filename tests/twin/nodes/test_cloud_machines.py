"""Machines of a cloud, seen by the pods on them: metadata, notices, volumes, GPUs, published images."""

import json
import time

import pytest

from everstep.errors import EverstepError
from everstep.progress import Lines
from tests.twin.nodes.conftest import api_of, eventually
from tests.twin.nodes.pods import events_of, phase, pod, remove, said, start
from twin.images.recipes import stand_in_for
from twin.nodes import MachineSpec, Role, Taint, drivers, files

pytestmark = [pytest.mark.twin, pytest.mark.timeout(300)]

GPU_TAINT = Taint("everstep/spot", "true")
AGENT_TAINT = Taint("fsx.csi.aws.com/agent-not-ready", "", "NoExecute")
AWS = MachineSpec(
    name="gpu-aws",
    role=Role.GPU,
    gpus=2,
    labels={"everstep/pool": "gpu-spot", "team": "vision"},
    taints=(GPU_TAINT, AGENT_TAINT),
    instance_type="g5.xlarge",
    zone="us-east-1a",
    region="us-east-1",
    cloud="aws",
    spot=True,
)
AZURE = MachineSpec(
    name="t4-7",
    role=Role.GPU,
    labels={"everstep/pool": "t4"},
    instance_type="Standard_NC4as_T4_v3",
    region="eastus",
    cloud="azure",
    spot=True,
    group="t4",
)
CLIENT = "11111111-2222-3333-4444-555555555555"
SUBJECT = "system:serviceaccount:default:trainer"
PLUGIN, EXPORTER = "nvcr.io/nvidia/k8s-device-plugin:v9", "nvcr.io/nvidia/k8s/dcgm-exporter:9"
AWS_NOTICE = """
import json, time, urllib.error, urllib.request as web
HOME = "http://169.254.169.254/latest/"
def ask(path, method="GET", **headers):
    try:
        asked = web.Request(HOME + path, method=method, headers=headers)
        return web.urlopen(asked, timeout=5).read().decode()
    except urllib.error.HTTPError as error:
        return error.code
bare = ask("meta-data/instance-id")
token = ask("api/token", "PUT", **{"X-aws-ec2-metadata-token-ttl-seconds": "60"})
mine = {"X-aws-ec2-metadata-token": token}
first = ask("meta-data/spot/instance-action", **mine)
print("READY", flush=True)
while (action := ask("meta-data/spot/instance-action", **mine)) == 404: time.sleep(0.05)
print(json.dumps([bare, first, json.loads(action)["action"], ask("meta-data/instance-type", **mine)]))
"""
AZURE_NOTICE = """
import json, time, urllib.request as web
URL = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
def ask(body=None):
    asked = web.Request(URL, data=body, headers={"Metadata": "true"})
    return web.urlopen(asked, timeout=5).read()
print("READY", flush=True)
while not (events := json.loads(ask())["Events"]): time.sleep(0.05)
print(json.dumps([events[0]["EventType"], events[0]["Resources"]]), flush=True)
ask(json.dumps({"StartRequests": [{"EventId": events[0]["EventId"]}]}).encode())
time.sleep(60)
"""


@pytest.fixture(scope="module")
def twin(nodes_twin):
    nodes_twin.up([], Lines())
    for driver in (drivers.FSX, drivers.BLOB):
        drivers.enable(nodes_twin.layout, api_of(nodes_twin), driver)
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
def api(twin):
    return api_of(twin)


def node(api, machine):
    return api.get(f"/api/v1/nodes/{machine.name}")


def claim(api, name, driver, handle, **attributes):
    """Make a volume and a claim on it."""
    shared = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    source = {"driver": driver, "volumeHandle": handle, "volumeAttributes": attributes}
    core = {"apiVersion": "v1", "metadata": {"name": name}}
    volume = {"kind": "PersistentVolume"} | core
    volume["spec"] = shared | {"capacity": {"storage": "1Gi"}, "csi": source}
    wanted = {"kind": "PersistentVolumeClaim"} | core
    wanted["spec"] = shared | {
        "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    api.apply(f"/api/v1/persistentvolumes/{name}", volume)
    api.apply(f"/api/v1/namespaces/default/persistentvolumeclaims/{name}", wanted)
    return {"/data": name}


def blob(api, name, client=CLIENT):
    attributes = {"clientID": client, "mountWithWorkloadIdentityToken": "true"}
    return claim(api, name, drivers.BLOB, "rg#account#container", **attributes)


def test_a_node_has_the_labels_and_taints_of_its_pool_and_what_its_cloud_says_of_it(twin, api):
    def taints():
        return [taint["key"] for taint in node(api, AWS)["spec"].get("taints", [])]

    eventually(lambda: AGENT_TAINT.key not in taints(), 20, "the driver took its taint off")
    aws, azure = node(api, AWS), node(api, AZURE)
    assert taints() == [GPU_TAINT.key]
    assert (
        aws["metadata"]["labels"].items()
        >= {
            "everstep/pool": "gpu-spot",
            "team": "vision",
            "node.kubernetes.io/instance-type": "g5.xlarge",
            "topology.kubernetes.io/zone": "us-east-1a",
            "topology.kubernetes.io/region": "us-east-1",
        }.items()
    )
    assert aws["spec"]["providerID"].startswith("aws:///us-east-1a/i-0")
    assert azure["spec"]["providerID"].endswith("aks-t4-00000000-vmss/virtualMachines/7")


@pytest.mark.parametrize("host_network", [False, True], ids=["of its own", "of the machine"])
def test_a_pod_on_aws_reads_its_notice_in_a_network(twin, api, host_network):
    name = "reads-host" if host_network else "reads-own"  # the log of another would say READY too
    twin.layout.machine(AWS.name).notice.unlink(missing_ok=True)
    start(api, pod(name, AWS.name, AWS_NOTICE, host_network=host_network))
    eventually(lambda: "READY" in said(twin, AWS.name, name), 60, "the pod runs")

    twin.notice(AWS.name, 120)

    eventually(lambda: phase(api, name) == "Succeeded", 20, "the pod has seen it")
    told = json.loads(said(twin, AWS.name, name)[-1])
    assert told == [401, 404, "terminate", "g5.xlarge"]


def test_a_notice_is_one_event_and_takes_nothing(twin):
    twin.layout.machine(AWS.name).notice.unlink(missing_ok=True)
    before = twin.events.read_text().count('"notice"')

    twin.notice(AWS.name, 0.5)
    twin.notice(AWS.name, 0.5)
    time.sleep(1)

    assert twin.events.read_text().count('"notice"') == before + 1
    assert {m.spec.name for m in twin.status().machines} == {AWS.name, AZURE.name}


def test_what_a_pod_writes_into_a_volume_lies_on_the_shared_disk(twin, api):
    mounted = claim(api, "lustre", drivers.FSX, "fs-0123", mountname="abcd")

    start(
        api, pod("writes", AWS.name, "open('/data/file', 'w').write('by a pod')", volumes=mounted)
    )

    eventually(lambda: phase(api, "writes") == "Succeeded", 60, "the pod has written")
    assert (twin.shared / "lustre" / "file").read_text() == "by a pod"


def test_the_group_of_a_pod_is_not_given_a_file_system_that_belongs_to_root(twin, api):
    """The driver of FSx leaves `fsGroup` to volumes of a single node, as AWS's own does."""
    wanted = pod(
        "asks-group",
        AWS.name,
        "import os; print(os.access('/data', os.W_OK))",
        volumes=claim(api, "rooted", drivers.FSX, "fs-root"),
    )
    wanted["spec"]["securityContext"] = {"fsGroup": 1000}

    start(api, wanted)

    eventually(lambda: phase(api, "asks-group") == "Succeeded", 60, "the pod has looked")
    assert said(twin, AWS.name, "asks-group") == ["False"]


@pytest.mark.parametrize(
    ("handle", "mountname", "why"),
    [
        ("fs-0999", "abcd", "the account has nothing that is called 'fs-0999'"),
        ("fs-0123", "zzzz", "attribute 'mountname' is 'zzzz'"),
    ],
)
def test_a_pod_waits_and_its_events_say_why_where_there_is_no_such_volume(
    twin, api, handle, mountname, why
):
    name = f"{handle}-{mountname}"
    mounted = claim(api, name, drivers.FSX, handle, mountname=mountname)

    start(api, pod(name, AWS.name, "", volumes=mounted))

    eventually(lambda: why in events_of(api, name), 90, "the kubelet says why")
    assert phase(api, name) == "Pending"
    # A kubelet tries one volume for one pod at a time, with growing pauses: the next pod must not wait behind this one.
    remove(api, name)


def test_the_identity_that_was_allowed_gets_its_volume(twin, api):
    mounted = blob(api, "allowed")

    start(
        api, pod("allowed", AZURE.name, "open('/data/x', 'w')", volumes=mounted, account="trainer")
    )

    eventually(lambda: phase(api, "allowed") == "Succeeded", 60, "the pod has written")


@pytest.mark.parametrize(
    ("name", "client", "account", "why"),
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
def test_another_identity_is_refused_and_the_events_of_the_pod_say_so(
    twin, api, name, client, account, why
):
    mounted = blob(api, name, client)

    start(api, pod(name, AZURE.name, "", volumes=mounted, account=account))

    eventually(lambda: why in events_of(api, name), 90, "the kubelet says why")
    assert phase(api, name) == "Pending"
    # A kubelet tries one volume for one pod at a time, with growing pauses: the next pod must not wait behind this one.
    remove(api, name)


def test_gpus_and_their_load_show_while_the_published_plugins_run_there(twin, api):
    twin.alias_images({image: stand_in_for(image) for image in (PLUGIN, EXPORTER)})

    def gpus():
        return int(node(api, AWS)["status"]["allocatable"].get("nvidia.com/gpu", 0))

    assert gpus() == 0, "nobody has installed a device plugin yet"
    folder = "/var/lib/kubelet/device-plugins"
    start(api, standing("plugin", PLUGIN, folder))
    start(api, standing("exporter", EXPORTER))
    eventually(lambda: gpus() == 2, 40, "the plugin's GPUs are there")
    eventually(lambda: phase(api, "exporter") == "Running", 20, "the exporter runs")
    address = api.get("/api/v1/namespaces/default/pods/exporter")["status"]["podIP"]
    script = f"import urllib.request as w; print(w.urlopen('http://{address}:9400/metrics').read())"
    start(api, pod("scrapes", AWS.name, script))

    eventually(lambda: phase(api, "scrapes") == "Succeeded", 30, "the metrics are there")
    assert 'DCGM_FI_DEV_GPU_UTIL{gpu="1"' in said(twin, AWS.name, "scrapes")[-1]
    api.delete("/api/v1/namespaces/default/pods/plugin")
    eventually(lambda: gpus() == 0, 40, "without the plugin there are no GPUs")


def standing(name, image, folder=None):
    """Return a pod as a DaemonSet would make it: the image's own program, and a folder of the machine."""
    wanted = pod(name, AWS.name, "")
    container = wanted["spec"]["containers"][0]
    del container["command"], container["securityContext"]
    container["image"] = image
    if folder:
        container["volumeMounts"] = [{"name": "folder", "mountPath": folder}]
        wanted["spec"]["volumes"] = [{"name": "folder", "hostPath": {"path": folder}}]
    return wanted


def test_azure_takes_a_machine_as_soon_as_its_event_is_acknowledged(twin, api):
    start(api, pod("agrees", AZURE.name, AZURE_NOTICE))
    eventually(lambda: "READY" in said(twin, AZURE.name, "agrees"), 60, "the pod runs")
    began = time.monotonic()

    twin.reclaim(AZURE.name, 60)

    assert time.monotonic() - began < 20, "nobody waits once a program has agreed"
    assert AZURE.name not in {n["metadata"]["name"] for n in api.get("/api/v1/nodes")["items"]}


def test_a_reclaimed_machine_goes_when_its_notice_has_run_out_and_is_forgotten(twin, api):
    twin.layout.machine(AWS.name).notice.unlink(missing_ok=True)
    began = time.monotonic()

    twin.reclaim(AWS.name, 3)

    assert time.monotonic() - began >= 3, "the notice is kept"
    assert AWS.name not in {m.spec.name for m in twin.status().machines}
    assert not api.get("/api/v1/nodes")["items"]
    kinds = [json.loads(line) for line in twin.events.read_text().splitlines()][-2:]
    assert [(e["kind"], e["node"]) for e in kinds] == [("notice", AWS.name), ("reclaim", AWS.name)]
    assert 3 <= kinds[1]["at"] - kinds[0]["at"] < 6


def test_a_machine_of_no_cloud_gets_no_notice(twin):
    twin.add(MachineSpec("plain", Role.SYSTEM), Lines())

    with pytest.raises(EverstepError, match="belongs to no cloud"):
        twin.notice("plain", 30)
