"""What a cloud's books mean for machines: which can be mounted, by whom, and how nodes look."""

import pytest

from tests.unit.twin.clouds import cases_aws as a
from tests.unit.twin.clouds import cases_azure as z
from twin.clouds.aws.eks_nodes import node_pools
from twin.clouds.aws.eks_rules import NODES
from twin.clouds.aws.fsx import SYSTEM
from twin.clouds.aws.network import INGRESS
from twin.clouds.aws.volumes import volumes as file_systems
from twin.clouds.azure.aks_pools import inline_pools, own_pool
from twin.clouds.azure.aks_rules import POOL
from twin.clouds.azure.identity import CREDENTIAL, IDENTITY
from twin.clouds.azure.storage import ACCOUNT, CONTAINER
from twin.clouds.azure.volumes import volumes as containers
from twin.clouds.volumes import path, write
from twin.clouds.world import World
from twin.nodes import files
from twin.nodes.model import Role, Taint

SPOT = "kubernetes.azure.com/scalesetpriority"


def rule(to: str, source: str, low: int, high: int):
    inputs = {"securityGroupId": to, "referencedSecurityGroupId": source, "ipProtocol": "tcp"}
    name = f"{to}-{source}-{low}"
    return a.resource(INGRESS, name, {**inputs, "fromPort": low, "toPort": high})


def lustre(*ways: tuple[str, str]):
    return [rule(*way, *ports) for way in ways for ports in ((988, 988), (1018, 1023))]


FILES = a.resource(SYSTEM, "fs-1", a.SYSTEM_INPUTS, dnsName="fs-1.fsx", mountName="abc")
BOTH = lustre(("sg-f", "sg-c"), ("sg-c", "sg-f"))


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (BOTH, ""),
        (BOTH[:3], "sg-c lets no server in on 1018-1023"),
        (BOTH[2:], "sg-f lets no node in on 988-988"),
        ([], "sg-f lets no node in"),
    ],
)
def test_a_file_system_is_mounted_only_where_lustre_passes_both_ways(rules, why):
    found = file_systems(World((a.cluster(), a.A, FILES, *rules)))["fs-1"]
    assert found["allowed"] is (not why)
    assert why in found["reason"]
    assert found["attributes"] == {"dnsname": "fs-1.fsx", "mountname": "abc"}


ISSUER = "https://issuer/"
DATA = f"{z.ROLE}ba92f5b4-2d11-453d-a403-e96b0029c9fe"
BLOBS = f"{z.RG}/providers/Microsoft.Storage/storageAccounts/a"
TRAINER = z.resource(IDENTITY, z.CONTROL, {}, principalId="p", clientId="client")
TRUST = z.resource(
    CREDENTIAL, f"{z.CONTROL}/federatedIdentityCredentials/t",
    {"issuer": ISSUER, "subject": "system:serviceaccount:elastic-job:trainer",
     "audiences": ["api://AzureADTokenExchange"]},
)  # fmt: skip
RIGHT = z.assigned("p", DATA, BLOBS)
BOX = z.resource(
    CONTAINER, f"{BLOBS}/blobServices/default/containers/training",
    {"resourceGroupName": "g", "accountName": "a", "containerName": "training"},
)  # fmt: skip
FEDERATED = z.resource(
    z.CLUSTER, z.AKS,
    {"agentPoolProfiles": [{"name": "system", "vnetSubnetID": z.NODES}],
     "securityProfile": {"workloadIdentity": {"enabled": True}}},
    oidcIssuerProfile={"issuerURL": ISSUER}, currentKubernetesVersion="1.36.2",
)  # fmt: skip


def account(**inputs: object):
    rules = {
        "virtualNetworkRules": [{"virtualNetworkResourceId": z.NODES}],
        "defaultAction": "Deny",
    }
    return z.resource(ACCOUNT, BLOBS, {"accountName": "a", "networkRuleSet": rules, **inputs})


def allowed(*resources: object):
    return containers(World(tuple(resources)))["g#a#training"]["allowed"]


