"""Volumes and machine pools that follow from resources."""

from base64 import b64encode
from pathlib import Path

import pytest
from cloudtwin import files
from cloudtwin.nodes.model import Role, Taint
from cloudtwin.providers.aws.eks_nodes import node_pools
from cloudtwin.providers.aws.eks_rules import NODES
from cloudtwin.providers.aws.fsx import FILE_SYSTEM
from cloudtwin.providers.aws.machines import TEMPLATE
from cloudtwin.providers.aws.network import INGRESS, VPC
from cloudtwin.providers.aws.node_config import registration_taints
from cloudtwin.providers.aws.volumes import volumes as file_systems
from cloudtwin.providers.azure.aks_pools import inline_pools, separate_pool
from cloudtwin.providers.azure.aks_rules import POOL
from cloudtwin.providers.azure.identity import CLUSTER, CREDENTIAL, IDENTITY
from cloudtwin.providers.azure.storage import ACCOUNT, CONTAINER
from cloudtwin.providers.azure.volumes import volumes as containers
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.volumes import path, write

from twin.tests.providers.aws import cases as aws_cases
from twin.tests.providers.azure import cases as azure_cases

SPOT = "kubernetes.azure.com/scalesetpriority"

USER_DATA = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="everstep"

--everstep
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    flags:
      - --register-with-taints=everstep.dev/spot=true:NoSchedule,fsx.csi.aws.com/agent-not-ready:NoExecute
