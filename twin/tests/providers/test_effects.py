"""Effects of resources on machines."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from cloudtwin.capacity import Pool, shortage
from cloudtwin.providers import aws, azure
from cloudtwin.providers.account import Account
from cloudtwin.providers.aws.eks_nodes import node_pools
from cloudtwin.providers.aws.eks_rules import NODES
from cloudtwin.providers.azure.aks import BLOB_DRIVER
from cloudtwin.providers.azure.aks_pools import inline_pools
from cloudtwin.providers.azure.aks_rules import POOL
from cloudtwin.providers.azure.common import GROUP
from cloudtwin.providers.azure.identity import CLUSTER
from cloudtwin.providers.azure.network import SUBNET
from cloudtwin.providers.effects import Effects
from cloudtwin.providers.errors import CloudError
from cloudtwin.providers.machines import Offline
from cloudtwin.providers.model import ProviderConfig
from cloudtwin.providers.protocol.values import Object
from cloudtwin.providers.timeouts import Timeouts

from twin.tests.providers.aws import cases as aws_cases
from twin.tests.providers.azure import cases as azure_cases
from twin.tests.providers.offline import Provider, request


@pytest.mark.parametrize(
    ("capacity_type", "words"),
    [("SPOT", "There is no Spot capacity available"), ("ON_DEMAND", "On-Demand Instances")],
)
def test_a_node_group_without_capacity_has_the_error_of_its_pool(
    tmp_path: Path, capacity_type: str, words: str
) -> None:
    inputs = {
        "nodeGroupName": "gpu",
        "instanceTypes": ["g5.xlarge"],
        "scalingConfig": aws_cases.SIZES,
    }
    nodes = aws_cases.resource(
        NODES, "c:gpu", {**aws_cases.NODE, **inputs, "capacityType": capacity_type}
    )
    account = Account(tmp_path, "aws")
    with account.transaction() as transaction:
        transaction.put(aws_cases.SUBNET_A)
    (pool,) = node_pools(nodes, account.read())

    message = Effects(account, Offline(), aws.CLOUD.types).shortage(nodes)

    assert message == shortage.reason(pool, 1)
    assert words in message


def test_a_cluster_without_capacity_has_the_error_of_its_inline_pools(tmp_path: Path) -> None:
    cluster, account = azure_cases.cluster(), Account(tmp_path, "azure-native")
    (pool,) = inline_pools(cluster, account.read())

    message = Effects(account, Offline(), azure.CLOUD.types).shortage(cluster)

    assert message == shortage.reason(pool, 1)
    assert message.startswith("AllocationFailed: ")


class RecordingMachines(Offline):
    """No machines; records the storage drivers that are installed and the pod identities."""

    def __init__(self) -> None:
        self.drivers: set[str] = set()
        self.identities: set[tuple[str, str]] = set()

    def set_driver(self, name: str, *, enabled: bool) -> None:
        (self.drivers.add if enabled else self.drivers.discard)(name)

    def set_pod_identity(self, namespace: str, account: str, *, enabled: bool) -> None:
        (self.identities.add if enabled else self.identities.discard)((namespace, account))


def test_an_association_gives_pods_an_identity_until_it_is_deleted(tmp_path: Path) -> None:
    machines = RecordingMachines()
    effects = Effects(Account(tmp_path, "aws"), machines, aws.CLOUD.types)
    timeouts = Timeouts(report=lambda _text: None, cancelled=threading.Event())
    inputs = {"clusterName": "c", "namespace": "kube-system", "serviceAccount": "scaler"}
    association = aws_cases.resource(aws_cases.POD_IDENTITY, "a-1", inputs)

    effects.apply(association, None, timeouts)
    assert machines.identities == {("kube-system", "scaler")}

    effects.undo([association], timeouts)
    assert not machines.identities


def test_an_identity_that_another_cluster_has_too_is_kept(tmp_path: Path) -> None:
    machines, account = RecordingMachines(), Account(tmp_path, "aws")
    effects = Effects(account, machines, aws.CLOUD.types)
    timeouts = Timeouts(report=lambda _text: None, cancelled=threading.Event())
    first, second = (
        aws_cases.resource(
            aws_cases.POD_IDENTITY,
            f"a-{cluster}",
            {"clusterName": cluster, "namespace": "kube-system", "serviceAccount": "scaler"},
        )
        for cluster in ("one", "two")
    )
    with account.transaction() as transaction:
        transaction.put(first)
        transaction.put(second)
    effects.apply(first, None, timeouts)
    effects.apply(second, None, timeouts)

    effects.undo([first], timeouts)
    assert machines.identities == {("kube-system", "scaler")}

    with account.transaction() as transaction:
        transaction.remove(first)
    effects.undo([second], timeouts)
    assert not machines.identities


def test_an_update_that_disables_a_driver_removes_it_from_the_cluster(tmp_path: Path) -> None:
    machines = RecordingMachines()
    effects = Effects(Account(tmp_path, "azure-native"), machines, azure.CLOUD.types)
    timeouts = Timeouts(report=lambda _text: None, cancelled=threading.Event())
    with_driver, without_driver = (
        azure_cases.cluster(storageProfile={"blobCSIDriver": {"enabled": enabled}})
        for enabled in (True, False)
    )

    effects.apply(with_driver, None, timeouts)
    assert machines.drivers == {BLOB_DRIVER}

    effects.apply(without_driver, with_driver, timeouts)
    assert not machines.drivers, "volumes could be mounted that AKS would not mount"


def test_an_update_that_is_repeated_after_a_kill_removes_the_driver(tmp_path: Path) -> None:
    # The killed update stored its inputs, so the repeated one finds them as the previous inputs.
    machines = RecordingMachines()
    machines.drivers.add(BLOB_DRIVER)
    effects = Effects(Account(tmp_path, "azure-native"), machines, azure.CLOUD.types)
    timeouts = Timeouts(report=lambda _text: None, cancelled=threading.Event())
    cluster = azure_cases.cluster(storageProfile={"blobCSIDriver": {"enabled": False}})

    effects.apply(cluster, cluster, timeouts)

    assert not machines.drivers


def test_a_driver_that_another_cluster_enables_is_kept(tmp_path: Path) -> None:
    machines, account = RecordingMachines(), Account(tmp_path, "azure-native")
    effects = Effects(account, machines, azure.CLOUD.types)
    timeouts = Timeouts(report=lambda _text: None, cancelled=threading.Event())
    first, second, without_driver = (
        replace(
            azure_cases.cluster(storageProfile={"blobCSIDriver": {"enabled": enabled}}), id=name
        )
        for name, enabled in (("first", True), ("second", True), ("third", False))
    )
    with account.transaction() as transaction:
        transaction.put(first)
        transaction.put(second)
        transaction.put(without_driver)

    effects.apply(first, None, timeouts)
    effects.apply(without_driver, without_driver, timeouts)
    effects.undo([second], timeouts)
    assert machines.drivers == {BLOB_DRIVER}

    with account.transaction() as transaction:
        transaction.remove(second)
    effects.undo([first], timeouts)
    assert not machines.drivers


class ScaledMachines(Offline):
    """No machines; has the sizes of the pools, which a test changes as the autoscaler does."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def put(self, pool: Pool) -> None:
        self.sizes[pool.name] = pool.desired_size

    def size(self, pool: str) -> int | None:
        return next((size for name, size in self.sizes.items() if pool.endswith(name)), None)


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"labels": {"a": "b"}}, 4),
        ({"scalingConfig": {"minSize": 0, "desiredSize": 2, "maxSize": 5}}, 2),
        ({"scalingConfig": {"minSize": 0, "desiredSize": 4, "maxSize": 5}}, 4),
    ],
)
def test_an_update_of_the_sizes_of_a_node_group_sends_its_desired_size(
    tmp_path: Path, changes: Object, size: int
) -> None:
    sizes = {"minSize": 0, "desiredSize": 2, "maxSize": 6}
    inputs = {**aws_cases.NODE, "nodeGroupName": "gpu", "scalingConfig": sizes}
    assert size_after_update(Account(tmp_path, "aws"), "gpu", NODES, inputs, changes) == size


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"nodeLabels": {"a": "b"}}, 1),
        ({"count": 4, "minCount": 5}, 5),
        ({"count": 4, "maxCount": 3}, 4),
        ({"count": None, "maxCount": 5}, 4),
    ],
)
def test_an_update_of_an_aks_pool_sends_its_count_and_the_autoscaler_adds_nodes_up_to_the_minimum(
    tmp_path: Path, changes: Object, size: int
) -> None:
    account = Account(tmp_path, "azure-native")
    with account.transaction() as transaction:
        transaction.put(azure_cases.cluster())
    bounds = {"enableAutoScaling": True, "minCount": 0, "count": 1, "maxCount": 6}
    inputs = {"agentPoolName": "t4", "vmSize": "Standard_NC4as_T4_v3", **bounds}
    assert size_after_update(account, "t4", POOL, inputs, changes) == size


