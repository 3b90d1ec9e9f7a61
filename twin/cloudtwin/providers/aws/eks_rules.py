"""Rules of Amazon EKS for clusters, node groups, add-ons and access entries. Pure.

Sources: EKS API Reference, EKS User Guide ("service quotas", "Kubernetes versions", "Create a managed
node group", "Amazon EKS add-ons", "pod identity"), read 2026-11.
"""

import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping

from cloudfacts.aws import INSTANCE_TYPES

from cloudtwin.providers.aws.addon_versions import AVAILABLE, available_versions
from cloudtwin.providers.aws.machines import TEMPLATE, efa_interfaces
from cloudtwin.providers.aws.network import ASSOCIATION, ROUTE, SUBNET, TABLE, VPC
from cloudtwin.providers.aws.policies import ROLE, attached_policies
from cloudtwin.providers.conditions import (
    block_of,
    failure_at,
    is_known,
    label_error,
    overlap,
    section,
)
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import Inputs, RequestCheck, ResourceRequest
from cloudtwin.providers.schema.check import CheckFailure

CLUSTER, NODES = "aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"
ADDON, ENTRY = "aws:eks/addon:Addon", "aws:eks/accessEntry:AccessEntry"
MAX_GROUP_NODES, MAX_LABELS, MAX_TAINTS, MAX_SKEW = 450, 50, 50, 3
DEPLOYMENTS = frozenset({
    "coredns", "aws-fsx-csi-driver", "aws-ebs-csi-driver", "aws-efs-csi-driver", "metrics-server",
    "amazon-cloudwatch-observability", "snapshot-controller", "cert-manager", "adot",
})  # fmt: skip
POLICY_ARN = "arn:aws:eks::aws:cluster-access-policy/"
ACCESS_POLICIES = frozenset({
    "AmazonEKSAdminPolicy", "AmazonEKSClusterAdminPolicy", "AmazonEKSAdminViewPolicy",
    "AmazonEKSEditPolicy", "AmazonEKSViewPolicy", "AmazonEKSAutoNodePolicy",
})  # fmt: skip
CAPACITY_BLOCK_MARKET = "capacity-block"
SERVICE_RANGES = tuple(
    map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
)
PULL_POLICIES = {"AmazonEC2ContainerRegistryReadOnly", "AmazonEC2ContainerRegistryPullOnly"}


def minor(version: object) -> int:
    """Return the minor version, such as 36 for `1.36`."""
    return int(str(version).split(".")[1])


# -- input rules