--everstep--
"""


def encoded(user_data: str) -> str:
    return b64encode(user_data.encode()).decode()


def rule(group: str, source: str, low: int, high: int) -> Resource:
    inputs = {"securityGroupId": group, "referencedSecurityGroupId": source, "ipProtocol": "tcp"}
    name = f"{group}-{source}-{low}"
    return aws_cases.resource(INGRESS, name, {**inputs, "fromPort": low, "toPort": high})


def lustre(*rules: tuple[str, str]) -> list[Resource]:
    """Return rules that open the Lustre ports of each pair of a group and its source."""
    return [rule(*pair, *ports) for pair in rules for ports in ((988, 988), (1018, 1023))]


FSX_FILE_SYSTEM = aws_cases.resource(
    FILE_SYSTEM, "fs-1", aws_cases.FILE_SYSTEM_INPUTS, dnsName="fs-1.fsx", mountName="abc"
)
OPEN_RULES = lustre(("sg-f", "sg-c"), ("sg-c", "sg-f"))


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (OPEN_RULES, ""),
        (OPEN_RULES[:3], "sg-c allows no traffic from the file system on ports 1018-1023"),
        (OPEN_RULES[2:], "sg-f allows no traffic from the nodes on ports 988-988"),
        ([], "sg-f allows no traffic from the nodes"),
    ],
)
def test_a_file_system_is_mounted_only_if_lustre_ports_are_open_in_both_directions(
    rules: list[Resource], reason: str
) -> None:
    volume = file_systems(
        Inventory((aws_cases.cluster(), aws_cases.SUBNET_A, FSX_FILE_SYSTEM, *rules))
    )["fs-1"]
    assert volume["allowed"] is (not reason)
    assert reason in volume["reason"]
    assert volume["attributes"] == {"dnsname": "fs-1.fsx", "mountname": "abc"}


def test_a_file_system_without_security_groups_has_the_default_group_of_the_vpc() -> None:
    inputs = {**aws_cases.FILE_SYSTEM_INPUTS, "securityGroupIds": []}
    system = aws_cases.resource(FILE_SYSTEM, "fs-1", inputs, dnsName="fs-1.fsx", mountName="abc")
    vpc = aws_cases.resource(
        VPC, aws_cases.SUBNET_A.inputs["vpcId"], {}, defaultSecurityGroupId="sg-d"
    )
    resources = (aws_cases.cluster(), aws_cases.SUBNET_A, vpc, system)

    assert "sg-d allows no traffic" in file_systems(Inventory(resources))["fs-1"]["reason"]

    rules = lustre(("sg-d", "sg-c"), ("sg-c", "sg-d"))
    assert file_systems(Inventory((*resources, *rules)))["fs-1"]["allowed"]


ISSUER = "https://issuer/"
BLOB_DATA_ROLE = f"{azure_cases.ROLE}ba92f5b4-2d11-453d-a403-e96b0029c9fe"
BLOBS = f"{azure_cases.RG}/providers/Microsoft.Storage/storageAccounts/a"
TRAINER = azure_cases.resource(
    IDENTITY, azure_cases.CONTROL, {}, principalId="p", clientId="client"
)
FEDERATED_CREDENTIAL = azure_cases.resource(
    CREDENTIAL, f"{azure_cases.CONTROL}/federatedIdentityCredentials/t",
    {"issuer": ISSUER, "subject": "system:serviceaccount:elastic-job:trainer",
     "audiences": ["api://AzureADTokenExchange"]},
)  # fmt: skip
ROLE_ASSIGNMENT = azure_cases.assignment("p", BLOB_DATA_ROLE, BLOBS)
BLOB_CONTAINER = azure_cases.resource(
    CONTAINER, f"{BLOBS}/blobServices/default/containers/training",
    {"resourceGroupName": "g", "accountName": "a", "containerName": "training"},
)  # fmt: skip
FEDERATED_CLUSTER = azure_cases.resource(
    CLUSTER, azure_cases.AKS,
    {"agentPoolProfiles": [{"name": "system", "vnetSubnetID": azure_cases.NODES}],
     "securityProfile": {"workloadIdentity": {"enabled": True}}},
    oidcIssuerProfile={"issuerURL": ISSUER}, currentKubernetesVersion="1.36.2",
)  # fmt: skip


def account(**inputs: object) -> Resource:
    rules = {
        "virtualNetworkRules": [{"virtualNetworkResourceId": azure_cases.NODES}],
        "defaultAction": "Deny",
    }
    return azure_cases.resource(
        ACCOUNT, BLOBS, {"accountName": "a", "networkRuleSet": rules, **inputs}
    )


def allowed(*resources: Resource) -> object:
    return containers(Inventory(tuple(resources)))["g#a#training"]["allowed"]


def test_a_container_is_mounted_by_a_trusted_identity_with_the_role() -> None:
    resources = (
        account(),
        BLOB_CONTAINER,
        FEDERATED_CLUSTER,
        TRAINER,
        FEDERATED_CREDENTIAL,
        ROLE_ASSIGNMENT,
    )
    assert allowed(*resources) == {"client": ["system:serviceaccount:elastic-job:trainer"]}
    assert (
        allowed(account(), BLOB_CONTAINER, FEDERATED_CLUSTER, TRAINER, FEDERATED_CREDENTIAL) == {}
    ), "a mount needs the role"
    assert allowed(account(), BLOB_CONTAINER, FEDERATED_CLUSTER, TRAINER, ROLE_ASSIGNMENT) == {
        "client": []
    }, "no ServiceAccount is trusted"


def test_a_container_whose_rules_exclude_the_nodes_cannot_be_mounted() -> None:
    closed_account = account(networkRuleSet={"defaultAction": "Deny"})
    assert (
        allowed(
            closed_account,
            BLOB_CONTAINER,
            FEDERATED_CLUSTER,
            TRAINER,
            FEDERATED_CREDENTIAL,
            ROLE_ASSIGNMENT,
        )
        is False
    )


def test_over_nfs_only_the_network_rules_apply() -> None:
    assert allowed(account(enableNfsV3=True), BLOB_CONTAINER, FEDERATED_CLUSTER) is True


def test_writing_the_volumes_of_one_cloud_keeps_the_volumes_of_the_other(tmp_path: Path) -> None:
    write(tmp_path, "aws", {"fs-1": {"folder": "fs-1"}})
    write(tmp_path, "azure-native", {"g#a#c": {"folder": "a/c"}})
    write(tmp_path, "aws", {})
    assert files.read_json(path(tmp_path)) == {"g#a#c": {"folder": "a/c", "cloud": "azure-native"}}


def test_a_node_group_has_its_declared_labels_taints_and_zone() -> None:
    group = aws_cases.resource(
        NODES, "c:gpu",
        {**aws_cases.NODE, "nodeGroupName": "gpu", "capacityType": "SPOT", "amiType": "AL2023_x86_64_NVIDIA",
         "instanceTypes": ["g5.xlarge", "g6.xlarge"], "labels": {"everstep.dev/pool": "gpu-spot"},
         "scalingConfig": {"minSize": 0, "desiredSize": 3, "maxSize": 6},
         "taints": [{"key": "everstep.dev/spot", "value": "true", "effect": "NO_SCHEDULE"},
                    {"key": "fsx.csi.aws.com/agent-not-ready", "effect": "NO_EXECUTE"}]},
    )  # fmt: skip
    (pool,) = node_pools(group, Inventory((aws_cases.SUBNET_A,)))

    assert (pool.role, pool.gpus, pool.capacity, pool.zone) == (Role.GPU, 1, "spot", "us-east-1a")
    assert (pool.min_size, pool.desired_size, pool.max_size) == (0, 3, 6)
    assert pool.labels["everstep.dev/pool"] == "gpu-spot"
    assert pool.taints == (Taint("everstep.dev/spot", "true", "NoSchedule"),)
    assert pool.startup_taints == (Taint("fsx.csi.aws.com/agent-not-ready", "", "NoExecute"),)


def test_a_node_registers_with_the_taints_in_the_user_data_of_its_template() -> None:
    template = aws_cases.resource(TEMPLATE, "lt-1", {"userData": encoded(USER_DATA)}, name="gpu")
    group = aws_cases.resource(
        NODES, "c:gpu",
        {**aws_cases.NODE, "nodeGroupName": "gpu", "scalingConfig": aws_cases.SIZES,
         "taints": [{"key": "everstep.dev/spot", "value": "true", "effect": "NO_SCHEDULE"}],
         "launchTemplate": {"id": "lt-1"}},
    )  # fmt: skip
    (pool,) = node_pools(group, Inventory((aws_cases.SUBNET_A, template)))

    assert pool.taints == (Taint("everstep.dev/spot", "true", "NoSchedule"),)
    assert pool.startup_taints == (Taint("fsx.csi.aws.com/agent-not-ready", "", "NoExecute"),)


@pytest.mark.parametrize(
    "user_data",
    [None, "not base64", encoded("#!/bin/bash\n"), encoded(USER_DATA.replace("flags", "{"))],
)
def test_user_data_without_a_node_config_has_no_taints(user_data: object) -> None:
    assert registration_taints(user_data) == ()


def test_the_last_flag_of_the_kubelet_replaces_earlier_ones() -> None:
    later = "--everstep\n" + USER_DATA.partition("--everstep\n")[2].replace("fsx", "ebs")
    two_parts = USER_DATA.removesuffix("--everstep--\n") + later

    assert [taint.key for taint in registration_taints(encoded(two_parts))] == [
        "everstep.dev/spot",
        "ebs.csi.aws.com/agent-not-ready",
    ]


def test_an_upgrade_and_a_new_template_version_change_the_release_of_a_node_group() -> None:
    def release(version: str, template: str) -> str:
        inputs = {"nodeGroupName": "gpu", "scalingConfig": aws_cases.SIZES}
        launch = {"launchTemplate": {"id": "lt-1", "version": template}}
        group = aws_cases.resource(
            NODES, "c:gpu", {**aws_cases.NODE, **inputs, **launch}, version=version
        )
        (pool,) = node_pools(group, Inventory((aws_cases.SUBNET_A,)))
        assert pool.surge == 1
        return pool.release

    assert release("1.36", "1") == release("1.36", "1")
    assert len({release("1.36", "1"), release("1.37", "1"), release("1.36", "2")}) == 3


@pytest.mark.parametrize(
    ("inputs", "surge"),
    [
        ({"scaleSetPriority": "Spot"}, 0),
        ({"upgradeSettings": {"maxSurge": "0"}}, 0),
        ({"upgradeSettings": {"maxSurge": "1"}}, 1),
        ({"upgradeSettings": {"maxSurge": "34%"}}, 2),
        ({}, 1),
    ],
)
def test_an_aks_pool_has_its_declared_surge_and_a_spot_pool_has_none(
    inputs: dict[str, object], surge: int
) -> None:
    pool_inputs = {"agentPoolName": "t4", "vmSize": "Standard_NC4as_T4_v3", "count": 4, **inputs}
    resource = azure_cases.resource(
        POOL, f"{azure_cases.AKS}/agentPools/t4", {**pool_inputs, "orchestratorVersion": "1.35"}
    )
    (pool,) = separate_pool(resource, Inventory((azure_cases.cluster(), resource)))

    assert pool.surge == surge
    assert pool.release == "1.35.5", "a pool has its own version"


def test_a_node_group_has_the_instance_type_and_security_groups_of_the_template_it_names() -> None:
    template = aws_cases.resource(
        TEMPLATE, "lt-1", {"instanceType": "g5.xlarge", "vpcSecurityGroupIds": ["sg-n"]}, name="gpu"
    )
    inputs = {"nodeGroupName": "gpu", "scalingConfig": aws_cases.SIZES}
    group = aws_cases.resource(
        NODES, "c:gpu", {**aws_cases.NODE, **inputs, "launchTemplate": {"name": "gpu"}}
    )
    account = Inventory(
        (aws_cases.SUBNET_A, template, group, FSX_FILE_SYSTEM, *lustre(("sg-f", "sg-n")))
    )

    (pool,) = node_pools(group, account)

    assert (pool.instance_types, pool.role) == (("g5.xlarge",), Role.GPU)
    assert "sg-n allows no traffic" in file_systems(account)["fs-1"]["reason"]


def test_a_gpu_machine_without_the_nvidia_image_offers_no_gpu() -> None:
    inputs = {
        "nodeGroupName": "gpu",
        "instanceTypes": ["g5.xlarge"],
        "scalingConfig": aws_cases.SIZES,
    }
    (pool,) = node_pools(
        aws_cases.resource(NODES, "c:gpu", {**aws_cases.NODE, **inputs}),
        Inventory((aws_cases.SUBNET_A,)),
    )
    assert pool.gpus == 0


def test_aks_puts_its_label_and_taint_on_a_spot_pool_that_declares_none() -> None:
    resource = azure_cases.resource(
        POOL, f"{azure_cases.AKS}/agentPools/t4",
        {"agentPoolName": "t4", "vmSize": "Standard_NC4as_T4_v3", "scaleSetPriority": "Spot",
         "enableAutoScaling": True, "count": 0, "minCount": 0, "maxCount": 3},
    )  # fmt: skip
    cluster = azure_cases.cluster(autoScalerProfile={"scaleDownUnneededTime": "5m"})
    (pool,) = separate_pool(resource, Inventory((cluster, resource)))

    assert pool.labels == {SPOT: "spot"}
    assert pool.taints == (Taint(SPOT, "spot", "NoSchedule"),)
    assert (pool.desired_size, pool.max_size, pool.autoscaled) == (0, 3, True)
    assert pool.idle_seconds == 300


def test_inline_pools_are_machine_pools_too() -> None:
    (pool,) = inline_pools(azure_cases.cluster(), Inventory())
    assert (pool.name, pool.role, pool.region) == ("system", Role.SYSTEM, "eastus")
