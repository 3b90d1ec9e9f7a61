"""EC2's machines: instance types, launch templates, placement groups. Pure.

Sources: EC2 User Guide ("Elastic Fabric Adapter", "Specifications for instance types"), read
2026-11; EC2 API Reference, CreateLaunchTemplate.
"""

# ruff: noqa: S106  (a token is the name of a type here, and no password)

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twin.clouds.aws.common import by, ec2, prefixed
from twin.clouds.aws.network import in_groups, in_subnets
from twin.clouds.model import Demand, Inputs, Making, Naming, ResourceType, Rule
from twin.clouds.rules import at, known
from twin.clouds.wire.check import Mistake

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"
SHORTEST_TEMPLATE, LONGEST_TEMPLATE = 3, 128  # EC2 API, CreateLaunchTemplate
EFA = ("efa", "efa-only")
GUIDE = "EC2 User Guide, Elastic Fabric Adapter"


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """A size of machine.

    Attributes:
        gpus: NVIDIA GPUs.
        cards: network cards.
        adapters: the most that may be EFA.
    """

    gpus: int = 0
    cards: int = 1
    adapters: int = 0


def _family(name: str, sizes: str, gpus: int, adapters: int = 0) -> dict[str, InstanceType]:
    return {f"{name}.{size}": InstanceType(gpus=gpus, adapters=adapters) for size in sizes.split()}


SMALL = "xlarge 2xlarge 4xlarge"
GENERAL = "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge"
INSTANCES: Mapping[str, InstanceType] = {
    **{key: value for family in ("m5", "m6i", "m6a", "m7i", "m7a", "c6i", "c7i", "r6i", "r7i")
       for key, value in _family(family, GENERAL, 0).items()},
    **_family("t3", "small medium large xlarge 2xlarge", 0),
    **_family("g4dn", SMALL, 1), **_family("g5", SMALL, 1),
    **_family("g6", SMALL, 1), **_family("g6e", SMALL, 1),
    **_family("g4dn", "8xlarge 16xlarge", 1, 1), **_family("g5", "8xlarge 16xlarge", 1, 1),
    **_family("g6", "8xlarge 16xlarge", 1, 1), **_family("g6e", "8xlarge 16xlarge", 1, 1),
    **_family("g4dn", "12xlarge", 4, 1), **_family("g4dn", "metal", 8, 1),
    **_family("g5", "12xlarge 24xlarge", 4, 1), **_family("g6", "12xlarge 24xlarge", 4, 1),
    **_family("g6e", "12xlarge", 4, 1),
    **_family("g5", "48xlarge", 8, 1), **_family("g6", "48xlarge", 8, 1),
    "g6e.24xlarge": InstanceType(gpus=4, cards=2, adapters=2),
    "g6e.48xlarge": InstanceType(gpus=8, cards=4, adapters=4),
    "p3dn.24xlarge": InstanceType(gpus=8, cards=1, adapters=1),
    "p4d.24xlarge": InstanceType(gpus=8, cards=4, adapters=4),
    "p4de.24xlarge": InstanceType(gpus=8, cards=4, adapters=4),
    "p5.4xlarge": InstanceType(gpus=1, cards=1, adapters=1),
    "p5.48xlarge": InstanceType(gpus=8, cards=32, adapters=32),
    "p5e.48xlarge": InstanceType(gpus=8, cards=32, adapters=32),
    "p5en.48xlarge": InstanceType(gpus=8, cards=16, adapters=16),
    "p6-b200.48xlarge": InstanceType(gpus=8, cards=8, adapters=8),
    "p6-b300.48xlarge": InstanceType(gpus=8, cards=17, adapters=16),
}  # fmt: skip
RETIRED = frozenset({"p2", "p3", "g3", "g3s"})  # EC2 User Guide, previous generation instances


def gpus(instance_types: Iterable[str]) -> int:
    """Return how many GPUs a machine of the first type has; 0 for a type that is not known."""
    return next((INSTANCES.get(each, InstanceType()).gpus for each in instance_types), 0)


def type_faults(path: str, names: object) -> Iterable[Mistake]:
    """Refuse types that AWS does not have any more, or that the twin does not know."""
    for position, name in enumerate(names if isinstance(names, list) else []):
        if not isinstance(name, str) or name in INSTANCES:
            continue
        family = name.partition(".")[0]
        near = sorted(each for each in INSTANCES if each.startswith(f"{family}."))
        why = "AWS has retired it" if family in RETIRED else "the twin knows no such type"
        more = f"; of {family} it knows {', '.join(near)}" if near else ""
        yield at(f"{path}[{position}]", f"{name!r}: {why}{more}")


def _interfaces(inputs: Inputs) -> list[Mapping[str, Any]]:
    found = inputs.get("networkInterfaces")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _template_name(inputs: Inputs) -> Iterable[Mistake]:
    name = inputs.get("name")
    if isinstance(name, str) and len(name) < SHORTEST_TEMPLATE:
        yield at("name", f"{name!r} has fewer than {SHORTEST_TEMPLATE} characters")


def _groups_once(inputs: Inputs) -> Iterable[Mistake]:
    if _interfaces(inputs) and inputs.get("vpcSecurityGroupIds"):
        said = "security groups stand at each of the networkInterfaces when there are any"
        yield at("vpcSecurityGroupIds", said)