def test_a_container_is_mounted_by_the_identity_that_has_the_right_and_is_trusted():
    whole = (account(), BOX, FEDERATED, TRAINER, TRUST, RIGHT)
    assert allowed(*whole) == {"client": ["system:serviceaccount:elastic-job:trainer"]}
    assert allowed(account(), BOX, FEDERATED, TRAINER, TRUST) == {}, "no role, no mount"
    assert allowed(account(), BOX, FEDERATED, TRAINER, RIGHT) == {"client": []}, "nobody is trusted"


def test_a_container_behind_rules_that_leave_the_nodes_out_is_mounted_by_nobody():
    shut = account(networkRuleSet={"defaultAction": "Deny"})
    assert allowed(shut, BOX, FEDERATED, TRAINER, TRUST, RIGHT) is False


def test_over_nfs_the_network_alone_decides():
    assert allowed(account(enableNfsV3=True), BOX, FEDERATED) is True


def test_the_volumes_of_one_cloud_leave_those_of_the_other_alone(tmp_path):
    write(tmp_path, "aws", {"fs-1": {"folder": "fs-1"}})
    write(tmp_path, "azure-native", {"g#a#c": {"folder": "a/c"}})
    write(tmp_path, "aws", {})
    assert files.read_json(path(tmp_path)) == {"g#a#c": {"folder": "a/c", "cloud": "azure-native"}}


def test_a_node_group_has_the_labels_taints_and_zone_that_were_declared():
    group = a.resource(
        NODES, "c:gpu",
        {**a.NODE, "nodeGroupName": "gpu", "capacityType": "SPOT", "amiType": "AL2023_x86_64_NVIDIA",
         "instanceTypes": ["g5.xlarge", "g6.xlarge"], "labels": {"everstep/pool": "gpu-spot"},
         "scalingConfig": {"minSize": 0, "desiredSize": 3, "maxSize": 6},
         "taints": [{"key": "everstep/spot", "value": "true", "effect": "NO_SCHEDULE"},
                    {"key": "fsx.csi.aws.com/agent-not-ready", "effect": "NO_EXECUTE"}]},
    )  # fmt: skip
    (pool,) = node_pools(group, World((a.A,)))

    assert (pool.role, pool.gpus, pool.capacity, pool.zone) == (Role.GPU, 1, "spot", "us-east-1a")
    assert (pool.minimum, pool.desired, pool.maximum) == (0, 3, 6)
    assert pool.taints == (Taint("everstep/spot", "true", "NoSchedule"),)
    assert pool.startup_taints == (Taint("fsx.csi.aws.com/agent-not-ready", "", "NoExecute"),)


def test_a_gpu_machine_without_the_nvidia_image_offers_no_gpu():
    said = {"nodeGroupName": "gpu", "instanceTypes": ["g5.xlarge"], "scalingConfig": a.SIZES}
    (pool,) = node_pools(a.resource(NODES, "c:gpu", {**a.NODE, **said}), World((a.A,)))
    assert pool.gpus == 0


def test_aks_puts_its_label_and_taint_on_a_spot_pool_that_declares_none():
    pool = z.resource(
        POOL, f"{z.AKS}/agentPools/t4",
        {"agentPoolName": "t4", "vmSize": "Standard_NC4as_T4_v3", "scaleSetPriority": "Spot",
         "enableAutoScaling": True, "count": 0, "minCount": 0, "maxCount": 3},
    )  # fmt: skip
    cluster = z.cluster(autoScalerProfile={"scaleDownUnneededTime": "5m"})
    (found,) = own_pool(pool, World((cluster, pool)))

    assert found.labels == {SPOT: "spot"}
    assert found.taints == (Taint(SPOT, "spot", "NoSchedule"),)
    assert (found.desired, found.maximum, found.autoscaled) == (0, 3, True)
    assert found.idle_seconds == 300


def test_inline_pools_are_machines_too():
    (found,) = inline_pools(z.cluster(), World())
    assert (found.name, found.role, found.region) == ("system", Role.SYSTEM, "eastus")