def size_after_update(
    account: Account, pool: str, token: str, inputs: Object, changes: Object
) -> int:
    """Return the size of a pool that the autoscaler has resized to 4, after an update with changed inputs."""
    machines = ScaledMachines()
    types = aws.CLOUD.types if token == NODES else azure.CLOUD.types
    effects = Effects(account, machines, types)
    timeouts = Timeouts(report=lambda _text: None, cancelled=threading.Event())
    case = azure_cases if token == POOL else aws_cases
    old = case.resource(token, f"{azure_cases.AKS}/agentPools/t4", inputs)
    effects.apply(old, None, timeouts)
    machines.sizes[pool] = 4

    effects.apply(replace(old, inputs={**inputs, **changes}), old, timeouts)

    return machines.sizes[pool]


def test_an_inline_pool_that_an_update_no_longer_declares_is_kept(
    tmp_path: Path,
) -> None:
    config = ProviderConfig(cloud="azure-native", region="eastus")
    provider = Provider(azure.CLOUD, tmp_path, Offline(), config)
    names = {"resourceGroupName": "g", "resourceName": "c"}
    system, extra = (
        {"name": name, "mode": mode, "count": 1, "vmSize": "Standard_D4s_v5"}
        for name, mode in (("system", "System"), ("extra", "User"))
    )
    inputs = {**names, "dnsPrefix": "c", "identity": {"type": "SystemAssigned"}}
    provider.create_resource(GROUP, "g", resourceGroupName="g")
    cluster = provider.create_resource(
        CLUSTER, "c", **inputs, kubernetesVersion="1.35", agentPoolProfiles=[system, extra]
    )

    def pools_after_update(*profiles: Object) -> list[str]:
        provider.update(
            request(CLUSTER, "c"), cluster, {**inputs, "agentPoolProfiles": list(profiles)}, 5
        )
        resource = provider.account.read().find((CLUSTER,), cluster)
        assert resource
        return [pool.name for pool in inline_pools(resource, provider.account.read())]

    def version() -> str:
        resource = provider.account.read().find((CLUSTER,), cluster)
        assert resource
        return str(resource.outputs["currentKubernetesVersion"])

    assert version() == "1.35.5"
    assert pools_after_update(system) == ["system", "extra"], (
        "the machines of the pool keep running"
    )
    assert version() == "1.35.5", "the update sets no version"
    with pytest.raises(CloudError, match="already has an inline pool 'extra'"):
        provider.create_resource(
            POOL, "p", **names, agentPoolName="extra", vmSize="Standard_D4s_v5", count=1
        )
    assert pools_after_update(system, extra) == ["system", "extra"], "AKS accepts the pool again"


def test_the_subnet_of_a_kept_inline_pool_is_not_deleted(tmp_path: Path) -> None:
    provider = Provider(
        azure.CLOUD, tmp_path, Offline(), ProviderConfig(cloud="azure-native", region="eastus")
    )
    subnet = replace(azure_cases.cluster(), token=SUBNET, id="/subnets/old", inputs={}, outputs={})
    pools = [{"name": "extra", "vnetSubnetID": "/SUBNETS/old"}]
    with provider.account.transaction() as transaction:
        transaction.put(subnet)
        transaction.put(replace(azure_cases.cluster(), outputs={"agentPoolProfiles": pools}))

    with pytest.raises(CloudError, match=r"InUseSubnetCannotBeDeleted: .*the pool extra"):
        provider.delete_resource(SUBNET, subnet.id)