def _efa_places(inputs: Inputs) -> Iterable[Mistake]:
    for position, each in enumerate(_interfaces(inputs)):
        card, device = each.get("networkCardIndex") or 0, each.get("deviceIndex") or 0
        here = f"networkInterfaces[{position}]"
        if not (isinstance(card, int) and isinstance(device, int)):
            continue
        if card == 0 and device == 0 and each.get("interfaceType") == "efa-only":
            yield at(
                f"{here}.interfaceType",
                "card 0 device 0 carries IP: efa or interface, not efa-only",
            )
        if card > 0 and device == 0:
            yield at(f"{here}.deviceIndex", f"only card 0 has device 0; card {card} has device 1")


def _efa_fit(inputs: Inputs) -> Iterable[Mistake]:
    name = inputs.get("instanceType")
    if not known(name) or name not in INSTANCES:
        return
    kind = INSTANCES[str(name)]
    adapters = [each for each in _interfaces(inputs) if each.get("interfaceType") in EFA]
    if len(adapters) > kind.adapters:
        said = f"{len(adapters)} EFA interfaces: {name} has at most {kind.adapters}"
        yield at("networkInterfaces", said)


def _strings(inputs: Inputs) -> Iterable[Mistake]:
    blocks = inputs.get("blockDeviceMappings")
    for position, block in enumerate(blocks if isinstance(blocks, list) else []):
        disk = (block.get("ebs") if isinstance(block, Mapping) else None) or {}
        for name in ("encrypted", "deleteOnTermination"):
            value = disk.get(name)
            if known(value) and value not in ("true", "false"):
                said = f"{value!r}: the provider takes the texts true and false here"
                yield at(f"blockDeviceMappings[{position}].ebs.{name}", said)


def _placement(making: Making) -> Iterable[str]:
    name = (making.inputs.get("placement") or {}).get("groupName")
    if name and making.world.find((PLACEMENT,), str(name)) is None:
        yield f"The Placement Group {name!r} is unknown."


def _describe_template(making: Making) -> dict[str, Any]:
    before = making.before
    changed = before is not None and _content(before.inputs) != _content(making.inputs)
    latest = int(before.outputs["latestVersion"]) + changed if before else 1
    default = making.inputs.get("defaultVersion")
    if default is None:
        keeps = before and not making.inputs.get("updateDefaultVersion")
        default = before.outputs["defaultVersion"] if before and keeps else latest
    described = ec2("launch-template")(making)
    return {"arn": described["arn"], "latestVersion": latest, "defaultVersion": default}


def _content(inputs: Inputs) -> dict[str, Any]:
    about = ("tags", "updateDefaultVersion", "defaultVersion")
    return {key: value for key, value in inputs.items() if key not in about}


TYPES = (
    ResourceType(
        token=TEMPLATE,
        identify=prefixed("lt"),
        describe=_describe_template,
        naming=Naming(longest=LONGEST_TEMPLATE),
        immutable=("namePrefix", "region"),
        enums={
            "networkInterfaces.*.interfaceType": ("efa", "efa-only", "interface"),
            "metadataOptions.httpTokens": ("optional", "required"),
            "metadataOptions.httpEndpoint": ("enabled", "disabled"),
            "blockDeviceMappings.*.ebs.volumeType": (
                "gp2",
                "gp3",
                "io1",
                "io2",
                "st1",
                "sc1",
                "standard",
            ),
        },
        rules=(
            Rule(
                name="name of a launch template",
                source="EC2 API, CreateLaunchTemplate",
                broken=_template_name,
            ),
            Rule(
                name="security groups at one place",
                source="EC2 API, RequestLaunchTemplateData",
                broken=_groups_once,
            ),
            Rule(name="place of EFA interfaces", source=GUIDE, broken=_efa_places),
            Rule(name="number of EFA interfaces", source=GUIDE, broken=_efa_fit),
            Rule(name="texts of a disk", source="pulumi-aws, LaunchTemplate", broken=_strings),
        ),
        references=(
            in_groups("vpcSecurityGroupIds.*"),
            in_groups("networkInterfaces.*.securityGroups.*"),
            in_subnets("networkInterfaces.*.subnetId"),
        ),
        demands=(
            Demand(
                name="placement group exists",
                source="EC2 API",
                code="InvalidPlacementGroup.Unknown",
                broken=_placement,
            ),
        ),
        unique=("name", "region"),
        unique_code="InvalidLaunchTemplateName.AlreadyExistsException",
    ),
    ResourceType(
        token=PLACEMENT,
        identify=by("name"),
        describe=lambda making: {
            "arn": ec2("placement-group")(making)["arn"],
            "placementGroupId": f"pg-0{making.digits('id', 16)}",
        },
        naming=Naming(longest=255),
        immutable=("strategy", "partitionCount", "spreadLevel", "region"),
        enums={"strategy": ("cluster", "partition", "spread")},
        unique_code="InvalidPlacementGroup.Duplicate",
    ),
    ResourceType(
        token="aws:autoscaling/tag:Tag",
        identify=lambda making: (
            f"{making.inputs['autoscalingGroupName']},{making.inputs['tag']['key']}"
        ),
        immutable=("autoscalingGroupName", "tag.key", "region"),
    ),
)
