"""EC2: launch templates and placement groups. Pure.

Sources: EC2 User Guide ("Elastic Fabric Adapter"), EC2 API Reference, CreateLaunchTemplate; read 2026-11.
"""

import base64
from collections.abc import Iterable
from typing import Any

from cloudfacts.aws import INSTANCE_TYPES, RETIRED_GPU_FAMILIES, family

from cloudtwin.providers.aws.common import ec2, id_from, id_with_prefix
from cloudtwin.providers.aws.identity import to_key
from cloudtwin.providers.aws.network import in_groups, in_subnets
from cloudtwin.providers.conditions import (
    failure_at,
    in_range,
    is_known,
    matches,
    objects_at,
    section,
    value_rule,
)
from cloudtwin.providers.model import (
    InputRule,
    Inputs,
    Naming,
    Precondition,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.schema.check import CheckFailure

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"
EFA = ("efa", "efa-only")
CREATE = "EC2 API, CreateLaunchTemplate"
DATA = "EC2 API, RequestLaunchTemplateData"
MAX_USER_DATA = 16384  # bytes before the encoding; same source
GUIDE = "EC2 User Guide, Elastic Fabric Adapter"


def gpus(instance_types: Iterable[str]) -> int:
    """Return the number of GPUs of the first instance type; 0 for an unknown type."""
    first = next(iter(instance_types), "")
    return INSTANCE_TYPES[first].gpus if first in INSTANCE_TYPES else 0


def instance_type_error(name: object) -> str | None:
    """Return the reason why a name is not an instance type; None for a type that the twin has."""
    if not isinstance(name, str) or name in INSTANCE_TYPES:
        return None
    is_retired = family(name) in RETIRED_GPU_FAMILIES
    reason = "AWS has retired it" if is_retired else "the twin has no such type"
    others = sorted(
        instance_type for instance_type in INSTANCE_TYPES if family(instance_type) == family(name)
    )
    alternatives = f"; of {family(name)} it has {', '.join(others)}" if others else ""
    return f"{name!r}: {reason}{alternatives}"


def efa_interfaces(inputs: Inputs) -> int:
    """Return the number of EFA interfaces of a launch template."""
    interfaces = objects_at("networkInterfaces", inputs)
    return sum(interface.get("interfaceType") in EFA for _, interface in interfaces)


def decoded_user_data(text: object) -> bytes | None:
    """Return user data; None if the text is not base64."""
    try:
        return base64.b64decode("".join(str(text).split()), validate=True)
    except ValueError:
        return None


def _user_data_error(text: object) -> str | None:
    """Return the reason why EC2 refuses user data, without its text, which may be secret; None if it is valid."""
    if not isinstance(text, str):
        return None
    content = decoded_user_data(text)
    if content is None:
        return "is not valid base64: encode the text"
    if len(content) > MAX_USER_DATA:
        return f"{len(content)} bytes, at most {MAX_USER_DATA} are allowed before the encoding"
    return None


def _groups_once(inputs: Inputs) -> Iterable[CheckFailure]:
    if objects_at("networkInterfaces", inputs) and inputs.get("vpcSecurityGroupIds"):
        reason = "with networkInterfaces, set the security groups of each interface instead"
        yield failure_at("vpcSecurityGroupIds", reason)


def _key_without_encryption(inputs: Inputs) -> Iterable[CheckFailure]:
    for path, device in objects_at("blockDeviceMappings", inputs):
        disk = section(device, "ebs")
        if disk.get("kmsKeyId") is not None and disk.get("encrypted") != "true":
            yield failure_at(f"{path}.ebs.kmsKeyId", "requires encrypted to be true")


def _efa_positions(inputs: Inputs) -> Iterable[CheckFailure]:
    for path, interface in objects_at("networkInterfaces", inputs):
        card, device = interface.get("networkCardIndex") or 0, interface.get("deviceIndex") or 0
        if not (isinstance(card, int) and isinstance(device, int)):
            continue
        if card == 0 and device == 0 and interface.get("interfaceType") == "efa-only":
            reason = "card 0 device 0 carries IP traffic: use efa or interface, not efa-only"
            yield failure_at(f"{path}.interfaceType", reason)
        if card > 0 and device == 0:
            yield failure_at(
                f"{path}.deviceIndex", f"only card 0 has device 0; card {card} has device 1"
            )


def _efa_count(inputs: Inputs) -> Iterable[CheckFailure]:
    name, count = inputs.get("instanceType"), efa_interfaces(inputs)
    kind = INSTANCE_TYPES.get(str(name)) if is_known(name) else None
    if kind and count > kind.efa_interfaces:
        reason = f"{count} EFA interfaces: {name} has at most {kind.efa_interfaces}"
        yield failure_at("networkInterfaces", reason)


def _placement(request: ResourceRequest) -> Iterable[str]:
    name = section(request.inputs, "placement").get("groupName")
    if name and request.account.find((PLACEMENT,), name) is None:
        yield f"The Placement Group {name!r} is unknown."


def _describe_template(request: ResourceRequest) -> dict[str, Any]:
    previous = request.previous
    has_changed = previous is not None and _content(previous.inputs) != _content(request.inputs)
    latest_version = int(previous.outputs["latestVersion"]) + has_changed if previous else 1
    default_version = request.inputs.get("defaultVersion")
    if default_version is None:
        keeps_default = previous and not request.inputs.get("updateDefaultVersion")
        default_version = (
            previous.outputs["defaultVersion"] if previous and keeps_default else latest_version
        )
    ec2_outputs = ec2("launch-template")(request)
    return {
        "arn": ec2_outputs["arn"],
        "latestVersion": latest_version,
        "defaultVersion": default_version,
    }


def _revised_template(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """Return the versions of a template that another content changes (pulumi-aws, LaunchTemplate)."""
    if _content(old) == _content(new):
        return ()
    return (
        ("latestVersion", "defaultVersion")
        if new.get("updateDefaultVersion")
        else ("latestVersion",)
    )


def _content(inputs: Inputs) -> dict[str, Any]:
    excluded_keys = ("tags", "updateDefaultVersion", "defaultVersion")
    return {key: value for key, value in inputs.items() if key not in excluded_keys}


BOOLEAN = matches(
    "true|false", "is invalid: the provider accepts only the strings true and false here"
)
BOOLEANS = (
    "ebsOptimized",
    "blockDeviceMappings.*.ebs.encrypted",
    "blockDeviceMappings.*.ebs.deleteOnTermination",
    "networkInterfaces.*.deleteOnTermination",
    "networkInterfaces.*.associatePublicIpAddress",
)
TYPES = (
    ResourceType(
        token=TEMPLATE,
        identify=id_with_prefix("lt"),
        describe=_describe_template,
        revised_outputs=_revised_template,
        naming=Naming(max_length=128),
        immutable=("namePrefix", "region"),
        enums={"networkInterfaces.*.interfaceType": ("efa", "efa-only", "interface")},
        rules=(
            value_rule(
                "name of a launch template", "name",
                matches(
                    r"[a-zA-Z0-9().\-/_]{3,128}",
                    "is invalid: 3 to 128 letters, digits and ( ) . - / _",
                ),
                CREATE,
            ),
            value_rule(
                "hop limit of the metadata service", "metadataOptions.httpPutResponseHopLimit",
                in_range(1, 64, "hops"), "EC2 API, InstanceMetadataOptions",
            ),
            value_rule(
                "instance type of a launch template", "instanceType", instance_type_error,
                "EC2 User Guide, instance types",
            ),
            *(value_rule(f"boolean string in {path}", path, BOOLEAN, "pulumi-aws, LaunchTemplate")
              for path in BOOLEANS),
            value_rule("user data of a launch template", "userData", _user_data_error, DATA),
            InputRule("security groups set once", DATA, _groups_once),
            InputRule("key of a disk", "EC2 API, LaunchTemplateEbsBlockDeviceRequest", _key_without_encryption),
            InputRule("positions of EFA interfaces", GUIDE, _efa_positions),
            InputRule("number of EFA interfaces", GUIDE, _efa_count),
        ),
        references=(
            in_groups("vpcSecurityGroupIds.*"),
            in_groups("networkInterfaces.*.securityGroups.*"),
            in_subnets("networkInterfaces.*.subnetId"),
            to_key("blockDeviceMappings.*.ebs.kmsKeyId", "InvalidParameterValue"),
        ),
        preconditions=(
            Precondition(
                "placement group exists", "EC2 API", "InvalidPlacementGroup.Unknown", _placement
            ),
        ),
        unique=("name", "region"),
        unique_code="InvalidLaunchTemplateName.AlreadyExistsException",
    ),
    ResourceType(
        token=PLACEMENT,
        identify=id_from("name"),
        describe=lambda request: {
            "arn": ec2("placement-group")(request)["arn"],
            "placementGroupId": f"pg-0{request.digits('id', 16)}",
        },
        naming=Naming(max_length=255),
        immutable=("strategy", "partitionCount", "spreadLevel", "region"),
        unique_code="InvalidPlacementGroup.Duplicate",
    ),
    ResourceType(
        token="aws:autoscaling/tag:Tag",  # noqa: S106  the name of a type
        identify=lambda request: (
            f"{request.inputs['autoscalingGroupName']},{request.inputs['tag']['key']}"
        ),
        immutable=("autoscalingGroupName", "tag.key", "region"),
    ),
)  # fmt: skip
