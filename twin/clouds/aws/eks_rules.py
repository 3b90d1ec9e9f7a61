"""What Amazon EKS demands of clusters, node groups, add-ons and entries. Pure.

Sources: EKS API Reference, EKS User Guide ("service quotas", "Kubernetes versions", "Create a
managed node group", "Amazon EKS add-ons", "pod identity"), read 2026-11.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Mapping

from twin.clouds.aws.machines import TEMPLATE, type_faults
from twin.clouds.aws.network import ASSOCIATION, ROUTE, SUBNET, TABLE
from twin.clouds.aws.policies import ROLE, attached
from twin.clouds.model import Inputs, Making
from twin.clouds.rules import at, is_private, known
from twin.clouds.wire.check import Mistake
from twin.clouds.world import Resource, World

CLUSTER, NODES, ADDON = (
    "aws:eks/cluster:Cluster",
    "aws:eks/nodeGroup:NodeGroup",
    "aws:eks/addon:Addon",
)
ENTRY = "aws:eks/accessEntry:AccessEntry"
VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")  # EKS User Guide, Kubernetes versions, 2026-11
LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
CLUSTER_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]*")
LARGEST_GROUP, MOST_LABELS, MOST_TAINTS, LONGEST_VALUE = 450, 50, 50, 63
ADDON_VERSION = re.compile(r"v\d+\.\d+\.\d+-eksbuild\.\d+")
DEPLOYMENTS = frozenset({
    "coredns", "aws-fsx-csi-driver", "aws-ebs-csi-driver", "aws-efs-csi-driver", "metrics-server",
})  # fmt: skip
ADDONS = DEPLOYMENTS | {
    "vpc-cni", "kube-proxy", "eks-pod-identity-agent", "eks-node-monitoring-agent",
    "amazon-cloudwatch-observability", "aws-mountpoint-s3-csi-driver", "snapshot-controller",
    "cert-manager", "aws-network-flow-monitoring-agent", "adot",
}  # fmt: skip
POLICY_ARN = "arn:aws:eks::aws:cluster-access-policy/"
ACCESS_POLICIES = frozenset({
    "AmazonEKSAdminPolicy", "AmazonEKSClusterAdminPolicy", "AmazonEKSAdminViewPolicy",
    "AmazonEKSEditPolicy", "AmazonEKSViewPolicy", "AmazonEKSAutoNodePolicy",
})  # fmt: skip


# -- inputs alone


def cluster_version(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a version that EKS does not offer."""
    version = inputs.get("version")
    if known(version) and version not in VERSIONS:
        yield at("version", f"{version!r} is not offered: {', '.join(VERSIONS)}")


