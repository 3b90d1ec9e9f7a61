"""Mistakes in stack files, each with the key and the fix that its message must name.

This module contains only tables; `test_bad_stacks.py` uses them. Each case is a valid stack with one
mistake, so exactly one fault must be reported. EDGES are valid changes, up to the limits.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

from tests.components.certificates import CA, PROXY_HOST

TAGS = {"owner": "vision", "costCenter": "4711", "environment": "dev"}
EKS: dict[str, Any] = {"tags": TAGS, "cluster": {"kind": "eks"}}
AKS: dict[str, Any] = {
    "tags": TAGS,
    "cluster": {"kind": "aks", "authorizedRanges": ["203.0.113.0/24"]},
}
LOCAL: dict[str, Any] = {}
ON_PLATFORM: dict[str, Any] = {"platformStack": {"name": "eks-dev"}, "job": {"name": "second"}}

FILE_SYSTEM = {
    "fileSystemId": "fs-0123456789abcdef0",
    "dnsName": "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
    "mountName": "fsx",
    "zone": "us-east-1b",
}
RANGES = [f"203.0.113.{number}/32" for number in range(200)]
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLE"  # split, so that secret scanners ignore this file


@dataclass(frozen=True)
class Case:
    """One mistake.

    Attributes:
        base: a valid stack.
        change: dotted key -> new value; None removes the key.
        path: the key of the expected fault.
        message: expected parts of the message: the rule and the fix, unless the rule implies it.
    """

    base: dict[str, Any]
    change: dict[str, Any]
    path: str
    message: tuple[str, ...]

    @property
    def name(self) -> str:
        """ID of the test case."""
        kind = self.base.get("cluster", {}).get("kind", "existing")
        return f"{kind}: " + ", ".join(f"{key}={value}" for key, value in self.change.items())


def with_changes(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the base with the change applied."""
    data = copy.deepcopy(base)
    for path, value in change.items():
        *sections, key = path.split(".")
        target = data
        for section in sections:
            target = target.setdefault(section, {})
        if value is None:
            del target[key]
        else:
            target[key] = value
    return data


def _sizes(*sizes: tuple[str, str]) -> list[dict[str, str]]:
    """Return a list of VM sizes from pairs of a pool name and a VM size."""
    return [{"name": name, "vmSize": size} for name, size in sizes]


def wrong_key(base: dict[str, Any], path: str, value: Any, *message: str) -> Case:
    """Return a case with a mistake in one key, whose message names that key."""
    return Case(base, {path: value}, path, message)


def wrong_source(base: dict[str, Any], source: str, *message: str) -> Case:
    """Return a case with a mistake in the source of photographs."""
    change = {"data.dataset": "imagefolder", "data.source": source}
    return Case(base, change, "data.source", message)


def wrong_cache(base: dict[str, Any], source: str, path: str, *message: str) -> Case:
    """Return a case with a mistake in the cache of shards of photographs."""
    change = {"data.dataset": "imagefolder", "data.cache": {"source": source}}
    return Case(base, change, path, message)


def wrong_proxy(key: str, value: Any, *message: str) -> Case:
    """Return a case with a mistake in one key of a proxy."""
    name, _, element = key.partition("[")
    proxy = {"http": "http://proxy:3128", name: [value] if element else value}
    return Case(AKS, {"cluster.network.proxy": proxy}, f"cluster.network.proxy.{key}", message)


def wrong_egress(network: dict[str, Any], *message: str) -> Case:
    """Return a case with a mistake in the firewall address, with egress through a route table."""
    change = {"cluster.network": {"egress": "userDefinedRouting", **network}}
    return Case(AKS, change, "cluster.network.firewallIp", message)


EKS_POOLS = {
    "a": {"name": "a", "zone": "us-east-1a", "instanceTypes": ["g5.xlarge"]},
    "b": {"name": "b", "zone": "us-east-1b", "instanceTypes": ["g5.xlarge"]},
}
AKS_POOLS = {
    "a": {"name": "a", "zone": "1", "vmSize": "Standard_NC4as_T4_v3"},
    "b": {"name": "b", "zone": "2", "vmSize": "Standard_NC4as_T4_v3"},
}


def private_api(zone: str) -> dict[str, Any]:
    """Return the change that makes the API private, with an existing DNS zone."""
    group = "/subscriptions/22222222-3333-4444-5555-666666666666/resourceGroups/hub"
    id_ = f"{group}/providers/Microsoft.Network/privateDnsZones/{zone}"
    return {
        "cluster.authorizedRanges": [],
        "cluster.privateApi": True,
        "cluster.privateDnsZone": id_,
    }


SNAPSHOT = (
    "/subscriptions/22222222-3333-4444-5555-666666666666/resourceGroups/images"
    "/providers/Microsoft.ContainerService/snapshots/nightly"
)
SUBNET = (
    "/subscriptions/22222222-3333-4444-5555-666666666666/resourceGroups/hub"
    "/providers/Microsoft.Network/virtualNetworks/spoke/subnets/nodes"
)
RESERVATION = {"id": "cr-0123456789abcdef0"}
EFA_POOL = {"efa": True, "instanceTypes": ["p4d.24xlarge"]}


