"""The node groups of Amazon EKS: the record, and the machines that one stands for. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twin.clouds.aws import eks_rules as rules
from twin.clouds.aws.common import arn
from twin.clouds.aws.eks_rules import NODES
from twin.clouds.aws.machines import TEMPLATE, gpus
from twin.clouds.aws.network import SUBNET, in_subnets
from twin.clouds.aws.policies import assumable
from twin.clouds.model import Demand, Inputs, Making, Naming, Reference, ResourceType, Rule
from twin.clouds.world import Resource, World

if TYPE_CHECKING:
    from twin.clouds.capacity import Pool
    from twin.nodes.model import Taint
from twin.clouds.aws.eks import API, GUIDE, IN_USE, INVALID, of_cluster, to_role

EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}


STARTUP = "agent-not-ready"  # the end of every taint that a CSI driver takes away


IMAGES = tuple(
    f"{system}{arch}{kind}"
    for system, arch, kind in (
        ("AL2023_", "x86_64_", "STANDARD"),
        ("AL2023_", "ARM_64_", "STANDARD"),
        ("AL2023_", "x86_64_", "NVIDIA"),
        ("AL2023_", "ARM_64_", "NVIDIA"),
        ("AL2023_", "x86_64_", "NEURON"),
        ("BOTTLEROCKET_", "x86_64", ""),
        ("BOTTLEROCKET_", "ARM_64", ""),
        ("BOTTLEROCKET_", "x86_64", "_NVIDIA"),
        ("BOTTLEROCKET_", "ARM_64", "_NVIDIA"),
        ("BOTTLEROCKET_", "x86_64", "_FIPS"),
        ("BOTTLEROCKET_", "ARM_64", "_FIPS"),
        ("AL2_", "x86_64", ""),
        ("AL2_", "x86_64", "_GPU"),
        ("AL2_", "ARM_64", ""),
        ("CUSTOM", "", ""),
        ("WINDOWS_", "CORE_2022_", "x86_64"),
        ("WINDOWS_", "FULL_2022_", "x86_64"),
    )
)


def _group_name(making: Making) -> str:
    return str(making.inputs["nodeGroupName"])


def _describe_nodes(making: Making) -> dict[str, Any]:
    cluster, name = str(making.inputs["clusterName"]), _group_name(making)
    there = rules.cluster_of(making)
    token = making.digits("id", 32)
    mark = f"{token[:8]}-{token[8:12]}-{token[12:16]}-{token[16:20]}-{token[20:]}"
    scaling = f"eks-{name}-{mark}"
    path = f"nodegroup/{cluster}/{name}/{mark}"
    return {
        "arn": arn("eks", path, making.region),
        "status": "ACTIVE",
        "version": making.inputs.get("version") or (there and there.outputs["version"]) or "",
        "releaseVersion": "1.36.0-20261101",
        "resources": [
            {"autoscalingGroups": [{"name": scaling}], "remoteAccessSecurityGroupId": ""}
        ],
    }


def node_pools(group: Resource, world: World) -> Sequence["Pool"]:
    """Return the machines of a node group, labelled and tainted as EKS does it."""
    from twin.clouds.capacity import Pool
    from twin.nodes.model import Role

    given = group.inputs
    types = tuple(given.get("instanceTypes") or ("t3.medium",))
    sizes = given["scalingConfig"]
    count = gpus(types) if "NVIDIA" in str(given.get("amiType")) else 0
    subnet = world.find((SUBNET,), str(given["subnetIds"][0]))
    zone = str(subnet.outputs["availabilityZone"]) if subnet else ""
    taints = [_taint(each) for each in given.get("taints") or ()]
    return [
        Pool(
            name=str(given["nodeGroupName"]),
            cloud="aws",
            cluster=str(given["clusterName"]),
            role=Role.GPU if gpus(types) else Role.SYSTEM,
            instance_types=types,
            zone=zone,
            region=zone[:-1],
            labels={str(key): str(value) for key, value in (given.get("labels") or {}).items()},
            taints=tuple(each for each in taints if not each.key.endswith(STARTUP)),
            startup_taints=tuple(each for each in taints if each.key.endswith(STARTUP)),
            gpus=count,
            minimum=int(sizes["minSize"]),
            desired=int(sizes["desiredSize"]),
            maximum=int(sizes["maxSize"]),
            capacity="spot" if given.get("capacityType") == "SPOT" else "on-demand",
        )
    ]


def _taint(given: Mapping[str, Any]) -> "Taint":
    from twin.nodes.model import Taint

    effect = EFFECTS[given["effect"]]
    return Taint.parse({"key": given["key"], "value": given.get("value"), "effect": effect})


def _resized(inputs: Inputs, sizes: Mapping[str, int]) -> Inputs:
    wanted = sizes.get(str(inputs["nodeGroupName"]))
    if wanted is None:
        return inputs
    return {**inputs, "scalingConfig": {**inputs["scalingConfig"], "desiredSize": wanted}}


TYPES = (
    ResourceType(
        token=NODES,
        identify=lambda making: f"{making.inputs['clusterName']}:{_group_name(making)}",
        describe=_describe_nodes,
        pools=node_pools,
        resized=_resized,
        defaults={"capacityType": "ON_DEMAND", "amiType": "AL2023_x86_64_STANDARD"},
        naming=Naming(property="nodeGroupName", longest=63),
        immutable=(
            "clusterName",
            "nodeRoleArn",
            "subnetIds",
            "amiType",
            "capacityType",
            "diskSize",
            "instanceTypes",
            "remoteAccess",
            "launchTemplate.id",
            "launchTemplate.name",
            "nodeGroupNamePrefix",
            "region",
        ),
        enums={
            "amiType": IMAGES,
            "capacityType": ("ON_DEMAND", "SPOT", "CAPACITY_BLOCK"),
            "taints.*.effect": tuple(EFFECTS),
            "updateConfig.updateStrategy": ("DEFAULT", "MINIMAL"),
        },
        rules=(
            Rule(
                name="sizes of a node group",
                source=f"{API}, NodegroupScalingConfig",
                broken=rules.scaling,
            ),
            Rule(
                name="launch template or not", source=f"{API}, CreateNodegroup", broken=rules.launch
            ),
            Rule(
                name="labels of a node group", source=f"{API}, CreateNodegroup", broken=rules.labels
            ),
            Rule(
                name="image of a node group",
                source=f"{GUIDE}, AL2 end of support",
                broken=rules.gpu_image,
            ),
            Rule(
                name="types of a node group",
                source="EC2 User Guide, instance types",
                broken=rules.node_types,
            ),
        ),
        references=(
            of_cluster(holds=IN_USE),
            to_role("nodeRoleArn"),
            in_subnets("subnetIds.*"),
            Reference(path="launchTemplate.id", to=(TEMPLATE,), code="InvalidRequestException"),
            Reference(
                path="launchTemplate.name",
                to=(TEMPLATE,),
                by="name",
                code="InvalidRequestException",
            ),
        ),
        demands=(
            Demand(
                name="role of nodes",
                source=f"{GUIDE}, node IAM role",
                code=INVALID,
                broken=assumable("nodeRoleArn", "ec2.amazonaws.com"),
            ),
            Demand(
                name="rights of nodes",
                source=f"{GUIDE}, node IAM role",
                code="NodeCreationFailure",
                broken=rules.rights("nodeRoleArn", frozenset({"AmazonEKSWorkerNodePolicy"})),
            ),
            Demand(
                name="nodes pull images",
                source=f"{GUIDE}, node IAM role",
                code="NodeCreationFailure",
                broken=rules.pull_rights,
            ),
            Demand(
                name="nodes have a network plugin",
                source=f"{GUIDE}, troubleshooting",
                code="NodeCreationFailure",
                broken=rules.network_plugin,
            ),
            Demand(
                name="nodes have a way out",
                source=f"{GUIDE}, troubleshooting",
                code="NodeCreationFailure",
                broken=rules.way_out,
            ),
            Demand(
                name="version of a template",
                source=f"{API}, CreateNodegroup",
                code="InvalidRequestException",
                broken=rules.template_version,
            ),
            Demand(
                name="one type with EFA",
                source="EC2 User Guide, Elastic Fabric Adapter",
                code="InvalidRequestException",
                broken=rules.one_efa_type,
            ),
            Demand(
                name="version of nodes",
                source=f"{API}, UpdateNodegroupVersion",
                code=INVALID,
                broken=rules.node_version,
            ),
        ),
        unique_code=IN_USE,
    ),
)