def cluster_name(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse other characters than EKS takes."""
    name = inputs.get("name")
    if isinstance(name, str) and not CLUSTER_NAME.fullmatch(name):
        yield at("name", f"{name!r} must begin with a letter or digit and hold only these, - and _")


def endpoints(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse an API that nobody reaches, and ranges that are none or private."""
    vpc = inputs.get("vpcConfig")
    if not isinstance(vpc, Mapping):
        return
    if vpc.get("endpointPublicAccess") is False and not vpc.get("endpointPrivateAccess"):
        yield at("vpcConfig", "endpointPublicAccess and endpointPrivateAccess are both off")
    ranges = vpc.get("publicAccessCidrs")
    for position, each in enumerate(ranges if isinstance(ranges, list) else []):
        if isinstance(each, str):
            yield from _public(f"vpcConfig.publicAccessCidrs[{position}]", each)


def _public(path: str, text: str) -> Iterable[Mistake]:
    try:
        block = ipaddress.ip_network(text)
    except ValueError as error:
        yield at(path, f"{text!r} is no CIDR block: {error}")
        return
    if is_private(block):
        yield at(path, f"{text} is a private range, from which nobody reaches a public endpoint")


def auto_mode(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse half an Auto Mode: its three switches agree."""
    compute, storage = inputs.get("computeConfig"), inputs.get("storageConfig")
    network = inputs.get("kubernetesNetworkConfig")
    states = {
        _enabled(compute),
        _enabled(storage and storage.get("blockStorage")),
        _enabled(network and network.get("elasticLoadBalancing")),
    }
    if len(states) > 1:
        yield at(
            "computeConfig", "compute, block storage and load balancing are on together or off"
        )


def _enabled(section: object) -> bool:
    return bool(section.get("enabled")) if isinstance(section, Mapping) else False


def scaling(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse sizes that contradict."""
    sizes = inputs.get("scalingConfig")
    if not isinstance(sizes, Mapping):
        return
    given = [sizes.get(each) for each in ("minSize", "desiredSize", "maxSize")]
    numbers = [each for each in given if isinstance(each, int)]
    if len(numbers) < len(given):
        return
    least, wanted, most = numbers
    if not 0 <= least <= wanted <= most:
        yield at(
            "scalingConfig", f"minSize {least} <= desiredSize {wanted} <= maxSize {most} must hold"
        )
    if not 1 <= most <= LARGEST_GROUP:
        yield at("scalingConfig.maxSize", f"{most}: a group has 1 to {LARGEST_GROUP} nodes")


def launch(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse what a launch template says already, or cannot be without one."""
    template = inputs.get("launchTemplate")
    if not isinstance(template, Mapping):
        if inputs.get("amiType") == "CUSTOM":
            yield at("amiType", "CUSTOM needs a launch template that names the image")
        return
    for name in ("diskSize", "remoteAccess"):
        if inputs.get(name) is not None:
            yield at(name, "it stands in the launch template when there is one")
    if (template.get("id") is None) == (template.get("name") is None):
        yield at("launchTemplate", "a launch template is named by its id or by its name, by one")


def labels(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse labels that are the service's own, too long or too many."""
    given = inputs.get("labels")
    for key, value in given.items() if isinstance(given, Mapping) else ():
        if "eks.amazonaws.com/" in key or key.startswith("kubernetes.io/"):
            yield at("labels", f"{key!r} is a label of the service's own")
        if isinstance(value, str) and len(value) > LONGEST_VALUE:
            yield at("labels", f"the value of {key!r} has more than {LONGEST_VALUE} characters")
    if isinstance(given, Mapping) and len(given) > MOST_LABELS:
        yield at("labels", f"{len(given)} labels, {MOST_LABELS} are allowed")
    taints = inputs.get("taints")
    if isinstance(taints, list) and len(taints) > MOST_TAINTS:
        yield at("taints", f"{len(taints)} taints, {MOST_TAINTS} are allowed")


def gpu_image(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse the retired AL2 images."""
    image = inputs.get("amiType")
    if isinstance(image, str) and image.startswith("AL2_"):
        yield at("amiType", f"{image}: there is no Amazon Linux 2 image since Kubernetes 1.33")


def node_types(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse instance types that are not there."""
    yield from type_faults("instanceTypes", inputs.get("instanceTypes"))


def addon(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse add-ons, versions and configurations that EKS would not take."""
    name, version = inputs.get("addonName"), inputs.get("addonVersion")
    if known(name) and name not in ADDONS:
        yield at("addonName", f"{name!r} is no add-on of EKS that the twin knows")
    if isinstance(version, str) and not ADDON_VERSION.fullmatch(version):
        yield at("addonVersion", f"{version!r} is not of the form v1.2.3-eksbuild.4")
    text = inputs.get("configurationValues")
    if isinstance(text, str):
        try:
            json.loads(text)
        except ValueError:
            if ":" not in text:  # EKS takes YAML too
                yield at("configurationValues", "this is neither JSON nor YAML")


def access_policy(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse what is no access policy, or one without its namespaces."""
    arn = inputs.get("policyArn")
    if isinstance(arn, str) and arn.removeprefix(POLICY_ARN) not in ACCESS_POLICIES:
        yield at("policyArn", f"{arn!r} is no access policy: {POLICY_ARN} and a name")
    scope = inputs.get("accessScope")
    if (
        isinstance(scope, Mapping)
        and scope.get("type") == "namespace"
        and not scope.get("namespaces")
    ):
        yield at("accessScope.namespaces", "a scope of namespaces names at least one")


# -- the account too


def rights(path: str, needed: frozenset[str]) -> Callable[[Making], Iterable[str]]:
    """Return a demand: a role has policies attached, all of a set or its equivalents."""

    def broken(making: Making) -> Iterable[str]:
        role = making.world.find((ROLE,), str(making.inputs.get(path)), "arn")
        missing = needed - attached(role, making) if role else set()
        if role and missing:
            yield f"the role {role.id} lacks {', '.join(sorted(missing))}"

    return broken


def pull_rights(making: Making) -> Iterable[str]:
    """Demand that nodes can pull: without a right to the registry they never become Ready."""
    role = making.world.find((ROLE,), str(making.inputs.get("nodeRoleArn")), "arn")
    able = {"AmazonEC2ContainerRegistryReadOnly", "AmazonEC2ContainerRegistryPullOnly"}
    if role and not able & attached(role, making):
        yield f"the role {role.id} may not pull images: attach AmazonEC2ContainerRegistryPullOnly"


def two_zones(making: Making) -> Iterable[str]:
    """Demand subnets in two zones."""
    found = (
        making.world.find((SUBNET,), str(each))
        for each in (making.inputs.get("vpcConfig") or {}).get("subnetIds") or ()
    )
    there = {str(each.outputs["availabilityZone"]) for each in found if each}
    if len(there) == 1:
        yield f"Subnets specified must be in at least two different AZs, not only {there.pop()}"


def one_step(making: Making) -> Iterable[str]:
    """Demand that a cluster goes up by one minor version, and never down."""
    before, now = making.before, making.inputs.get("version")
    if before is None or now is None or before.outputs.get("version") in (None, now):
        return
    old, new = (int(str(each).split(".")[1]) for each in (before.outputs["version"], now))
    if new != old + 1:
        yield f"Unsupported Kubernetes minor version update from 1.{old} to 1.{new}"


def cluster_of(making: Making) -> Resource | None:
    """Return the cluster that a node group or add-on is of."""
    return making.world.find((CLUSTER,), str(making.inputs["clusterName"]), "name")


def network_plugin(making: Making) -> Iterable[str]:
    """Demand a network plugin, without which no node becomes Ready."""
    cluster = cluster_of(making)
    if cluster is None or cluster.inputs.get("bootstrapSelfManagedAddons") is not False:
        return
    if not any(_is_addon(each, cluster, "vpc-cni") for each in making.world.all(ADDON)):
        yield (
            "Unhealthy nodes in the kubernetes cluster: cni plugin not initialized. The cluster "
            "has no add-on vpc-cni yet; let the node group wait for it"
        )


def _is_addon(addon: Resource, cluster: Resource, name: str) -> bool:
    mine = addon.inputs.get("clusterName") == cluster.outputs["name"]
    return mine and addon.inputs.get("addonName") == name


def way_out(making: Making) -> Iterable[str]:
    """Demand that nodes reach the API and the registries."""
    for value in making.inputs.get("subnetIds") or ():
        subnet = making.world.find((SUBNET,), str(value))
        if subnet and not _has_route(subnet, making.world):
            yield (
                f"Instances failed to join the kubernetes cluster: the subnet {subnet.id} has no "
                "route out; let the node group wait for its route and route table association"
            )


def _has_route(subnet: Resource, world: World) -> bool:
    tables = {
        str(each.inputs["routeTableId"])
        for each in world.all(ASSOCIATION)
        if each.inputs.get("subnetId") == subnet.id
    }
    apart = (r.inputs for r in world.all(ROUTE) if r.inputs.get("routeTableId") in tables)
    inline = (
        {**route, "destinationCidrBlock": route.get("cidrBlock")}
        for table in world.all(TABLE)
        if table.id in tables
        for route in table.inputs.get("routes") or ()
    )
    return any(
        route.get("destinationCidrBlock") == "0.0.0.0/0"
        and (route.get("natGatewayId") or route.get("gatewayId") or route.get("transitGatewayId"))
        for route in (*apart, *inline)
    )


def template_version(making: Making) -> Iterable[str]:
    """Demand a version of the launch template that is there."""
    wanted = making.inputs.get("launchTemplate") or {}
    template = making.world.find((TEMPLATE,), str(wanted.get("id") or ""))
    version = str(wanted.get("version") or "")
    latest = int(template.outputs["latestVersion"]) if template else 0
    if template and version.isdigit() and int(version) > latest:
        yield f"{template.id} has no version {version}, its latest is {latest}"


def one_efa_type(making: Making) -> Iterable[str]:
    """Demand that a launch template with EFA serves types that have it, and only one."""
    wanted = making.inputs.get("launchTemplate") or {}
    template = making.world.find((TEMPLATE,), str(wanted.get("id") or ""))
    interfaces = (template.inputs.get("networkInterfaces") if template else None) or ()
    adapters = [each for each in interfaces if str(each.get("interfaceType")).startswith("efa")]
    types = making.inputs.get("instanceTypes") or ()
    if adapters and len(types) > 1:
        yield f"a launch template with EFA serves one instance type, not {', '.join(types)}"
    from twin.clouds.aws.machines import INSTANCES

    for name in types:
        if name in INSTANCES and len(adapters) > INSTANCES[name].adapters:
            yield f"{name} has {INSTANCES[name].adapters} EFA interfaces, not {len(adapters)}"


def node_version(making: Making) -> Iterable[str]:
    """Demand nodes not newer than the control plane, nor too old for it."""
    cluster, wanted = cluster_of(making), making.inputs.get("version")
    if cluster is None or wanted is None:
        return
    nodes, control = (int(str(each).split(".")[1]) for each in (wanted, cluster.outputs["version"]))
    if not control - 3 <= nodes <= control:
        yield f"Nodegroup Kubernetes version should be equal to or older than cluster: {wanted}"


def nodes_there(making: Making) -> Iterable[str]:
    """Demand nodes for an add-on whose pods are a Deployment: EKS waits until they run."""
    name = making.inputs.get("addonName")
    cluster = cluster_of(making)
    groups = (
        each
        for each in making.world.all(NODES)
        if cluster and each.inputs.get("clusterName") == cluster.outputs["name"]
    )
    if cluster and name in DEPLOYMENTS and not any(groups):
        yield (
            f"the add-on {name} is DEGRADED: InsufficientNumberOfReplicas: the cluster has no "
            "nodes; let it wait for a node group"
        )


def entry_there(making: Making) -> Iterable[str]:
    """Demand the access entry that a policy is for."""
    cluster, principal = making.inputs["clusterName"], making.inputs["principalArn"]
    for each in making.world.all(ENTRY):
        if (each.inputs["clusterName"], each.inputs["principalArn"]) == (cluster, principal):
            return
    yield f"the principal {principal} has no access entry in {cluster}"


def protected(gone: Resource, _world: World) -> Iterable[str]:
    """Refuse to delete a cluster that is protected."""
    if gone.inputs.get("deletionProtection"):
        yield f"the cluster {gone.id} has deletion protection; set deletionProtection to false first"