def pools(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the change that declares two valid pools, `a` and `b`, with changes to one of them.

    Args:
        base: the stack, which determines the cloud.
        changes: name of the pool -> keys to replace.
    """
    valid = EKS_POOLS if base is EKS else AKS_POOLS
    return {"cluster.gpuPools": [{**valid[name], **changes.get(name, {})} for name in valid]}


def wrong_pool(
    base: dict[str, Any], path: str, *message: str, extra: Any = None, **changes: Any
) -> Case:
    """Return a case with a mistake in one of two pools, or in a key that conflicts with them."""
    return Case(base, pools(base, **changes) | (extra or {}), path, message)


CASES = [
    # --- AWS: regions and zones
    wrong_key(EKS, "cluster.region", "us-esat-1", "not a known AWS region", "us-east-1"),
    wrong_key(EKS, "cluster.region", "moon-1", "not a known AWS region", "use one of: af-south-1"),
    Case(
        EKS,
        {"cluster.zones": ["us-east-1a", "us-east-1g"]},
        "cluster.zones[1]",
        ("us-east-1g", "not a zone of us-east-1", "did you mean us-east-1"),
    ),
    Case(
        EKS,
        {"cluster.zones": ["us-east-1a", "us-west-2b"]},
        "cluster.zones[1]",
        ("not a zone of us-east-1",),
    ),
    wrong_key(EKS, "cluster.zones", ["us-east-1a", "us-east-1a"], "twice", "list different zones"),
    wrong_key(
        EKS, "cluster.zones", ["us-east-1a"], "has 1 value; the minimum is 2", "list 2 or more"
    ),
    wrong_key(
        EKS,
        "cluster.zones",
        [f"us-east-1{letter}" for letter in "abcd"],
        "has 4 values; the maximum is 3",
        "list 3 or fewer",
    ),
    wrong_key(
        EKS,
        "cluster.gpuPool.zone",
        "us-east-1g",
        "not a zone of us-east-1",
        "did you mean us-east-1",
    ),
    # --- versions
    wrong_key(EKS, "cluster.kubernetesVersion", "1.34", "no longer supported", "did you mean 1.3"),
    wrong_key(AKS, "cluster.kubernetesVersion", "1.38", "not a supported version", "1.37"),
    wrong_key(EKS, "cluster.kubernetesVersion", 1.4, "not a supported version", "1.3"),
    # --- AWS: network
    wrong_key(EKS, "cluster.network.cidr", "10.0.0.0/22", "too small", "use /21 or larger"),
    wrong_key(EKS, "cluster.network.cidr", "10.0.0.0/8", "larger than AWS allows", "use /16"),
    wrong_key(
        EKS, "cluster.network.cidr", "10.0.0.1/16", "not a block", "did you mean 10.0.0.0/16?"
    ),
    wrong_key(EKS, "cluster.network.cidr", "ten", "not a block", "write it as an IPv4 block"),
    wrong_key(EKS, "cluster.network.cidr", "10.0.0.0/255.255.0.0", "not a block", "10.0.0.0/16?"),
    Case(
        EKS,
        {"cluster.publicAccess": ["203.0.113.7"]},
        "cluster.publicAccess[0]",
        ("not a block", "did you mean 203.0.113.7/32?"),
    ),
    wrong_key(
        EKS,
        "cluster.network.cidr",
        "52.94.0.0/16",
        "contains public addresses",
        "use a private block",
    ),
    wrong_key(
        EKS, "cluster.network.serviceCidr", "10.0.128.0/20", "overlaps", "cluster.network.cidr"
    ),
    wrong_key(EKS, "cluster.network.serviceCidr", "172.20.0.0/28", "must be /12 to /24"),
    wrong_key(EKS, "cluster.network.serviceCidr", "172.20.0.0/25", "must be /12 to /24"),
    wrong_key(EKS, "cluster.network.serviceCidr", "100.64.0.0/16", "which EKS refuses", "172.20."),
    wrong_key(EKS, "cluster.network.vpcId", "my-vpc", "not an id of a VPC", "write it as vpc-"),
    Case(
        EKS,
        {"cluster.network.vpcId": "vpc-0123456789abcdef0"},
        "cluster.network.privateSubnetIds",
        ("no subnet for us-east-1a, us-east-1b", "add ZONE: SUBNET_ID"),
    ),
    Case(
        EKS,
        {
            "cluster.network.vpcId": "vpc-0123456789abcdef0",
            "cluster.network.privateSubnetIds": {
                "us-east-1a": "subnet-0123456789abcdef0",
                "us-east-1b": "subnet-0123456789abcdef1",
            },
            "cluster.gpuPool.zone": "us-east-1d",
        },
        "cluster.network.privateSubnetIds",
        ("no subnet for us-east-1d", "add ZONE: SUBNET_ID"),
    ),
    wrong_key(
        EKS,
        "cluster.network.privateSubnetIds",
        {"us-east-1a": "subnet-0123456789abcdef0"},
        "without a VPC",
        "add cluster.network.vpcId",
    ),
    Case(
        EKS,
        {
            "cluster.network.vpcId": "vpc-0123456789abcdef0",
            "cluster.network.privateSubnetIds": {
                "us-east-1a": "subnet-0123456789abcdef0",
                "us-east-1b": "subnet-0123456789abcdef0",
            },
        },
        "cluster.network.privateSubnetIds",
        ("one subnet for two zones", "use one subnet for each zone"),
    ),
    Case(
        EKS,
        {"cluster.publicAccess": ["0.0.0.0/0"]},
        "cluster.publicAccess[0]",
        ("whole internet", "list the addresses of your office"),
    ),
    Case(
        EKS,
        {"cluster.publicAccess": ["203.0.113.0/24", "128.0.0.0/1"]},
        "cluster.publicAccess[1]",
        ("wider than a /8", "list the addresses"),
    ),
    Case(
        EKS,
        {"cluster.publicAccess": ["192.168.1.0/24"]},
        "cluster.publicAccess[0]",
        ("not routable on the internet", "use your public address"),
    ),
    Case(
        EKS,
        {"cluster.administrators": ["alice"]},
        "cluster.administrators[0]",
        ("not an ARN", "write it as arn:aws:iam::"),
    ),
    Case(
        EKS,
        {"cluster.administrators": ["arn:aws:iam::123456789012:role/platform"] * 2},
        "cluster.administrators[1]",
        ("listed twice", "remove one"),
    ),
    wrong_key(
        EKS,
        "cluster.iam.permissionsBoundary",
        "boundary",
        "not an ARN of an IAM policy",
        "write it as arn:aws:iam::",
    ),
    wrong_key(
        EKS,
        "cluster.iam.permissionsBoundary",
        "arn:aws:iam::123456789012:role/boundary",
        "not an ARN of an IAM policy",
    ),
    Case(
        EKS,
        {
            "cluster.account": "999999999999",
            "cluster.iam.permissionsBoundary": "arn:aws:iam::123456789012:policy/boundary",
        },
        "cluster.iam.permissionsBoundary",
        ("not a policy of", "cluster.account (999999999999)", "name a policy of that"),
    ),
    wrong_key(EKS, "cluster.iam.path", "everstep", "begins and ends with /", "write it as /ever"),
    wrong_key(EKS, "cluster.iam.path", "/everstep", "not an IAM path", "write it as /everstep/"),
    wrong_key(EKS, "cluster.iam.path", "/a//b/", "not an IAM path"),
    wrong_key(
        EKS, "cluster.iam.path", f"/{'p' * 511}/", "513 characters; the maximum is 512", "shorten"
    ),
    wrong_key(
        EKS, "cluster.kmsKeyArn", "alias/team", "not an ARN of a KMS key", "write it as arn:aws:kms"
    ),
    wrong_key(
        EKS,
        "cluster.kmsKeyArn",
        "arn:aws:kms:us-east-1:123456789012:alias/team",
        "not of an alias",
    ),
    wrong_key(
        EKS,
        "cluster.kmsKeyArn",
        "arn:aws:kms:us-west-2:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        "not a key in cluster.region (us-east-1)",
        "multi-Region key has an ARN in each",
    ),
    wrong_key(EKS, "cluster.nodeRelease", "latest", "not a release of an EKS AMI", "1.36.0-2026"),
    wrong_key(
        EKS, "cluster.nodeRelease", "1.35.0-20261101", "not for Kubernetes 1.36", "1.36.x-DATE"
    ),
    wrong_key(EKS, "cluster.logRetentionDays", 31, "not a retention period", "use one of 1, 3, 5"),
    wrong_key(
        EKS, "cluster.name", "Everstep_Prod", "not a name of a cluster", "write it as everstep-dev"
    ),
    wrong_key(
        EKS, "cluster.name", "e" * 30, "30 characters; the maximum is 29", "shorten it to 29"
    ),
    # --- AWS: pools
    Case(
        EKS,
        {"cluster.gpuPool.instanceTypes": ["g5.xlrage"]},
        "cluster.gpuPool.instanceTypes[0]",
        ("not a known instance type for GPU nodes", "did you mean g5.xlarge"),
    ),
    Case(
        EKS,
        {"cluster.gpuPool.instanceTypes": ["m6i.xlarge"]},
        "cluster.gpuPool.instanceTypes[0]",
        ("not a known instance type for GPU nodes",),
    ),
    Case(
        EKS,
        {"cluster.gpuPool.instanceTypes": ["p3.8xlarge"]},
        "cluster.gpuPool.instanceTypes[0]",
        ("was retired", "use g5 or g6"),
    ),
    Case(
        EKS,
        {"cluster.gpuPool.instanceTypes": ["g4ad.xlarge"]},
        "cluster.gpuPool.instanceTypes[0]",
        ("AMD", "use g4dn"),
    ),
    wrong_key(
        EKS,
        "cluster.gpuPool.instanceTypes",
        ["g5.xlarge", "g5.12xlarge"],
        "different numbers of GPUs",
        "keep types with the same number",
    ),
    wrong_key(EKS, "cluster.gpuPool.instanceTypes", ["g5.xlarge"] * 2, "twice", "remove one"),
    wrong_key(
        EKS, "cluster.gpuPool.instanceTypes", [], "has 0 values; the minimum is 1", "list 1 or more"
    ),
    Case(
        EKS,
        {
            "cluster.gpuPool.efa": True,
            "cluster.gpuPool.instanceTypes": ["g5.8xlarge", "g6.8xlarge"],
        },
        "cluster.gpuPool.efa",
        ("needs one instance type", "such as g5.8xlarge"),
    ),
    Case(
        EKS,
        {"cluster.gpuPool.efa": True, "cluster.gpuPool.instanceTypes": ["g5.xlarge"]},
        "cluster.gpuPool.efa",
        ("g5.xlarge does not support EFA", "or efa: false"),
    ),
    Case(
        EKS,
        {
            "cluster.gpuPool.reservation": RESERVATION,
            "cluster.gpuPool.instanceTypes": ["p5.48xlarge"],
        },
        "cluster.gpuPool.reservation.id",
        ("applies only to on-demand pools", "set capacity to onDemand"),
    ),
    Case(
        EKS,
        {"cluster.gpuPool.reservation": RESERVATION, "cluster.gpuPool.capacity": "onDemand"},
        "cluster.gpuPool.reservation.id",
        ("machines of one type", "lists 4", "keep the reserved type"),
    ),
    Case(
        EKS,
        {
            "cluster.gpuPool.reservation": {"id": "cr-1"},
            "cluster.gpuPool.capacity": "onDemand",
            "cluster.gpuPool.instanceTypes": ["p5.48xlarge"],
        },
        "cluster.gpuPool.reservation.id",
        ("is not an id of a capacity reservation", "cr-0123456789abcdef0"),
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].reservation.id",
        "applies only to on-demand pools",
        b={"reservation": RESERVATION},
    ),
    wrong_key(EKS, "cluster.gpuPool.minNodes", 7, "more than maxNodes (6)", "raise maxNodes to 7"),
    wrong_key(EKS, "cluster.gpuPool.nodes", 9, "more than maxNodes (6)", "lower it to 6"),
    Case(
        EKS,
        {"cluster.gpuPool.minNodes": 4},
        "cluster.gpuPool.nodes",
        ("less than 4", "raise it to 4"),
    ),
    wrong_key(EKS, "cluster.gpuPool.capacity", "spott", "must be 'spot' or 'onDemand'"),
    Case(
        EKS,
        {"cluster.gpuPool.capacity": "onDemand", "cluster.gpuPool.fallbackNodes": 2},
        "cluster.gpuPool.fallbackNodes",
        ("applies only to spot pools", "set it to 0"),
    ),
    Case(
        EKS,
        {
            "cluster.autoscaling.enabled": False,
            "cluster.gpuPool.nodes": 3,
            "cluster.gpuPool.fallbackNodes": 2,
        },
        "cluster.gpuPool.fallbackNodes",
        ("never created", "enable autoscaling"),
    ),
    wrong_key(EKS, "cluster.gpuPool.fallbackNodes", -1, "greater than or equal to 0"),
    Case(
        EKS, {"cluster.gpuPool": {"maxNodes": 0}}, "cluster.gpuPool.maxNodes", ("allows no nodes",)
    ),
    # --- AWS: several pools
    wrong_key(EKS, "cluster.gpuPools", [], "has 0 values; the minimum is 1", "list 1 or more"),
    wrong_pool(
        EKS,
        "cluster.gpuPools",
        "set together with cluster.gpuPool",
        "remove one",
        extra={"cluster.gpuPool": {"maxNodes": 4}},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].name",
        "also the name of cluster.gpuPools[0]",
        "choose",
        b={"name": "a"},
    ),
    wrong_pool(
        EKS, "cluster.gpuPools[1].name", "21 characters; the maximum is 19", b={"name": "b" * 21}
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].name",
        "not a name of a pool",
        "write it as g5-a",
        b={"name": "B_2"},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].name",
        "ends with -on-demand",
        "another",
        b={"name": "a-on-demand"},
    ),
    Case(
        EKS,
        {"cluster.gpuPools": [{"name": "a", "instanceTypes": ["g5.xlarge"]}]},
        "cluster.gpuPools[0].zone",
        ("is missing", "add it"),
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].zone",
        "not a zone of us-east-1",
        "did you mean us-east-1",
        b={"zone": "us-east-1g"},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].zones",
        "not a known key",
        "did you mean zone",
        b={"zones": ["us-east-1b"]},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].instanceTypes[0]",
        "has 4 GPUs, but the first type of the pools has 1",
        "interchangeable",
        b={"instanceTypes": ["g5.12xlarge"]},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[0].instanceTypes[1]",
        "listed twice",
        a={"instanceTypes": ["g5.xlarge"] * 2},
    ),
    wrong_pool(
        EKS,
        "job.gpusPerWorker",
        "more than a node of gpuPools has (1)",
        "lower it to 1",
        extra={"job.gpusPerWorker": 2},
    ),
    wrong_pool(
        EKS,
        "cluster.minGpuMemoryGib",
        "is missing, but the GPUs of the pools differ in memory",
        "at most 16",
        b={"instanceTypes": ["g4dn.xlarge"]},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].instanceTypes[0]",
        "GPUs with 16 GiB of memory, but cluster.minGpuMemoryGib is 20",
        "choose larger GPUs",
        b={"instanceTypes": ["g4dn.xlarge"]},
        extra={"cluster.minGpuMemoryGib": 20},
    ),
    wrong_pool(
        EKS,
        "cluster.minGpuMemoryGib",
        "(GiB: g5.xlarge 22.3, g6e.xlarge 44.7)",
        "at most 22.3, or use equal GPUs",
        a={"instanceTypes": ["g5.xlarge", "g6e.xlarge"]},
    ),
    wrong_key(EKS, "cluster.minGpuMemoryGib", 24, "applies only to cluster.gpuPools", "remove it"),
    wrong_pool(
        EKS, "cluster.gpuPools[1].maxPrice", "market options", "remove it", b={"maxPrice": 0.5}
    ),
    wrong_pool(
        EKS, "cluster.gpuPools[1].minNodes", "more than maxNodes (6)", b={"minNodes": 7, "nodes": 6}
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].maxNodes",
        "is true, but a number is required",
        b={"maxNodes": True},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].fallbackNodes",
        "applies only to spot pools",
        b={"capacity": "onDemand", "fallbackNodes": 1},
    ),
    wrong_pool(
        EKS,
        "job.replicas",
        "more than the 4 nodes that gpuPools allow in one zone",
        "set job.spreadZones to true",
        a={"maxNodes": 4},
        b={"maxNodes": 4},
        extra={"job.replicas": 6, "job.maxReplicas": 6},
    ),
    wrong_pool(
        EKS,
        "job.minReplicas",
        "more than the 1 node that gpuPools allow in zone us-east-1b",
        "lower it to 1",
        b={"maxNodes": 1},
        extra={"job.minReplicas": 2},
    ),
    wrong_pool(
        EKS, "job.graceSeconds", "more than the 120 seconds", extra={"job.graceSeconds": 600}
    ),
    wrong_key(
        EKS,
        "job.spreadZones",
        True,
        "applies only to cluster.gpuPools in several zones",
        "remove it",
    ),
    wrong_key(LOCAL, "job.spreadZones", True, "applies only to cluster.gpuPools", "remove it"),
    wrong_pool(
        EKS,
        "cluster.gpuPools[1].efa",
        "another pool has EFA",
        "in all pools or in none",
        a=EFA_POOL,
        b={"instanceTypes": ["p4d.24xlarge"]},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[0].efa",
        "EFA does not connect zones",
        a=EFA_POOL,
        b=EFA_POOL,
        extra={"job.spreadZones": True},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[0].efa",
        "needs one instance type in all pools",
        a=EFA_POOL,
        b={"efa": True, "instanceTypes": ["p4de.24xlarge"]},
        extra={"cluster.minGpuMemoryGib": 40},
    ),
    wrong_pool(
        EKS,
        "cluster.gpuPools[0].efa",
        "g5.xlarge does not support EFA",
        "efa: false",
        a={"efa": True},
        b={"efa": True},
    ),
    wrong_pool(
        EKS,
        "storage.existing.zone",
        "has no GPU pool (zones with one: us-east-1a)",
        "add a pool in us-east-1b",
        b={"zone": "us-east-1a"},
        extra={"storage.existing": FILE_SYSTEM},
    ),
    wrong_key(
        EKS, "cluster.systemPool.nodes", 0, "less than 1", "etcd and the controller run there"
    ),
    wrong_key(EKS, "cluster.systemPool.nodes", 4, "more than maxNodes (3)", "raise maxNodes to 4"),
    *(
        Case(
            EKS,
            {"cluster.systemPool.instanceTypes": [machine]},
            "cluster.systemPool.instanceTypes[0]",
            (rule, "use one such as m6i.xlarge"),
        )
        for rule, machines in (
            ("has GPUs", ("g5.xlarge", "g4dn.metal", "g2.2xlarge", "p5.48xlarge")),
            ("for Linux on x86", ("m7g.xlarge", "a1.large", "m9g.large", "mac2.metal")),
        )
        for machine in machines
    ),
    wrong_key(EKS, "cluster.systemPool.diskGib", 10, "greater than or equal to 30"),
    Case(
        EKS,
        {"cluster.addonVersions": {"vpc-cmi": "v1.21.1-eksbuild.1"}},
        "cluster.addonVersions.vpc-cmi",
        ("not a known add-on", "did you mean vpc-cni"),
    ),
    Case(
        EKS,
        {"cluster.addonVersions": {"coredns": "latest"}},
        "cluster.addonVersions.coredns",
        ("not a version of an add-on", "write it as v1.9.0-eksbuild.1"),
    ),
    Case(
        EKS,
        {"cluster.addonVersions": {"kube-proxy": "v1.37.0-eksbuild.1"}},
        "cluster.addonVersions.kube-proxy",
        ("not compatible with Kubernetes 1.36", "use v1.36.x"),
    ),
    Case(
        EKS,
        {"cluster.addonVersions": {"kube-proxy": "v1.32.0-eksbuild.1"}},
        "cluster.addonVersions.kube-proxy",
        ("not compatible with Kubernetes 1.36",),
    ),
    Case(
        EKS,
        {"cluster.addonVersions": {"amazon-cloudwatch-observability": "v5.4.0-eksbuild.1"}},
        "cluster.addonVersions.amazon-cloudwatch-observability",
        ("requires cluster.monitoring.containerInsights: true", "remove the version"),
    ),
    # --- FSx
    wrong_key(EKS, "storage.sizeGib", 1000, "greater than or equal to 1200"),
    wrong_key(EKS, "storage.sizeGib", 1201, "multiple of 2400", "use 1200 or 2400"),
    wrong_key(EKS, "storage.sizeGib", 3000, "multiple of 2400", "use 2400 or 4800"),
    wrong_key(EKS, "storage.throughput", 250, "applies only to PERSISTENT_2", "set deploymentType"),
    Case(
        EKS,
        {"storage.deploymentType": "PERSISTENT_2", "storage.throughput": 300},
        "storage.throughput",
        ("125, 250, 500 or 1000",),
    ),
    wrong_key(EKS, "storage.sizeGib", 2400 * 10**6, "less than or equal to 2147481600"),
    wrong_key(EKS, "storage.bucket", "my..bucket", "single dots", "my-training-data"),
    wrong_key(EKS, "storage.bucket", "192.168.1.1", "not in the form of an IP address"),
    wrong_key(EKS, "storage.bucket", "s3://data", "not a name of an S3 bucket", "without s3://"),
    Case(
        EKS,
        {"storage.existing": FILE_SYSTEM},
        "storage.existing.zone",
        ("not the zone of the GPU nodes (us-east-1a)", "set cluster.gpuPool.zone to us-east-1b"),
    ),
    Case(
        EKS,
        {"storage.existing": FILE_SYSTEM | {"zone": "us-east-1a"}, "storage.bucket": "my-data"},
        "storage.bucket",
        ("cannot be linked", "remove this"),
    ),
    Case(
        EKS,
        {"storage.existing": {k: v for k, v in FILE_SYSTEM.items() if k != "zone"}},
        "storage.existing.zone",
        ("is missing", "add it"),
    ),
    wrong_key(EKS, "storage.kind", "blob", "cannot be mounted by a cluster of kind eks", "use fsx"),
    wrong_key(AKS, "storage.kind", "fsx", "cannot be mounted by a cluster of kind aks", "use blob"),
    wrong_key(LOCAL, "storage.kind", "fsx", "cannot be mounted", "use hostpath or claim"),
    wrong_key(
        EKS, "storage.kind", "claim", "cannot be mounted by a cluster of kind eks", "use fsx"
    ),
    Case(
        LOCAL,
        {"storage": {"kind": "claim", "volumeName": "Shared_Data"}},
        "storage.volumeName",
        ("is not a name of a Kubernetes object", "shared-data"),
    ),
    Case(
        LOCAL,
        {"storage": {"kind": "claim", "storageClass": "azurefile csi"}},
        "storage.storageClass",
        ("is not a name of a Kubernetes object",),
    ),
    Case(
        LOCAL,
        {"storage": {"kind": "claim", "path": "/data"}},
        "storage.path",
        ("is not a known key",),
    ),
    Case(
        LOCAL,
        {"storage": {"kind": "claim"}, "etcd.persistence": "volume"},
        "etcd.persistence",
        ("puts etcd's write-ahead log on claim", "use disk or memory"),
    ),
    wrong_key(LOCAL, "storage.kind", "nfs", "not a known kind of storage", "did you mean fsx?"),
    # --- Azure: locations and network
    wrong_key(AKS, "cluster.location", "easteurope", "not a known Azure location", "did you mean"),
    Case(
        AKS,
        {"cluster.location": "westus"},
        "cluster.systemPool.zones",
        ("westus has no availability zones", "set it to []"),
    ),
    Case(
        AKS,
        {"cluster.gpuPool.zones": ["us-east-1a"]},
        "cluster.gpuPool.zones[0]",
        ("must be '1', '2' or '3'",),
    ),
    wrong_key(AKS, "cluster.network.podCidr", "10.0.0.0/18", "overlaps"),
    wrong_key(
        AKS, "cluster.network.cidr", "10.0.0.0/28", "must be /8 to /25", "such as 10.0.0.0/16"
    ),
    wrong_key(AKS, "cluster.network.cidr", "10.0.0.0/26", "must be /8 to /25"),
    wrong_proxy("http", "https://proxy:3128", "must begin with http://", "http://proxy:3128"),
    wrong_proxy("http", "proxy:3128", "not the URL of a proxy", "http://proxy.example.org:3128"),
    wrong_proxy("http", "http://proxy:99999", "not the URL of a proxy"),
    wrong_proxy("http", "http://ada@proxy:3128", "contains a user", "by their addresses"),
    wrong_proxy("https", "http://ada:lovelace@proxy:3128", "password, in plaintext", "remove the"),
    wrong_proxy("noProxy[0]", "*.example.org", "wildcards are not supported", ".corp.example.org"),
    wrong_proxy("trustedCa", "corp.pem", "not a certificate in PEM format", "paste the PEM file"),
    wrong_proxy("trustedCa", PROXY_HOST, "not a CA certificate"),
    wrong_proxy("trustedCa", CA * 20, "the maximum is 8000", "keep only the CA"),
    wrong_key(EKS, "cluster.network.proxy.http", "https://proxy:3128", "must begin with http://"),
    wrong_key(AKS, "cluster.network.egress", "firewall", "must be 'nat' or 'userDefinedRouting'"),
    wrong_key(
        AKS, "cluster.network.firewallIp", "fw.example.org", "not an IPv4 address", "10.1.0.4"
    ),
    wrong_key(AKS, "cluster.network.firewallIp", "20.1.2.3", "not a private address", "10.1.0.4"),
    wrong_key(AKS, "cluster.network.firewallIp", "10.100.0.4", "egress is nat", "remove it"),
    wrong_egress({}, "is missing", "subnetId"),
    wrong_egress({"firewallIp": "10.0.0.4"}, "is in cluster.network.cidr", "another network"),
    wrong_egress({"firewallIp": "10.100.0.4", "subnetId": SUBNET}, "route table of subnetId"),
    wrong_key(AKS, "cluster.network.serviceCidr", "10.2.0.0/29", "must be /12 to /28"),
    wrong_key(AKS, "cluster.network.serviceCidr", "172.16.0.0/12", "172.31.0.0/16, which AKS res"),
    wrong_key(AKS, "cluster.network.podCidr", "172.30.0.0/16", "overlaps 172.30.0.0/16, which AKS"),
    wrong_key(AKS, "cluster.network.cidr", "172.31.128.0/17", "which AKS reserves", "another bl"),
    wrong_key(
        AKS, "cluster.network.podCidr", "10.244.0.0/22", "fits 4 nodes", "use a /20 or larger"
    ),
    wrong_key(AKS, "cluster.network.podCidr", "10.244.0.0/24", "fits 1 node,", "use a /20"),
    Case(
        AKS,
        {
            "cluster.network.podCidr": "10.244.0.0/20",
            "cluster.gpuPool.maxNodes": 5,
            "cluster.gpuPool.fallbackNodes": 3,
        },
        "cluster.network.podCidr",
        ("fits 16 nodes", "the pools allow 17", "use a /19"),
    ),
    wrong_key(
        AKS, "cluster.network.subnetId", "default", "not an id of a subnet", "write it as /subscr"
    ),
    wrong_key(AKS, "cluster.authorizedRanges", [], "opens the API", "cluster.privateApi"),
    wrong_key(AKS, "cluster.authorizedRanges", RANGES, "adds its NAT gateway", "at most 199"),
    wrong_key(AKS, "cluster.privateDnsZone", "none", "cluster.privateApi is false", "remove it"),
    wrong_key(AKS, "cluster.privateDnsZone", "azmk8s.io", "system, none or an id"),
    Case(
        AKS,
        private_api("privatelink.westeurope.azmk8s.io"),
        "cluster.privateDnsZone",
        ("not a zone for AKS in eastus", "privatelink.eastus.azmk8s.io"),
    ),
    Case(
        AKS,
        private_api("a.b.privatelink.eastus.azmk8s.io"),
        "cluster.privateDnsZone",
        ("not a zone for AKS in eastus", "NAME.privatelink.eastus.azmk8s.io"),
    ),
    Case(
        AKS,
        {"cluster.authorizedRanges": ["0.0.0.0/0"]},
        "cluster.authorizedRanges[0]",
        ("whole internet", "list the addresses"),
    ),
    Case(
        AKS,
        {"cluster.privateApi": True},
        "cluster.authorizedRanges",
        ("have no effect", "set privateApi to false"),
    ),
    Case(
        AKS,
        {"cluster.administrators": ["platform-team"]},
        "cluster.administrators[0]",
        ("not an object id", "write it as"),
    ),
    # --- Azure: pools
    Case(
        AKS,
        {"cluster.gpuPool.vmSizes": _sizes(("t4", "Standard_NC4as_T4_v4"))},
        "cluster.gpuPool.vmSizes[0].vmSize",
        ("not a known VM size with GPUs", "did you mean Standard_NC4as_T4_v3"),
    ),
    Case(
        AKS,
        {"cluster.gpuPool.vmSizes": _sizes(("v100", "Standard_NC6s_v3"))},
        "cluster.gpuPool.vmSizes[0].vmSize",
        ("was retired in September 2025", "use Standard_NC4as_T4_v3"),
    ),
    Case(
        AKS,
        {"cluster.gpuPool.vmSizes": _sizes(("t4spotpreferred", "Standard_NC4as_T4_v3"))},
        "cluster.gpuPool.vmSizes[0].name",
        ("15 characters; the maximum is 12", "shorten"),
    ),
    Case(
        AKS,
        {"cluster.gpuPool.vmSizes": _sizes(("gpu-t4", "Standard_NC4as_T4_v3"))},
        "cluster.gpuPool.vmSizes[0].name",
        ("not a name of an agent pool", "write it as t4"),
    ),
    Case(
        AKS,
        {"cluster.gpuPool.vmSizes": _sizes(("system", "Standard_NC4as_T4_v3"))},
        "cluster.gpuPool.vmSizes[0].name",
        ("has the name of the system pool", "rename it"),
    ),
    Case(
        AKS,
        {"cluster.gpuPool.vmSizes": _sizes(("ondemand", "Standard_NC4as_T4_v3"))},
        "cluster.gpuPool.vmSizes[0].name",
        ("has the name of the pool of fallbackNodes", "rename it"),
    ),
    Case(
        AKS,
        {
            "cluster.gpuPool.vmSizes": _sizes(
                ("a", "Standard_NC4as_T4_v3"), ("b", "Standard_NC4as_T4_v3")
            )
        },
        "cluster.gpuPool.vmSizes[1].vmSize",
        ("is also used by a", "choose another size"),
    ),
    Case(
        AKS,
        {
            "cluster.gpuPool.vmSizes": _sizes(
                ("t4", "Standard_NC4as_T4_v3"), ("t4", "Standard_NC24ads_A100_v4")
            )
        },
        "cluster.gpuPool.vmSizes[1].name",
        ("has the name of cluster.gpuPool.vmSizes[0]", "rename it"),
    ),
    wrong_key(
        AKS,
        "cluster.gpuPool.vmSizes",
        {"t4": "Standard_NC4as_T4_v3", "a100": "Standard_NC24ads_A100_v4"},
        "must be a list in order of preference",
        "such as [{name: a100, vmSize: Standard_NC24ads_A100_v4}, "
        "{name: t4, vmSize: Standard_NC4as_T4_v3}]",
    ),
    wrong_key(
        AKS,
        "cluster.gpuPool.vmSizes",
        _sizes(("one", "Standard_NC4as_T4_v3"), ("four", "Standard_NC64as_T4_v3")),
        "different numbers of GPUs",
        "keep types with the same number",
    ),
    wrong_key(
        AKS, "cluster.gpuPool.vmSizes", [], "has 0 values; the minimum is 1", "list 1 or more"
    ),
    wrong_key(
        AKS, "cluster.gpuPool.maxPrice", 0.123456, "more than 5 decimals", "round it to 0.12346"
    ),
    wrong_key(AKS, "cluster.gpuPool.maxPrice", 0, "must be above 0, or -1", "use -1"),
    Case(
        AKS,
        {"cluster.gpuPool.maxPrice": 0.5, "cluster.gpuPool.capacity": "onDemand"},
        "cluster.gpuPool.maxPrice",
        ("applies only to spot nodes", "remove it"),
    ),
    wrong_key(AKS, "cluster.gpuPool.minNodes", 8, "more than maxNodes (6)", "lower it to 6"),
    # --- Azure: several pools
    wrong_pool(
        AKS,
        "cluster.gpuPools",
        "set together with cluster.gpuPool",
        extra={"cluster.gpuPool": {"maxNodes": 4}},
    ),
    wrong_pool(
        AKS, "cluster.gpuPools[1].name", "11 characters; the maximum is 10", b={"name": "b" * 11}
    ),
    wrong_pool(
        AKS,
        "cluster.gpuPools[1].name",
        "the name of the system pool",
        "rename",
        b={"name": "system"},
    ),
    wrong_pool(
        AKS,
        "cluster.gpuPools[1].name",
        "has the name of the fallback of a",
        a={"fallbackNodes": 1},
        b={"name": "aod"},
    ),
    wrong_pool(AKS, "cluster.gpuPools[1].zone", "must be '1', '2' or '3'", b={"zone": "4"}),
    wrong_pool(
        AKS,
        "cluster.gpuPools[1].zone",
        "is missing, but other pools have one",
        "in none",
        b={"zone": None},
    ),
    wrong_pool(
        AKS,
        "cluster.gpuPools[0].zone",
        "westus has no availability zones",
        b={"zone": None, "vmSize": "Standard_NC8as_T4_v3"},
        extra={"cluster.location": "westus", "cluster.systemPool.zones": []},
    ),
    wrong_pool(
        AKS,
        "cluster.gpuPools[1].vmSize",
        "has 4 GPUs, but the first type of the pools has 1",
        b={"vmSize": "Standard_NC64as_T4_v3"},
    ),
    wrong_pool(
        AKS,
        "cluster.gpuPools[1].vmSize",
        "has 1/6 of a GPU, but the first pool has whole GPUs",
        "equal fractions",
        b={"vmSize": "Standard_NV6ads_A10_v5"},
        extra={"cluster.minGpuMemoryGib": 4},
    ),
    wrong_pool(
        AKS,
        "cluster.minGpuMemoryGib",
        "differ in memory",
        "at most 16",
        b={"vmSize": "Standard_NC24ads_A100_v4"},
    ),
    wrong_pool(
        AKS, "cluster.gpuPools[1].vmSize", "also used by a, in the same zone", b={"zone": "1"}
    ),
    wrong_pool(
        AKS, "cluster.gpuPools[1].maxPrice", "must be above 0, or -1", "use -1", b={"maxPrice": 0}
    ),
    wrong_pool(
        AKS,
        "cluster.network.podCidr",
        "fits 16 nodes",
        a={"maxNodes": 8},
        b={"maxNodes": 8},
        extra={"cluster.network.podCidr": "10.244.0.0/20"},
    ),
    wrong_key(AKS, "cluster.systemPool.nodes", 0, "less than 1", "use 1 or more"),
    wrong_key(AKS, "cluster.systemPool.vmSize", "Standard_NC4as_T4_v3", "has GPUs", "D4s_v5"),
    wrong_key(AKS, "cluster.systemPool.vmSize", "Standard_B4ms", "burstable", "D4s_v5"),
    wrong_key(AKS, "cluster.systemPool.vmSize", "Standard_D4ps_v5", "has an Arm CPU", "D4s_v5"),
    wrong_key(AKS, "cluster.systemPool.vmSize", "Standard_E8pds_v6", "has an Arm CPU", "D4s_v5"),
    wrong_key(AKS, "cluster.systemPool.vmSize", "Standard_F1s", "fewer than 2 vCPUs", "D4s_v5"),
    wrong_key(AKS, "cluster.systemPool.vmSize", "Standard_DS11-1_v2", "fewer than 2 vCPUs"),
    wrong_key(AKS, "cluster.upgrades.day", "Caturday", "must be 'Monday'"),
    wrong_key(AKS, "cluster.upgrades.hours", 2, "greater than or equal to 4"),
    wrong_key(AKS, "cluster.systemPool.snapshotId", "nightly", "not an id of a snapshot"),
    wrong_key(AKS, "cluster.gpuPool.snapshotId", SNAPSHOT, "channel: patch", "channel to none"),
    Case(
        AKS,
        {
            "cluster.systemPool.snapshotId": SNAPSHOT,
            "cluster.upgrades": {"channel": "none", "nodeImage": "SecurityPatch"},
        },
        "cluster.systemPool.snapshotId",
        ("nodeImage: SecurityPatch", "nodeImage to None"),
    ),
    wrong_pool(
        AKS, "cluster.gpuPools[1].snapshotId", "automatic upgrades", b={"snapshotId": SNAPSHOT}
    ),
    Case(
        AKS,
        {"cluster.upgrades.channel": "node-image", "cluster.upgrades.nodeImage": "None"},
        "cluster.upgrades.channel",
        ("requires nodeImage: NodeImage", "use channel: patch"),
    ),
    wrong_key(
        AKS,
        "cluster.monitoring.jobMetrics",
        True,
        "requires managedPrometheus",
        "remove jobMetrics",
    ),
    # --- Blob
    wrong_key(
        AKS, "storage.account", "My-Account", "not a name of a storage account", "everstepdata"
    ),
    wrong_key(AKS, "storage.container", "a--b", "not a name of a container", "training"),
    wrong_key(AKS, "storage.redundancy", "Premium_GRS", "must be 'Standard_LRS'"),
    Case(
        AKS,
        {
            "cluster.location": "westus",
            "cluster.systemPool.zones": [],
            "storage.redundancy": "Standard_ZRS",
        },
        "storage.redundancy",
        ("westus has none", "Standard_LRS"),
    ),
    wrong_key(
        AKS, "storage.accountResourceGroup", "rg", "only to an existing account", "remove this"
    ),
    # --- etcd
    wrong_key(EKS, "etcd.persistence", "volume", "every write would wait", "use disk or memory"),
    Case(
        EKS,
        {"etcd.persistence": "disk"},
        "etcd.storageClass",
        ("EKS has no working default StorageClass", "set etcd.persistence to memory"),
    ),
    wrong_key(EKS, "etcd.storageClass", "gp3", "applies only to disk", "use disk"),
    wrong_key(AKS, "etcd.members", 2, "is even", "use 1 or 3"),
    wrong_key(LOCAL, "etcd.authentication", "users", "does not work with volume", "memory or disk"),
    wrong_key(EKS, "etcd.authentication", "password", "must be 'none' or 'users'"),
    # --- tags and protection
    Case(EKS, {"tags.owner": None}, "tags.owner", ("is missing", "add it")),
    Case(
        EKS,
        {"tags.costCenter": None, "tags.costcenter": "4711"},
        "tags.costCenter",
        ("is missing", "rename costcenter"),
    ),
    wrong_key(AKS, "tags.environment", "Staging", "lower-case letters", "such as dev, staging"),
    wrong_key(EKS, "tags.environment", "s" * 21, "up to 20", "such as dev, staging or prod"),
    wrong_key(EKS, "tags.environment", "staging-", "lower-case letters, digits and dashes"),
    wrong_key(
        EKS, "tags.environment", "Production", "looks like production", "use prod, or another name"
    ),
    wrong_key(AKS, "tags.owner", "x" * 129, "the maximum is 128", "shorten"),
    wrong_key(
        AKS, "tags.owner", "vision <team>", "not a value of a tag", "write it as vision-team"
    ),
    wrong_key(EKS, "tags.aws:owner", "me", "prefix that a cloud reserves", "choose another name"),
    wrong_key(EKS, "tags.managed-by", "me", "Everstep sets itself", "choose another name"),
    wrong_key(EKS, "tags.Stack", "mine", "Everstep sets itself", "choose another name"),
    wrong_key(AKS, "tags.who?", "me", "one of the clouds does not allow", "choose another name"),
    wrong_key(
        EKS, "tags.team/vision", "me", "one of the clouds does not allow", "choose another name"
    ),
    Case(
        EKS,
        {"tags.environment": "prod"},
        "protect",
        ("does not protect a stack", "set everstep:protect to true"),
    ),
    wrong_key(EKS, "tags", TAGS | {f"t{n}": "x" for n in range(38)}, "41 tags; the maximum is 40"),
    wrong_key(AKS, "tags." + "n" * 129, "x", "more than 128 characters", "choose another name"),
    # --- registry and images
    wrong_key(EKS, "registry.kind", "acr", "with a cluster of kind eks", "use ecr or none"),
    wrong_key(LOCAL, "registry.kind", "ecr", "with a cluster of kind existing", "use none"),
    Case(
        AKS,
        {"registry.kind": "acr", "registry.name": "ever-step"},
        "registry.name",
        ("not a name of an ACR", "everstepdev"),
    ),
    wrong_key(EKS, "registry.name", "a//b", "not a name of a registry", "everstep"),
    wrong_key(EKS, "registry.name", "a._b", "not a name of a registry"),
    wrong_key(EKS, "registry.name", "a" * 201, "201 characters; the maximum is 200"),
    wrong_key(LOCAL, "job.envFromSecrets", "wandb", "must be a list", "write it as [wandb]"),
    wrong_key(LOCAL, "job.resources.memory", "0", "not a valid Kubernetes quantity above 0"),
    wrong_key(EKS, "job.image", "localhost/everstep/trainer:local", "on this machine", "push it"),
    wrong_key(AKS, "job.image", "ghcr.io/everstep/trainer", "no tag", "use a version or a digest"),
    wrong_key(
        AKS, "platform.spot.image", "ghcr.io/everstep/spot:latest", "tag that can move", "a digest"
    ),
    wrong_key(
        AKS,
        "etcd.rejoinImage",
        "ghcr.io/everstep/etcd-rejoin:latest",
        "tag that can move",
        "a digest",
    ),
    *(
        wrong_key(EKS, key, image, "use a version or a digest")
        for key, image in {
            "data.image": "ghcr.io/everstep/trainer",
            "controller.image": "ghcr.io/everstep/controller:latest",
            "etcd.image": "quay.io/coreos/etcd",
            "platform.gpuPlugin.image": "nvcr.io/nvidia/k8s-device-plugin",
            "platform.metrics.image": "nvcr.io/nvidia/k8s/dcgm-exporter:latest",
            "cluster.autoscaling.image": "registry.k8s.io:443/autoscaling/cluster-autoscaler",
            "cluster.monitoring.image": "quay.io/prometheus/prometheus:latest",
        }.items()
    ),
    wrong_key(AKS, "controller.kind", "upstram", "must be 'maintained' or 'upstream'"),
    Case(
        AKS,
        {"controller.kind": "upstream"},
        "controller.image",
        ("`upstream` needs one", "torchelastic/kubernetes:0.1.0"),
    ),
    # --- requirements of the job
    Case(
        LOCAL,
        {
            "job.scaling": "capacity",
            "controller.kind": "upstream",
            "controller.image": "torchelastic/kubernetes:0.1.0",
        },
        "job.scaling",
        (
            "not supported by controller.kind upstream",
            "use controller.kind maintained, or scaling fixed",
        ),
    ),
    # --- the user's own program
    wrong_key(LOCAL, "job.command", [], "is empty", "such as [python3, train.py]"),
    wrong_key(LOCAL, "job.command", ["", "train.py"], "an empty word", "name a program"),
    wrong_key(LOCAL, "job.command", "python3 train.py", "no shell splits", "write a list"),
    wrong_key(
        LOCAL, "job.command", ["python3 train.py"], "several words in its first", "write a list"
    ),
    wrong_key(LOCAL, "job.command", ["-m", "train"], "starts with an option", "name a program"),
    wrong_key(
        LOCAL, "job.command", ["torchrun", "train.py"], "names a launcher", "only the training"
    ),
    wrong_key(
        LOCAL,
        "job.command",
        ["python3", "-m", "everstep.elastic.launch", "train.py"],
        "names a launcher",
        "only the training program",
    ),
    wrong_key(
        LOCAL, "job.args", ["--lr", "0.1"], "job.command, which is missing", "add it, such as"
    ),
    Case(
        LOCAL,
        {"job.command": ["python3", "train.py"], "job.args": "--lr 0.1"},
        "job.args",
        ("no shell splits", "write a list"),
    ),
    Case(
        LOCAL,
        {"job.command": ["python3", "train.py"], "job.args": ["--verbose", True]},
        "job.args[1]",
        ("not a command-line argument", "write it as a string"),
    ),
    Case(
        LOCAL,
        {"job.command": ["python3", "train.py"], "job.args": ["--lr", {"start": 0.1}]},
        "job.args[1]",
        ("not a command-line argument", "write it as a string"),
    ),
    Case(
        LOCAL,
        {"job.command": ["python3", "train.py"], "job.model": "resnet50"},
        "job.model",
        ("a key of Everstep's trainer", "pass the value to the program in job.args"),
    ),
    Case(
        LOCAL,
        {"job.command": ["python3", "train.py"], "job.globalBatch": 384},
        "job.globalBatch",
        ("a key of Everstep's trainer", "remove it"),
    ),
    Case(
        LOCAL,
        {"job.command": ["python3", "train.py"], "data.dataset": "imagefolder"},
        "data.dataset",
        ("is for Everstep's trainer", "remove it"),
    ),
    Case(
        LOCAL,
        {"job.command": ["python3", "train.py"], "job.args": ["--hf-token", "abcdef"]},
        "job.args[1]",
        ("looks like a secret by its name", "name it in job.envFrom"),
    ),
    Case(
        LOCAL,
        {"job.command": ["python3", "train.py"], "job.args": ["--api-key=abcdef"]},
        "job.args[0]",
        ("looks like a secret by its name", "name it in job.envFrom"),
    ),
    Case(
        LOCAL,
        {"job.command": ["sh", "-c", "AWS=" + AWS_KEY + " python3 train.py"]},
        "job.command[2]",
        ("an AWS access key", "name it in job.envFrom"),
    ),
    wrong_key(LOCAL, "job.mode", "restart", "must be 'live' or 'exact'"),
    wrong_key(LOCAL, "job.scaling", "auto", "must be 'fixed' or 'capacity'"),
    Case(
        EKS,
        {"job.minReplicas": 3, "job.replicas": 2},
        "job.minReplicas",
        ("more than replicas (2)", "lower minReplicas to 2"),
    ),
    Case(
        EKS,
        {"job.mode": "exact", "job.compress": "bf16"},
        "job.compress",
        ("rounds the sums that `mode: exact` keeps", "use compress none, or mode live"),
    ),
    wrong_key(AKS, "job.globalBatch", 2, "less than the 3 processes", "raise globalBatch to 3"),
    wrong_key(EKS, "job.name", "prepare-fashion-mnist", "data preparation", "choose another"),
    wrong_key(
        EKS, "data.source", "s3://my-photos/imagenet", "the image contains", "to imagefolder"
    ),
    wrong_source(EKS, "s3://My_Photos/imagenet", "not a data source", "s3://BUCKET/PREFIX"),
    wrong_source(EKS, "gs://my-photos/imagenet", "not a data source", "s3://BUCKET/PREFIX"),
    wrong_source(
        AKS, "https://acct.blob.core.windows.net/photos", "not a data source", "uploads/photos"
    ),
    wrong_source(EKS, "az://acct/photos", "a cluster of kind eks", "everstep data stage"),
    wrong_source(AKS, "az://acct/ph--otos", "not a data source", "az://ACCOUNT/CONTAINER"),
    wrong_source(AKS, "az://acct", "not a data source", "az://ACCOUNT/CONTAINER/PREFIX"),
    wrong_source(LOCAL, "az://acct/photos", "a cluster of kind existing", "everstep data stage"),
    wrong_source(AKS, "s3://my-photos/imagenet", "a cluster of kind aks", "everstep data stage"),
    wrong_source(LOCAL, "s3://my-photos", "a cluster of kind existing", "everstep data stage"),
    Case(
        EKS,
        {
            "data.dataset": "imagefolder",
            "data.cache": {"source": "s3://photos/shards", "storageClass": "Not Valid"},
        },
        "data.cache.storageClass",
        ("not a name of a Kubernetes object", "lower-case letters"),
    ),
    wrong_cache(
        EKS, "uploads/x.tar", "data.cache.source", "address of an object store", "s3://BUCKET"
    ),
    wrong_cache(
        EKS, "s3://My_Photos", "data.cache.source", "not a data source", "s3://BUCKET/PREFIX"
    ),
    wrong_cache(
        AKS, "s3://my-photos/x", "data.cache.source", "of kind aks", "shards on the volume"
    ),
    wrong_cache(
        EKS, "az://acct/photos/x", "data.cache.source", "of kind eks", "shards on the volume"
    ),
    wrong_cache(AKS, "az://acct/Photos", "data.cache.source", "not a data source", "az://ACCOUNT"),
    wrong_cache(
        LOCAL, "az://acct/photos", "data.cache.source", "of kind existing", "shards on the volume"
    ),
    Case(
        AKS,
        {"data.dataset": "imagefolder", "data.source": "az://acct/photos"},
        "data.sourceResourceGroup",
        ("does not contain the account acct", "az storage account list"),
    ),
    wrong_cache(
        AKS,
        "az://acct/shards",
        "data.cache.sourceResourceGroup",
        "does not contain the account acct",
        "set it to",
    ),
    Case(
        AKS,
        {
            "data.dataset": "imagefolder",
            "data.source": "uploads/x.tar",
            "data.sourceResourceGroup": "team",
        },
        "data.sourceResourceGroup",
        ("only to a source in Blob Storage", "remove this key"),
    ),
    Case(
        EKS,
        {
            "data.dataset": "imagefolder",
            "data.cache": {"source": "s3://my-photos/x", "sourceResourceGroup": "team"},
        },
        "data.cache.sourceResourceGroup",
        ("only to a source in Blob Storage", "remove this key"),
    ),
    Case(
        AKS,
        {
            "cluster.resourceGroup": "team",
            "storage.account": "acct",
            "data.dataset": "imagefolder",
            "data.source": "az://acct/training/raw",
        },
        "data.source",
        ("the container of the volume", "name another container"),
    ),
    Case(
        AKS,
        {
            "storage.account": "acct",
            "storage.container": "runs",
            "data.dataset": "imagefolder",
            "data.cache": {"source": "az://acct/runs", "sourceResourceGroup": "team"},
        },
        "data.cache.source",
        ("the container of the volume", "remove this section"),
    ),
    Case(
        EKS,
        {"data.cache": {"source": "s3://my-photos/x"}},
        "data.cache",
        ("data.dataset is fashion-mnist", "to imagefolder"),
    ),
    Case(
        EKS,
        {
            "data.dataset": "imagefolder",
            "data.cache": {"source": "s3://my-photos/shards"},
            "data.source": "s3://my-photos/raw",
        },
        "data.source",
        ("instead", "remove one of the two"),
    ),
    Case(
        EKS,
        {"data.dataset": "imagefolder", "data.cache": {"source": "s3://my-photos/x", "size": 0}},
        "data.cache.size",
        ("not a valid Kubernetes quantity", "2Gi"),
    ),
    wrong_source(LOCAL, "/mnt/photos.tar", "not a path within the volume", "uploads/photos.tar"),
    wrong_source(LOCAL, "../photos.tar", "not a path within the volume", "uploads/photos.tar"),
    wrong_source(LOCAL, "photos.tar.gz", "nor an uncompressed archive", "uploads/photos.tar"),
    Case(
        EKS,
        {"job.gpusPerWorker": 4},
        "job.gpusPerWorker",
        ("more than a node has", "lower it to 1"),
    ),
    Case(
        AKS,
        {"job.replicas": 13, "job.maxReplicas": 13},
        "job.replicas",
        ("more than the 12 nodes", "lower replicas to 12"),
    ),
    Case(
        EKS,
        {"cluster.autoscaling.enabled": False},
        "job.replicas",
        ("more than the 0 nodes that gpuPool.nodes gives", "set gpuPool.nodes to 3"),
    ),
    Case(
        EKS,
        {
            "job.replicas": 4,
            "job.maxReplicas": 4,
            "cluster.gpuPool.nodes": 3,
            "cluster.autoscaling.enabled": False,
        },
        "job.replicas",
        ("more than the 3 nodes that gpuPool.nodes gives", "lower replicas to 3"),
    ),
    Case(
        AKS,
        {"job.replicas": 16, "job.maxReplicas": 16, "cluster.gpuPool.fallbackNodes": 3},
        "job.replicas",
        ("more than the 15 nodes",),
    ),
    Case(
        EKS,
        {"job.replicas": 9, "job.maxReplicas": 9, "cluster.gpuPool.fallbackNodes": 2},
        "job.replicas",
        ("more than the 8 nodes", "lower replicas to 8"),
    ),
    wrong_key(AKS, "job.graceSeconds", 110, "more than the 30 seconds", "use 30 or less"),
    wrong_key(EKS, "job.graceSeconds", 300, "more than the 120 seconds", "use 120 or less"),
    wrong_key(LOCAL, "job.resources.sharedMemory", "2Gi", "takes all of", "use less than 2Gi"),
    wrong_key(LOCAL, "job.resources.sharedMemory", "2148M", "takes all of", "use less than 2Gi"),
    wrong_key(LOCAL, "job.resources.sharedMemory", "0.002Ti", "takes all of", "use less than 2Gi"),
    wrong_key(LOCAL, "job.resources.sharedMemory", "3G", "takes all of", "use less than 2Gi"),
    wrong_key(
        LOCAL, "job.resources.sharedMemory", "2097152Ki", "takes all of", "use less than 2Gi"
    ),
    wrong_key(EKS, "platform.quota.pods", 8, "less than 9: job.maxReplicas (3)", "use 29 or more"),
    wrong_key(EKS, "platform.quota.gpus", 2, "less than the 3 GPUs", "raise it"),
    Case(
        EKS,
        {"job.onDemand": "fallback", "cluster.gpuPool.fallbackNodes": 2, "platform.quota.gpus": 4},
        "platform.quota.gpus",
        ("less than the 5 GPUs", "2 that job.onDemand buys", "raise it"),
    ),
    wrong_key(EKS, "job.resources.memory", "16Gi", "g5.xlarge has 16 GiB", "larger machines"),
    wrong_key(EKS, "job.resources.cpu", "4", "g5.xlarge has 4 vCPUs", "larger machines"),
    wrong_key(AKS, "job.resources.memory", "500Gi", "does not fit on a node", "larger machines"),
    Case(
        EKS,
        {
            "cluster.gpuPool.instanceTypes": ["g5.12xlarge"],
            "job.gpusPerWorker": 4,
            "platform.quota.gpus": 11,
        },
        "platform.quota.gpus",
        ("less than the 12 GPUs", "raise it"),
    ),
    # --- cost
    Case(
        EKS,
        {"cost.budget": {"monthlyUsd": 100, "email": "me"}},
        "cost.budget.email",
        ("not an e-mail address", "write it as"),
    ),
    Case(
        EKS,
        {"cost.budget": {"monthlyUsd": 0, "email": "a@b.org"}},
        "cost.budget.monthlyUsd",
        ("greater than 0",),
    ),
    Case(
        EKS,
        {"cost.prices": {"g5.xlarge": {"onDemand": 1, "spot": 2}}},
        "cost.prices.g5.xlarge.spot",
        ("more than onDemand (1.0)", "swap the two prices"),
    ),
    # --- plaintext secrets
    Case(
        LOCAL,
        {"job.env": {"WANDB_API_KEY": "0123456789"}},
        "job.env.WANDB_API_KEY",
        ("looks like a secret by its name", "job.envFromSecrets"),
    ),
    Case(
        EKS,
        {"job.env": {"AWS": AWS_KEY}},
        "job.env.AWS",
        ("an AWS access key", "rotate the secret"),
    ),
    wrong_key(LOCAL, "job.fresh", "hf_" + "a" * 34, "a Hugging Face token", "create a Secret"),
    wrong_key(
        AKS, "tags.password", "hunter2", "looks like a secret by its name", "create a Secret"
    ),
    Case(
        LOCAL,
        {"job.image": "https://me:hunter2@registry.example.org/trainer:1"},
        "job.image",
        ("a URL with a password",),
    ),
    Case(
        LOCAL, {"job.env": {"KAGGLE_KEY": "abc"}}, "job.env.KAGGLE_KEY", ("a secret by its name",)
    ),
    Case(LOCAL, {"job.env": {"DB_PASS": "abc"}}, "job.env.DB_PASS", ("a secret by its name",)),
    Case(LOCAL, {"job.env": {"MYSQL_PWD": "abc"}}, "job.env.MYSQL_PWD", ("a secret by its name",)),
    # --- folders of the operating system
    *(
        wrong_key(LOCAL, "storage.path", path, "of the operating system", "/mnt/everstep")
        for path in ("/", "/etc", "//etc", "/proc/1", "/var/lib/kubelet/pods", "/var")
    ),
    wrong_key(LOCAL, "storage.path", "/srv/../etc", "contains .."),
    # --- environment variables
    *(
        Case(
            LOCAL,
            {"job.env": {name: "x"}},
            f"job.env.{name}",
            ("is reserved for Everstep", "remove it"),
        )
        for name in ("POD_NAME", "POD_IP", "NODE_NAME", "EVERSTEP_GRACE_SECONDS")
    ),
    *(
        Case(LOCAL, {"job.env": {name: "x"}}, f"job.env.{name}", ("not a name of an environment",))
        for name in ("a b", "1A", "")
    ),
    Case(LOCAL, {"job.env": {"A": "x\0y"}}, "job.env.A", ("a control character",)),
    # --- non-finite numbers, booleans, and numbers out of range
    *(
        wrong_key(LOCAL, f"job.{key}", math.inf, "must be a finite number")
        for key in ("learningRate", "checkpointSeconds", "weightDecay")
    ),
    wrong_key(AKS, "cluster.gpuPool.maxPrice", math.nan, "must be a finite number"),
    Case(
        EKS,
        {"cost.budget": {"monthlyUsd": math.inf, "email": "a@example.org"}},
        "cost.budget.monthlyUsd",
        ("must be a finite number",),
    ),
    wrong_key(LOCAL, "job.replicas", True, "is true, but a number is required"),
    wrong_key(LOCAL, "job.keepCheckpoints", True, "is true, but a number is required"),
    wrong_key(EKS, "cluster.gpuPool.maxNodes", True, "is true, but a number is required"),
    wrong_key(LOCAL, "job.budgetUsd", True, "is true, but a number is required"),
    wrong_key(LOCAL, "platform.quota.gpus", True, "is true, but a number is required"),
    wrong_key(EKS, "cluster.minGpuMemoryGib", True, "is true, but a number is required"),
    Case(
        EKS,
        {"cost.prices": {"g5.xlarge": {"onDemand": True}}},
        "cost.prices.g5.xlarge.onDemand",
        ("is true, but a number is required",),
    ),
    wrong_key(LOCAL, "job.seed", 2**70, "must be less than 9223372036854775808"),
    wrong_key(LOCAL, "job.fresh", "-x", "begins with a dash"),
    wrong_key(LOCAL, "job.acceptData", "a1 b2", "must match pattern '^[0-9a-f]*$'"),
    # --- images
    *(
        wrong_key(LOCAL, "job.image", image, "is not an image", "sha256:64 hexadecimal digits")
        for image in (
            "ghcr.io/a/b@sha256:zz",
            "ghcr.io/Everstep/trainer:1",
            "ghcr.io/a/../b:1",
            "ghcr.io/a:1:2",
            "ghcr.io//b:1",
            ":1",
        )
    ),
    *(
        wrong_key(stack, key, image, "is not an image", reason)
        for stack, key, image, reason in (
            (LOCAL, "data.image", "ghcr.io/everstep/Trainer:1", "upper-case letters"),
            (LOCAL, "controller.image", "ghcr.io/everstep/controller:", "not a tag"),
            (LOCAL, "etcd.image", "quay.io/coreos/etcd@v3.5.35", "not a digest"),
            (LOCAL, "etcd.rejoinImage", "ghcr.io/a b/etcd-rejoin:1", "not a repository"),
            (LOCAL, "platform.spot.image", f"ghcr.io/everstep/spot:{'1' * 129}", "not a tag"),
            (EKS, "platform.gpuPlugin.image", "https://nvcr.io/nvidia/plugin:1", "not the host"),
            (EKS, "platform.metrics.image", "a" * 64, "an image id, not a reference"),
            (
                EKS,
                "cluster.autoscaling.image",
                "registry.k8s.io/Auto/scaler:1",
                "upper-case letters",
            ),
            (AKS, "job.image", "-host.io/everstep/trainer:1", "not the host of a registry"),
        )
    ),
    wrong_key(EKS, "etcd.image", "quay.io/coreos/etcd:v3.6.1", "has no v2 API", "use version 3.5"),
    # --- names of objects, labels and groups
    wrong_key(LOCAL, "job.priorityClass", "Bad_Name", "not a name of a Kubernetes object"),
    Case(
        LOCAL,
        {"job.envFromSecrets": ["Bad Name"]},
        "job.envFromSecrets[0]",
        ("not a name of a Kubernetes object",),
    ),
    Case(LOCAL, {"job.envFromSecrets": ["a", "a"]}, "job.envFromSecrets[1]", ("listed twice",)),
    Case(
        EKS,
        {"etcd.persistence": "disk", "etcd.storageClass": "GP 3"},
        "etcd.storageClass",
        ("not a name of a Kubernetes object",),
    ),
    Case(
        LOCAL,
        {"cluster.gpuPool.selector": {"pool": "b c"}},
        "cluster.gpuPool.selector.pool",
        ("not a value of a Kubernetes label",),
    ),
    Case(
        LOCAL,
        {"cluster.gpuPool.tolerations": [{"key": "a b", "value": "x"}]},
        "cluster.gpuPool.tolerations[0].key",
        ("not a key of a Kubernetes label",),
    ),
    Case(
        LOCAL,
        {
            "cluster.systemPool.tolerations": [
                {"key": "team", "operator": "Exists"},
                {"key": "team", "operator": "Exists", "value": "vision"},
            ]
        },
        "cluster.systemPool.tolerations[1].value",
        ("the operator Exists compares no value", "remove it"),
    ),
    wrong_key(AKS, "cluster.resourceGroup", "a/b", "not a name of a resource group"),
    wrong_key(AKS, "cluster.resourceGroup", "group.", "without a trailing dot"),
    wrong_key(AKS, "cluster.resourceGroup", "g" * 91, "91 characters; the maximum is 90"),
    Case(EKS, {"tags.Owner": "me"}, "tags.owner", ("differs from Owner only in case",)),
    wrong_key(EKS, "cluster.account", "123", "not an id of an AWS account", "twelve digits"),
    wrong_key(
        AKS, "cluster.subscription", "vision", "not an id of a subscription", "22222222-3333"
    ),
    wrong_key(LOCAL, "platform.registryLogins", ["ghcr.io"], "must be a mapping"),
    Case(
        LOCAL,
        {"platform.registryLogins": {"https://ghcr.io": "robot"}},
        "platform.registryLogins.https://ghcr.io",
        ("not a host of a registry", "ghcr.io"),
    ),
    Case(
        LOCAL,
        {"platform.registryLogins": {"ghcr.io": "ro:bot"}},
        "platform.registryLogins.ghcr.io",
        ("not a user name of a registry", "robot"),
    ),
    Case(
        LOCAL,
        {"platform.registryLogins": {"gchr.io": "robot"}},
        "platform.registryLogins.gchr.io",
        ("no image of the stack is pulled", "remove it"),
    ),
    # --- listed twice
    Case(
        EKS,
        {"cluster.publicAccess": ["203.0.113.0/24"] * 2},
        "cluster.publicAccess[1]",
        ("listed twice",),
    ),
    Case(
        AKS,
        {"cluster.authorizedRanges": ["203.0.113.0/24"] * 2},
        "cluster.authorizedRanges[1]",
        ("listed twice",),
    ),
    Case(
        AKS,
        {"cluster.administrators": ["11111111-2222-3333-4444-555555555555"] * 2},
        "cluster.administrators[1]",
        ("listed twice",),
    ),
    Case(AKS, {"cluster.systemPool.zones": ["1", "1"]}, "cluster.systemPool.zones[1]", ("twice",)),
    # --- machines
    Case(
        EKS,
        {"cluster.systemPool.instanceTypes": ["m6i.xlarg"]},
        "cluster.systemPool.instanceTypes[0]",
        ("not a known instance type", "did you mean m6i.xlarge"),
    ),
    Case(
        EKS,
        {"cluster.systemPool.instanceTypes": ["m6i.xlarge"] * 2},
        "cluster.systemPool.instanceTypes[1]",
        ("listed twice",),
    ),
    Case(
        EKS,
        {"cluster.gpuPool.instanceTypes": ["g7.2xlarge"]},
        "cluster.gpuPool.instanceTypes[0]",
        ("does not enumerate", "use g6 or g6e"),
    ),
    wrong_key(
        AKS,
        "cluster.gpuPool.vmSizes",
        _sizes(("t4", "Standard_NC4as_T4_v3"), ("a10", "Standard_NV6ads_A10_v5")),
        "mixes whole GPUs and fractions",
        "Standard_NV6ads_A10_v5 has 1/6 of a GPU",
    ),
    Case(
        EKS,
        {"storage.existing": FILE_SYSTEM | {"zone": "us-east-1a", "dnsName": "not a name"}},
        "storage.existing.dnsName",
        ("not a DNS name of a file system",),
    ),
    # --- unknown keys, at any depth and inside the chosen kind
    wrong_key(EKS, "cluster.gpuPol", {}, "not a known key", "did you mean gpuPool"),
    wrong_key(EKS, "cluster.gpuPool.instanceType", "g5.xlarge", "did you mean instanceTypes?"),
    wrong_key(EKS, "cluster.gpuPool.vmSizes", {}, "not a known key"),
    wrong_key(AKS, "cluster.gpuPool.spotMaxPrice", 1, "not a known key", "maxPrice"),
    wrong_key(AKS, "cluster.region", "eastus", "not a known key"),
    wrong_key(EKS, "storage.deployment", "x", "not a known key", "did you mean deploymentType?"),
    wrong_key(AKS, "platform.gpuPlugin.imgae", "x", "not a known key", "did you mean image?"),
    wrong_key(LOCAL, "cluster.kind", "ekss", "not a known kind of cluster", "did you mean eks?"),
    wrong_key(LOCAL, "cluster.name", "x", "not a known key"),
    wrong_key(EKS, "cluster.network", "10.0.0.0/16", "must be a mapping"),
    # --- deadline and budget
    wrong_key(
        LOCAL,
        "job.deadline",
        "tomorrow",
        "neither a duration of up to 90 days",
        "write it as 90m, 24h",
    ),
    wrong_key(LOCAL, "job.deadline", "0h", "neither a duration"),
    wrong_key(LOCAL, "job.deadline", "91d", "neither a duration of up to 90 days"),
    wrong_key(LOCAL, "job.deadline", "2026-12-24T18:00:00", "nor a time with a time zone"),
    wrong_key(LOCAL, "job.budgetUsd", 0, "greater than 0"),
    wrong_key(
        LOCAL, "job.budgetUsd", 50, "applies only to machines that the stack creates", "remove it"
    ),
    wrong_key(
        LOCAL, "job.onDemand", "fallback", "applies only to pools that the stack creates", "never"
    ),
    wrong_key(EKS, "job.onDemand", "sometimes", "'never', 'fallback' or 'always'"),
    Case(
        EKS,
        {"job.deadline": "24h"},
        "job.onDemand",
        ("missing, but job.deadline is set", "fallback"),
    ),
    *(
        Case(
            cluster,
            {"job.deadline": "5m", "job.onDemand": "never"},
            "job.deadline",
            ("expires before a machine can train, about 312 s", "set 6m or more"),
        )
        for cluster in (EKS, AKS)
    ),
    Case(
        EKS,
        {"job.onDemand": "never", "controller.kind": "upstream", "controller.image": "x/y:1"},
        "job.onDemand",
        ("not supported by controller.kind upstream", "use controller.kind maintained"),
    ),
    wrong_key(
        EKS,
        "job.onDemand",
        "fallback",
        "for 1 worker, but the GPU pools allow 0",
        "raise fallbackNodes",
    ),
    Case(
        EKS,
        {"job.onDemand": "always", "cluster.gpuPool.fallbackNodes": 2},
        "job.onDemand",
        ("for 3 workers, but the GPU pools allow 2", "raise fallbackNodes to 3"),
    ),
    wrong_pool(
        EKS,
        "job.onDemand",
        "for 1 worker, but the GPU pools allow 0 in us-east-1b",
        a={"fallbackNodes": 3},
        extra={"job.onDemand": "fallback"},
    ),
    wrong_key(AKS, "job.onDemand", "fallback", "for 1 worker, but the GPU pools allow 0"),
    Case(
        AKS,
        {
            "job.onDemand": "always",
            "cluster.gpuPool.fallbackNodes": 2,
            "cluster.gpuPool.zones": ["1", "2"],
        },
        "job.onDemand",
        ("for 3 workers, but the GPU pools allow 2", "raise fallbackNodes to 3"),
    ),
    wrong_key(EKS, "job.budgetUsd", 0.5, "below the cost of one hour of 3 machines", "raise it to"),
    Case(
        EKS,
        {"job.budgetUsd": 0.05, "job.replicas": 1},
        "job.budgetUsd",
        ("below the cost of one hour of 1 machine: at least",),
    ),
    Case(
        EKS,
        {
            "job.budgetUsd": 500,
            "cluster.region": "eu-west-1",
            "cluster.zones": ["eu-west-1a", "eu-west-1b"],
        },
        "job.budgetUsd",
        ("no price is known for g5.xlarge", "set cost.prices"),
    ),
    Case(
        EKS,
        {"job.budgetUsd": 500, "cluster.systemPool.instanceTypes": ["c5n.xlarge"]},
        "job.budgetUsd",
        ("no price is known for c5n.xlarge", "set cost.prices"),
    ),
    Case(
        EKS,
        {
            "job.budgetUsd": 500,
            "storage.deploymentType": "PERSISTENT_2",
            "storage.throughput": 250,
        },
        "job.budgetUsd",
        ("no price is known for the file system", "set storage.throughput to 125"),
    ),
    Case(
        EKS,
        {
            "job.budgetUsd": 500,
            "data": {
                "dataset": "imagefolder",
                "cache": {"source": "s3://bucket/shards", "storageClass": "gp3"},
            },
        },
        "job.budgetUsd",
        ("no price is known for the volumes of data.cache", "remove data.cache.storageClass"),
    ),
    Case(
        AKS,
        {"job.budgetUsd": 500, "cluster.systemPool.vmSize": "Standard_FX4mds"},
        "job.budgetUsd",
        ("no price is known for Standard_FX4mds", "set cost.prices"),
    ),
    wrong_key(ON_PLATFORM, "platformStack.name", "eks/dev", "is not a name of a stack", "eks-dev"),
    wrong_key(ON_PLATFORM, "platformStack.name", None, "is missing"),
    wrong_key(ON_PLATFORM, "platformStack.priority", -10, "-9"),
    wrong_key(ON_PLATFORM, "platformStack.priority", 1_000_000, "999999"),
    wrong_key(ON_PLATFORM, "job.priorityClass", "high", "platformStack", "platformStack.priority"),
    wrong_key(ON_PLATFORM, "tags", TAGS, "belongs to the platform's stack", "remove it here"),
    wrong_key(ON_PLATFORM, "protect", True, "belongs to the platform's stack"),
    *(
        Case(
            ON_PLATFORM,
            change,
            next(iter(change)).partition(".")[0],
            ("belongs to the platform's stack",),
        )
        for change in (
            {"cluster.context": "kind"},
            {"storage.path": "/mnt/other"},
            {"etcd.members": 5},
            {"controller.image": "ghcr.io/everstep/controller:1"},
            {"platform.quota.gpus": 8},
            {"registry.keepImages": 5},
            {"cost.budget": {"monthlyUsd": 5, "email": "a@example.org"}},
        )
    ),
]

EDGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (EKS, {"cluster.network.cidr": "10.0.0.0/21"}),
    (EKS, {"cluster.network.serviceCidr": "172.16.0.0/12"}),
    (EKS, {"cluster.network.serviceCidr": "172.20.0.0/24"}),
    (EKS, {"cluster.publicAccess": ["17.0.0.0/8"]}),
    (
        EKS,
        {
            "cluster.network.vpcId": "vpc-0123456789abcdef0",
            "cluster.network.privateSubnetIds": {
                "us-east-1a": "subnet-0123456789abcdef0",
                "us-east-1b": "subnet-0123456789abcdef1",
            },
        },
    ),
    (EKS, {"cluster.addonVersions": {"kube-proxy": "v1.33.0-eksbuild.1"}}),
    (EKS, {"cluster.addonVersions": {"kube-proxy": "v1.36.2-eksbuild.1"}}),
    (
        EKS,
        {
            "cluster.addonVersions": {"amazon-cloudwatch-observability": "v5.4.0-eksbuild.1"},
            "cluster.monitoring.containerInsights": True,
        },
    ),
    (EKS, {"cluster.gpuPool.minNodes": 6, "cluster.gpuPool.nodes": 6}),
    (
        EKS,
        {"cluster.gpuPool.nodes": 1, "cluster.gpuPool.maxNodes": 1, "job.replicas": 1},
    ),
    (EKS, {"cluster.gpuPool.efa": True, "cluster.gpuPool.instanceTypes": ["p4d.24xlarge"]}),
    (EKS, pools(EKS, a={"fallbackNodes": 2}) | {"job.replicas": 8, "job.maxReplicas": 8}),
    (
        EKS,
        pools(EKS) | {"job.spreadZones": True, "job.replicas": 12, "job.maxReplicas": 12},
    ),
    (EKS, pools(EKS, a=EFA_POOL, b=EFA_POOL) | {"job.gpusPerWorker": 8, "job.globalBatch": 96}),
    (EKS, pools(EKS, b={"name": "b" * 19}) | {"storage.existing": FILE_SYSTEM}),
    (
        EKS,
        pools(EKS, b={"instanceTypes": ["g4dn.xlarge"]}) | {"cluster.minGpuMemoryGib": 16},
    ),
    (EKS, pools(EKS, a={"instanceTypes": ["g5.xlarge", "g6.xlarge"]})),
    (
        EKS,
        pools(EKS, a={"instanceTypes": ["g5.xlarge", "g6e.xlarge"]})
        | {"cluster.minGpuMemoryGib": 22.3},
    ),
    (
        EKS,
        pools(EKS, a={"capacity": "onDemand"}, b={"capacity": "onDemand"})
        | {"job.graceSeconds": 600},
    ),
    (AKS, pools(AKS, a={"fallbackNodes": 2, "name": "a" * 10, "maxPrice": 0.12345})),
    (AKS, pools(AKS, b={"zone": "1", "capacity": "onDemand"})),
    (EKS, {"cluster.gpuPool.fallbackNodes": 2, "job.replicas": 8, "job.maxReplicas": 8}),
    (EKS, {"cluster.autoscaling.enabled": False, "cluster.gpuPool.nodes": 3}),
    (EKS, {"cluster.monitoring.managedPrometheus": True, "platform.monitoring.scrapeSeconds": 1}),
    (EKS, {"job.graceSeconds": 120}),
    (EKS, {"cluster.gpuPool.capacity": "onDemand", "job.graceSeconds": 600}),
    (EKS, {"storage.sizeGib": 2400}),
    (EKS, {"storage.sizeGib": 7200}),
    (
        EKS,
        {
            "storage.deploymentType": "PERSISTENT_2",
            "storage.throughput": 1000,
        },
    ),
    (EKS, {"storage.existing": FILE_SYSTEM, "cluster.gpuPool.zone": "us-east-1b"}),
    (EKS, {"etcd.persistence": "disk", "etcd.storageClass": "gp3"}),
    (EKS, {"tags": TAGS | {f"t{n}": "x" for n in range(37)}}),
    (EKS, {"tags." + "n" * 128: "x"}),
    (EKS, {"tags.environment": "prod", "protect": True}),
    (EKS, {"tags.environment": "s" * 20}),
    (AKS, {"tags.environment": "staging"}),
    (EKS, {"tags.environment": "pre-prod-2"}),
    (EKS, {"registry.kind": "ecr", "registry.name": "team/everstep"}),
    (EKS, {"job.image": "ghcr.io/everstep/trainer@sha256:" + "0" * 64}),
    (EKS, {"platform.quota.pods": 9, "platform.quota.gpus": 3}),
    (ON_PLATFORM, {"job.maxReplicas": 300}),
    (EKS, {"job.resources.memory": "15Gi", "job.resources.cpu": "3"}),
    (EKS, {"cost.prices": {"g5.xlarge": {"onDemand": 1, "spot": 1}, "g6.xlarge": {"onDemand": 1}}}),
    (AKS, {"cluster.network.cidr": "172.16.0.0/13"}),
    (AKS, {"cluster.network.cidr": "172.29.0.0/16"}),
    (AKS, {"cluster.network.cidr": "10.0.0.0/25"}),
    (AKS, {"cluster.network": {"egress": "userDefinedRouting", "subnetId": SUBNET}}),
    (
        AKS,
        {
            "cluster.network.proxy": {
                "http": "http://10.1.0.4:65535/",
                "https": "https://proxy.example.org:443",
                "noProxy": [".corp.example.org", "10.0.0.0/8", "registry"],
                "trustedCa": CA * 2,
            }
        },
    ),
    (AKS, {"cluster.network": {"egress": "userDefinedRouting", "firewallIp": "10.1.0.4"}}),
    (AKS, {"cluster.network.serviceCidr": "10.2.0.0/28"}),
    (AKS, {"cluster.network.serviceCidr": "10.16.0.0/12"}),
    (AKS, {"cluster.network.podCidr": "100.64.0.0/10"}),
    (
        AKS,
        {
            "cluster.network.podCidr": "10.244.0.0/20",
            "cluster.gpuPool.maxNodes": 5,
            "cluster.gpuPool.fallbackNodes": 2,
        },
    ),
    (AKS, {"cluster.authorizedRanges": [], "cluster.privateApi": True}),
    (AKS, {"cluster.authorizedRanges": RANGES[:199]}),
    (AKS, {"cluster.authorizedRanges": RANGES, "cluster.network.subnetId": SUBNET}),
    (AKS, private_api("privatelink.eastus.azmk8s.io")),
    (AKS, private_api(f"{'a' * 32}.privatelink.eastus.azmk8s.io")),
    (AKS, {**private_api(""), "cluster.privateDnsZone": "none"}),
    (AKS, {"cluster.gpuPool.vmSizes": _sizes(("abcdefghijkl", "Standard_NC4as_T4_v3"))}),
    (AKS, {"cluster.gpuPool.maxPrice": 0.12345}),
    (AKS, {"cluster.gpuPool.maxPrice": 10}),
    (AKS, {"cluster.systemPool.vmSize": "Standard_DS11_v2"}),
    (AKS, {"cluster.systemPool.vmSize": "Standard_E16-4ads_v5"}),
    (AKS, {"cluster.systemPool.vmSize": "Standard_DC4as_cc_v5"}),
    (AKS, {"cluster.gpuPool.fallbackNodes": 3, "job.replicas": 15, "job.maxReplicas": 15}),
    (AKS, {"cluster.upgrades.channel": "node-image"}),
    (AKS, {"cluster.upgrades.nodeImage": "SecurityPatch"}),
    (
        AKS,
        {
            "cluster.gpuPool.snapshotId": SNAPSHOT,
            "cluster.upgrades": {"channel": "none", "nodeImage": "Unmanaged"},
        },
    ),
    (AKS, {"cluster.monitoring.managedPrometheus": True, "cluster.monitoring.jobMetrics": True}),
    (AKS, {"cluster.location": "westus", "cluster.systemPool.zones": []}),
    (AKS, {"storage.redundancy": "Premium_ZRS", "storage.protocol": "nfs"}),
    (AKS, {"storage.account": "mydata", "storage.accountResourceGroup": "data"}),
    (AKS, {"registry.kind": "acr", "registry.name": "abcde"}),
    (AKS, {"job.graceSeconds": 30}),
    (EKS, {"data.dataset": "imagefolder", "data.source": "s3://a.b"}),
    (EKS, {"data.dataset": "imagefolder", "data.source": "s3://my-photos/imagenet/2012/"}),
    (LOCAL, {"data.dataset": "imagefolder", "data.source": "uploads/photos.tar"}),
    (
        AKS,
        {
            "data.dataset": "imagefolder",
            "data.source": "az://acct/my-photos/a--b/",
            "data.sourceResourceGroup": "data",
        },
    ),
    (
        AKS,
        {
            "cluster.resourceGroup": "team",
            "storage.account": "acct",
            "data.dataset": "imagefolder",
            "data.cache": {"source": "az://acct/shards"},
        },
    ),
    (LOCAL, {"job.minReplicas": 3, "job.globalBatch": 3}),
    (LOCAL, {"job.scaling": "capacity"}),
    (LOCAL, {"job.command": ["python3", "train.py"], "job.args": ["--epochs", 3, "--lr", 0.1]}),
    (LOCAL, {"job.command": ["python3"], "job.args": ["-m", "train", "--token-file", "/run/x"]}),
    (LOCAL, {"job.command": ["./train"], "job.args": ["--api-key=$(API_KEY)", "--max-tokens=9"]}),
    (LOCAL, {"job.command": ["./train"], "job.maxReplicas": 50, "job.gpusPerWorker": 8}),
    (LOCAL, {"job.resources.sharedMemory": "2147M"}),
    (LOCAL, {"job.resources.sharedMemory": "2097151Ki"}),
    (
        EKS,
        {
            "cluster.iam": {
                "path": f"/{'p' * 510}/",
                "permissionsBoundary": "arn:aws:iam::aws:policy/PowerUserAccess",
            },
            "cluster.account": "999999999999",
        },
    ),
    (EKS, {"cluster.iam.path": "/"}),
    (EKS, {"cluster.kubernetesVersion": "1.35", "cluster.nodeRelease": "1.35.12-20261101"}),
    (EKS, {"cluster.kmsKeyArn": f"arn:aws:kms:us-east-1:123456789012:key/mrk-{'0a' * 16}"}),
    (EKS, {"cluster.iam.permissionsBoundary": "arn:aws-us-gov:iam::123456789012:policy/a/b+c"}),
    (ON_PLATFORM, {"platformStack.priority": -9}),
    (ON_PLATFORM, {"platformStack.priority": 999_999, "job.maxReplicas": 9}),
    (LOCAL, {"job.resources.memory": "2G", "job.resources.sharedMemory": "1.8Gi"}),
    (EKS, {"job.budgetUsd": 5, "job.onDemand": "never", "job.deadline": "90d"}),
    (EKS, {"job.budgetUsd": 5, "storage.deploymentType": "PERSISTENT_2"}),
    (EKS, {"job.deadline": "6m", "job.onDemand": "never"}),
    (LOCAL, {"job.deadline": "1m", "job.onDemand": "never"}),
    (LOCAL, {"job.deadline": "2020-01-01T00:00:00Z", "job.onDemand": "never"}),
    (
        EKS,
        {
            "job.deadline": "2030-01-01T00:00:00+02:00",
            "job.onDemand": "always",
            "cluster.gpuPool.fallbackNodes": 3,
        },
    ),
    (
        EKS,
        pools(EKS, b={"capacity": "onDemand"}, a={"fallbackNodes": 1})
        | {"job.onDemand": "fallback"},
    ),
    (AKS, {"job.onDemand": "fallback", "cluster.gpuPool.fallbackNodes": 1}),
]
"""Valid stacks with values at the limits."""