def endpoints(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error if the API server has no endpoint."""
    vpc = section(inputs, "vpcConfig")
    if vpc.get("endpointPublicAccess") is False and not vpc.get("endpointPrivateAccess"):
        yield failure_at("vpcConfig", "endpointPublicAccess and endpointPrivateAccess are both off")


def cluster_subnets(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error if a cluster has fewer than two subnets."""
    subnets = section(inputs, "vpcConfig").get("subnetIds")
    if isinstance(subnets, list) and len(subnets) < 2:
        reason = f"{len(subnets)} subnets: a cluster needs at least two, in different zones"
        yield failure_at("vpcConfig.subnetIds", reason)


def computed_attribute(_value: object) -> str:
    """Return the error for a value of an attribute that only the service sets."""
    return "it cannot be configured: EKS sets it"


def service_block(value: object) -> str | None:
    """Return the reason why text is not a CIDR block for Services; None if it is valid."""
    block = block_of(value)
    if "/" not in str(value) or not isinstance(block, ipaddress.IPv4Network):
        return f"{value!r} is not a valid IPv4 CIDR block"
    if not 12 <= block.prefixlen <= 24:
        return f"{value} is not a block between /12 and /24"
    if not any(block.subnet_of(service_range) for service_range in SERVICE_RANGES):
        return f"{value} is not in {', '.join(map(str, SERVICE_RANGES))}"
    return None


def auto_mode(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error if the three switches of Auto Mode disagree."""
    network = section(inputs, "kubernetesNetworkConfig", "elasticLoadBalancing")
    switches = (section(inputs, "computeConfig"), section(inputs, "storageConfig", "blockStorage"))
    if len({bool(setting.get("enabled")) for setting in (*switches, network)}) > 1:
        reason = "compute, block storage and load balancing must be all on or all off"
        yield failure_at("computeConfig", reason)


def scaling(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for sizes of a node group that contradict each other, and for a maximum outside the limits."""
    sizes = section(inputs, "scalingConfig")
    bounds = [sizes.get(key) for key in ("minSize", "desiredSize", "maxSize")]
    numbers = [bound for bound in bounds if isinstance(bound, int)]
    if len(numbers) < len(bounds):
        return
    low, desired, high = numbers
    if not 0 <= low <= desired <= high:
        reason = f"minSize {low} <= desiredSize {desired} <= maxSize {high} must hold"
        yield failure_at("scalingConfig", reason)
    if not 1 <= high <= MAX_GROUP_NODES:
        reason = f"{high}: a group has 1 to {MAX_GROUP_NODES} nodes"
        yield failure_at("scalingConfig.maxSize", reason)


def launch(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for each input that conflicts with a launch template or needs one."""
    template = inputs.get("launchTemplate")
    if not isinstance(template, Mapping):
        if inputs.get("amiType") == "CUSTOM":
            yield failure_at("amiType", "CUSTOM needs a launch template with the image")
        return
    for name in ("diskSize", "remoteAccess"):
        if inputs.get(name) is not None:
            yield failure_at(name, "set it in the launch template instead")
    if (template.get("id") is None) == (template.get("name") is None):
        yield failure_at("launchTemplate", "set either the id or the name of the launch template")


def labels_and_taints(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for each reserved label, and for too many labels or taints."""
    labels, taints = section(inputs, "labels"), inputs.get("taints")
    for key in labels:
        if "eks.amazonaws.com/" in key or key.startswith("kubernetes.io/"):
            yield failure_at("labels", f"{key!r} is reserved for the service")
    if len(labels) > MAX_LABELS:
        yield failure_at("labels", f"{len(labels)} labels, at most {MAX_LABELS} are allowed")
    if isinstance(taints, list) and len(taints) > MAX_TAINTS:
        yield failure_at("taints", f"{len(taints)} taints, at most {MAX_TAINTS} are allowed")


def label_syntax(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for each label that is not valid in Kubernetes: no node would register with it."""
    for key, value in section(inputs, "labels").items():
        if reason := label_error(key, value):
            yield failure_at("labels", reason)


def node_subnets(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error if the list of subnets is empty."""
    if inputs.get("subnetIds") == []:
        yield failure_at("subnetIds", "a node group needs at least one subnet")


def release(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error if an AMI release is for another Kubernetes version, or is set for a custom image."""
    name, version = inputs.get("releaseVersion"), inputs.get("version")
    if name is None:
        return
    if inputs.get("amiType") == "CUSTOM":
        yield failure_at("releaseVersion", "a launch template with an image has no release")
    if version is not None and not str(name).startswith(f"{version}."):
        yield failure_at("releaseVersion", f"{name} is not a release for Kubernetes {version}")


def update_config(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error if unavailable nodes are limited by both a number and a percentage."""
    config = section(inputs, "updateConfig")
    names = ("maxUnavailable", "maxUnavailablePercentage")
    if all(config.get(name) is not None for name in names):
        yield failure_at("updateConfig", f"set either {names[0]} or {names[1]}")


def image_type(name: object) -> str | None:
    """Return the reason why an image type is refused; None for a current type."""
    if str(name).startswith("AL2_"):
        return f"{name}: there is no Amazon Linux 2 image since Kubernetes 1.33; use an AL2023 type"
    return None


def configuration_values(text: object) -> str | None:
    """Return the reason why text is not the configuration of an add-on; None if it is valid."""
    try:
        json.loads(str(text))
    except ValueError:
        return None if ":" in str(text) else "the configuration is neither JSON nor YAML"
    return None


def access_policy(arn: object) -> str | None:
    """Return the reason why text is not the ARN of an access policy; None if it is valid."""
    prefix, separator, name = str(arn).rpartition("/")
    if prefix + separator == POLICY_ARN and name in ACCESS_POLICIES:
        return None
    policy_names = ", ".join(sorted(ACCESS_POLICIES))
    return f"{arn!r} is not an access policy ARN: use {POLICY_ARN}NAME, where NAME is one of {policy_names}"


def access_scope(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error if a scope of type namespace names no namespace."""
    scope = section(inputs, "accessScope")
    if scope.get("type") == "namespace" and not scope.get("namespaces"):
        yield failure_at(
            "accessScope.namespaces", "a scope of type namespace needs at least one namespace"
        )


# -- preconditions and deletion guards


def permissions(path: str, required: frozenset[str]) -> RequestCheck:
    """Return a check that a role has all policies of a set."""

    def violations(request: ResourceRequest) -> Iterator[str]:
        role = request.find(ROLE, path, "arn")
        missing = required - attached_policies(role, request.account) if role else set()
        if role and missing:
            yield f"the role {role.id} lacks {', '.join(sorted(missing))}"

    return violations


def pull_permission(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if the node role cannot pull images: its nodes would never become Ready."""
    role = request.find(ROLE, "nodeRoleArn", "arn")
    if role and not PULL_POLICIES & attached_policies(role, request.account):
        yield f"the role {role.id} may not pull images: attach AmazonEC2ContainerRegistryPullOnly"


def two_zones(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if all subnets of a cluster are in one zone."""
    zones = _zones_of(request.inputs, request.account)
    if len(zones) == 1:
        yield f"Subnets specified must be in at least two different AZs, not only {zones.pop()}"


def same_zones(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for subnets in other zones than those with which the cluster was created."""
    if request.previous is None:
        return
    old_zones = _zones_of(request.previous.inputs, request.account)
    new_zones = _zones_of(request.inputs, request.account)
    if old_zones and new_zones and old_zones != new_zones:
        yield (
            "Provided subnets must belong to the set of availability zones with which the cluster was created, "
            f"{', '.join(sorted(old_zones))}, and not to {', '.join(sorted(new_zones))}"
        )


def services_outside_vpc(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if the Services' block overlaps with the VPC."""
    services = section(request.inputs, "kubernetesNetworkConfig").get("serviceIpv4Cidr")
    subnets = _subnets_of(request.inputs, request.account)
    for vpc_id in sorted({str(subnet.inputs.get("vpcId")) for subnet in subnets}):
        vpc = request.account.find((VPC,), vpc_id)
        block = vpc.inputs.get("cidrBlock") if vpc else None
        if services and overlap(services, block):
            yield f"serviceIpv4Cidr {services} overlaps with the block {block} of {vpc_id}: use a block outside the VPC"


def _zones_of(inputs: Inputs, account: Inventory) -> set[str]:
    """Return the zones of a cluster's subnets."""
    return {str(subnet.outputs["availabilityZone"]) for subnet in _subnets_of(inputs, account)}


def _subnets_of(inputs: Inputs, account: Inventory) -> list[Resource]:
    subnets = section(inputs, "vpcConfig").get("subnetIds") or ()
    resources = (account.find((SUBNET,), subnet) for subnet in subnets)
    return [subnet for subnet in resources if subnet]


def next_minor_version(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for an update to a version other than the current and the next minor version."""
    previous, requested = request.previous, request.inputs.get("version")
    if (
        previous is None
        or requested is None
        or previous.outputs.get("version") in (None, requested)
    ):
        return
    current_minor, target_minor = minor(previous.outputs["version"]), minor(requested)
    if target_minor != current_minor + 1:
        yield f"Unsupported Kubernetes minor version update from 1.{current_minor} to 1.{target_minor}"


def nodes_updated(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a new version while a node group does not have the current version of the control plane."""
    previous, requested = request.previous, request.inputs.get("version")
    if previous is None or requested in (None, previous.outputs.get("version")):
        return
    cluster_version = previous.outputs["version"]
    groups = request.account.where(NODES, clusterName=previous.outputs.get("name"))
    stale_groups = sorted(
        str(group.inputs["nodeGroupName"])
        for group in groups
        if group.outputs["version"] != cluster_version
    )
    if stale_groups:
        yield (
            f"Nodegroups {', '.join(stale_groups)} must be updated to match cluster version {cluster_version} "
            "before updating cluster version"
        )


def cluster_of(request: ResourceRequest) -> Resource | None:
    """Return the cluster of a node group or add-on, or None."""
    return request.find(CLUSTER, "clusterName", "name")


def network_plugin(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if the cluster has no network plugin: no node would become Ready."""
    cluster = cluster_of(request)
    if cluster is None or cluster.inputs.get("bootstrapSelfManagedAddons") is not False:
        return
    name = cluster.outputs["name"]
    if not request.account.where(ADDON, clusterName=name, addonName="vpc-cni"):
        yield (
            "Unhealthy nodes in the kubernetes cluster: cni plugin not initialized. The cluster "
            "has no add-on vpc-cni yet; let the node group depend on it"
        )


def egress_route(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each subnet from which nodes reach neither the API nor registries."""
    for value in request.inputs.get("subnetIds") or ():
        subnet = request.account.find((SUBNET,), value)
        if subnet and not _has_route(subnet, request.account):
            yield (
                f"Instances failed to join the kubernetes cluster: the subnet {subnet.id} has no "
                "egress route; let the node group depend on its route and route table association"
            )


def _has_route(subnet: Resource, account: Inventory) -> bool:
    associations = account.where(ASSOCIATION, subnetId=subnet.id)
    tables = {str(association.inputs["routeTableId"]) for association in associations}
    if not tables and (vpc := account.find((VPC,), subnet.inputs.get("vpcId"))):
        tables = {str(vpc.outputs.get("mainRouteTableId"))}
    separate_routes = (
        r.inputs for r in account.all(ROUTE) if r.inputs.get("routeTableId") in tables
    )
    inline_routes = (
        {**route, "destinationCidrBlock": route.get("cidrBlock")}
        for table in account.all(TABLE)
        if table.id in tables
        for route in table.inputs.get("routes") or ()
    )
    return any(
        route.get("destinationCidrBlock") == "0.0.0.0/0"
        and (route.get("natGatewayId") or route.get("gatewayId") or route.get("transitGatewayId"))
        for route in (*separate_routes, *inline_routes)
    )


def template_of(inputs: Inputs, account: Inventory) -> Resource | None:
    """Return the launch template of a node group, by the id or name in its inputs; None without one."""
    reference = section(inputs, "launchTemplate")
    for key in ("id", "name"):
        if value := reference.get(key):
            return account.find((TEMPLATE,), value, key)
    return None


def template_version(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if the launch template does not have the requested version."""
    template = template_of(request.inputs, request.account)
    version = str(section(request.inputs, "launchTemplate").get("version") or "")
    latest_version = int(template.outputs["latestVersion"]) if template else 0
    if template and version.isdigit() and not 1 <= int(version) <= latest_version:
        yield f"{template.id} has no version {version}; its latest version is {latest_version}"


def one_efa_type(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for several instance types with EFA, and for each with fewer EFA interfaces than the template."""
    template = template_of(request.inputs, request.account)
    adapters = efa_interfaces(template.inputs) if template else 0
    types = request.inputs.get("instanceTypes") or ()
    if adapters and len(types) > 1:
        yield f"a launch template with EFA supports one instance type, not {', '.join(types)}"
    for name in types:
        max_adapters = INSTANCE_TYPES[name].efa_interfaces if name in INSTANCE_TYPES else adapters
        if adapters > max_adapters:
            yield f"{name} has {max_adapters} EFA interfaces, not {adapters}"


def types_in_one_place(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if both a node group and its launch template have instance types."""
    template = template_of(request.inputs, request.account)
    if template and template.inputs.get("instanceType") and request.inputs.get("instanceTypes"):
        yield f"{template.id} has an instance type: set it there or in the node group, not in both"


def market_options(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if the launch template requests spot machines: the node group has an input for them."""
    template = template_of(request.inputs, request.account)
    market = section(template.inputs, "instanceMarketOptions").get("marketType") if template else ""
    if market and market != CAPACITY_BLOCK_MARKET:
        yield f"the market type {market} in a launch template is not supported: use capacityType"


def capacity_block(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if a group and its launch template disagree on a Capacity Block, or the template is incomplete."""
    template = template_of(request.inputs, request.account)
    inputs = template.inputs if template else {}
    options = section(inputs, "instanceMarketOptions")
    is_block = request.inputs.get("capacityType") == "CAPACITY_BLOCK"
    is_block_template = options.get("marketType") == CAPACITY_BLOCK_MARKET
    if is_block != is_block_template:
        yield (
            "a Capacity Block needs the capacityType CAPACITY_BLOCK and the market type "
            f"{CAPACITY_BLOCK_MARKET} in the launch template"
        )
        return
    target = section(inputs, "capacityReservationSpecification", "capacityReservationTarget")
    if is_block and not (target.get("capacityReservationId") and inputs.get("instanceType")):
        yield "the launch template of a Capacity Block needs its reservation and instance type"


def node_version(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if nodes are newer than the control plane, or too old for it."""
    cluster, requested = cluster_of(request), request.inputs.get("version")
    if cluster is None or requested is None:
        return
    node_minor, cluster_minor = minor(requested), minor(cluster.outputs["version"])
    if node_minor > cluster_minor:
        yield (
            "Nodegroup Kubernetes version should be equal to or older than cluster: "
            f"{requested} is newer than 1.{cluster_minor}"
        )
    if node_minor < cluster_minor - MAX_SKEW:
        yield (
            f"Nodegroup Kubernetes version {requested} is too old for the cluster's 1.{cluster_minor}: "
            f"use 1.{cluster_minor - MAX_SKEW} or newer"
        )


def release_of_cluster(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if a group without a version has a release for a version other than the control plane's."""
    cluster, name = cluster_of(request), request.inputs.get("releaseVersion")
    if cluster is None or name is None or request.inputs.get("version") is not None:
        return
    version = cluster.outputs["version"]
    if not str(name).startswith(f"{version}."):
        yield f"Requested Nodegroup release version {name} is invalid for kubernetes version {version}"


def node_downgrade(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if nodes are updated to an older version."""
    previous, requested = request.previous, request.inputs.get("version")
    current_version = previous.outputs.get("version") if previous else None
    if current_version and requested and minor(requested) < minor(current_version):
        yield f"a node group cannot go back from Kubernetes {current_version} to {requested}"


def addon_nodes(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if an add-on has a Deployment but the cluster has no nodes for its pods."""
    name, cluster = request.inputs.get("addonName"), cluster_of(request)
    if not cluster or name not in DEPLOYMENTS:
        return
    if not request.account.where(NODES, clusterName=cluster.outputs["name"]):
        yield (
            f"the add-on {name} is DEGRADED: InsufficientNumberOfReplicas: the cluster has no "
            "nodes; let the add-on depend on a node group"
        )


def addon_version(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if EKS does not offer the add-on's version for the cluster's version."""
    version, cluster = request.inputs.get("addonVersion"), cluster_of(request)
    if not cluster or not version:
        return
    name, kubernetes = str(request.inputs["addonName"]), str(cluster.outputs["version"])
    versions = available_versions(name, kubernetes)
    previous = request.previous.inputs.get("addonVersion") if request.previous else None
    if version not in {*versions, previous}:
        version_list = ", ".join(versions)
        yield f"Addon version specified is not supported: {name} {version}; use one of {version_list}"


def entry_exists(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if the principal of a policy association has no access entry."""
    cluster, principal = request.inputs["clusterName"], request.inputs["principalArn"]
    if not request.account.where(ENTRY, clusterName=cluster, principalArn=principal):
        yield f"the principal {principal} has no access entry in {cluster}"


def deletion_protection(cluster: Resource, _account: Inventory) -> Iterable[str]:
    """Yield an error if the cluster has deletion protection."""
    if cluster.inputs.get("deletionProtection"):
        reason = "has deletion protection; set deletionProtection to false first"
        yield f"the cluster {cluster.id} {reason}"


def addon_name(name: object) -> str | None:
    """Return the reason why a name is not an add-on; None if it is valid."""
    return (
        None
        if not is_known(name) or name in AVAILABLE
        else f"{name!r} is not an add-on that the twin has"
    )
