"""Security groups of Amazon VPC and their rules. Pure.

Sources: EC2 API Reference (CreateSecurityGroup, IpPermission). Read 2026-11.
"""

from collections.abc import Iterable, Iterator

from cloudtwin.providers.aws.common import DEPENDENCY, arn, ec2, id_with_prefix
from cloudtwin.providers.aws.network import (
    EGRESS,
    GROUP,
    GROUP_RULE,
    INGRESS,
    exactly_one,
    in_groups,
    in_vpc,
)
from cloudtwin.providers.conditions import cidr, failure_at, matches, objects_at, value_rule
from cloudtwin.providers.model import (
    InputRule,
    Inputs,
    Naming,
    Precondition,
    Reference,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.protocol.values import PropertyValue
from cloudtwin.providers.schema.check import CheckFailure

LAST_PORT = 65535
ICMP = ("icmp", "icmpv6", "1", "58")
PROTOCOLS = ("-1", "all", "tcp", "udp", "icmp", "icmpv6", *map(str, range(256)))
SOURCES = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")
SOURCE_BLOCKS = ("cidrBlocks", "ipv6CidrBlocks")
DIRECTIONS = ("ingress", "egress")
PERMISSION, CREATE_GROUP = "EC2 API, IpPermission", "EC2 API, CreateSecurityGroup"
GROUP_TEXT = matches(
    r"[a-zA-Z0-9. _\-:/()#,@[\]+=&;{}!$*]+",
    "is empty or has characters other than a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*",
)


def in_groups_of_rules(direction: str) -> Reference:
    """Return a reference to the security groups of inline rules; ids of other accounts' groups begin with a number."""
    path = f"{direction}.*.securityGroups.*"
    return Reference(
        path, (GROUP,), "InvalidGroup.NotFound", DEPENDENCY, external=tuple("0123456789")
    )


# -- input rules


def _ports(inputs: Inputs) -> Iterable[CheckFailure]:
    for reason in _port_errors(inputs):
        yield failure_at("fromPort", reason)


def _inline_ports(inputs: Inputs) -> Iterable[CheckFailure]:
    for direction in DIRECTIONS:
        for path, permission in objects_at(direction, inputs):
            for reason in _port_errors(permission):
                yield failure_at(f"{path}.fromPort", reason)


def _port_errors(permission: Inputs) -> Iterator[str]:
    protocol = str(permission.get("ipProtocol", permission.get("protocol"))).lower()
    low, high = permission.get("fromPort"), permission.get("toPort")
    if protocol in ("-1", "all"):
        if any(isinstance(port, int) and port not in (0, -1) for port in (low, high)):
            yield "the protocol -1 means every port: leave the ports out"
    elif protocol in ("tcp", "udp") and (low is None or high is None):
        yield f"the protocol {protocol} needs fromPort and toPort"
    elif protocol in ICMP:
        return  # a type and a code, -1 for all
    elif isinstance(low, int) and isinstance(high, int) and not 0 <= low <= high <= LAST_PORT:
        yield f"{low}-{high} is not a valid range of ports"


def _protocol(value: PropertyValue) -> str | None:
    if not isinstance(value, str) or value.lower() in PROTOCOLS:
        return None
    return f"Invalid value {value!r} for IP protocol. Unknown protocol."


def _sources(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for missing or conflicting sources, as the schema of `aws_security_group_rule` does."""
    blocks = [name for name in SOURCE_BLOCKS if inputs.get(name)]
    group, itself = inputs.get("sourceSecurityGroupId") is not None, bool(inputs.get("self"))
    if not (blocks or group or itself or inputs.get("prefixListIds")):
        yield failure_at(
            "cidrBlocks", "a rule needs a source: blocks, a prefix list, a security group, or self"
        )
    if (bool(blocks), group, itself).count(True) > 1:
        yield failure_at("self", "blocks, sourceSecurityGroupId and self exclude each other")


# -- preconditions


def _groups_in_vpc(request: ResourceRequest) -> Iterable[str]:
    group = request.find(GROUP, "securityGroupId")
    for name in ("referencedSecurityGroupId", "sourceSecurityGroupId"):
        other = request.find(GROUP, name)
        if group and other and group.inputs.get("vpcId") != other.inputs.get("vpcId"):
            yield f"You have specified two resources that belong to different networks: {group.id}, {other.id}"


# -- types


def _group_rule(token: str) -> ResourceType:
    return ResourceType(
        token=token,
        identify=id_with_prefix("sgr"),
        describe=lambda request: {
            "arn": arn("ec2", f"security-group-rule/{request.id}", request.region),
            "securityGroupRuleId": request.id,
        },
        immutable=("securityGroupId",),
        rules=(
            PORTS,
            InputRule("one source of a rule", PERMISSION, exactly_one(SOURCES, "source")),
            value_rule("IPv4 source of a rule", "cidrIpv4", cidr(version=4), PERMISSION),
            value_rule("IPv6 source of a rule", "cidrIpv6", cidr(version=6), PERMISSION),
            value_rule("protocol of a rule", "ipProtocol", _protocol, PERMISSION),
        ),
        references=(
            in_groups("securityGroupId", ""),
            in_groups("referencedSecurityGroupId"),
        ),
        preconditions=(GROUPS_IN_VPC,),
        unique=("securityGroupId", "ipProtocol", "fromPort", "toPort", *SOURCES),
        unique_code="InvalidPermission.Duplicate",
    )


GROUPS_IN_VPC = Precondition(
    "groups of a rule in one VPC", PERMISSION, "InvalidGroup.NotFound", _groups_in_vpc
)
PORTS = InputRule("ports of a rule", PERMISSION, _ports)
TYPES = (
    ResourceType(
        token=GROUP,
        identify=id_with_prefix("sg"),
        describe=ec2("security-group"),
        defaults={"description": "Managed by Pulumi"},
        naming=Naming(max_length=255),
        immutable=("vpcId", "description", "namePrefix", "region"),
        rules=(
            value_rule(
                "name of a security group", "name",
                matches(r"(?!sg-).*", "begins with sg-, which is for ids"),
                CREATE_GROUP,
            ),
            value_rule("characters of a group's name", "name", GROUP_TEXT, CREATE_GROUP),
            value_rule("description of a security group", "description", GROUP_TEXT, CREATE_GROUP),
            InputRule("inline ports", PERMISSION, _inline_ports),
            *(value_rule(f"inline protocol of {direction}", f"{direction}.*.protocol", _protocol, PERMISSION)
              for direction in DIRECTIONS),
        ),
        references=(in_vpc(), *map(in_groups_of_rules, DIRECTIONS)),
        unique=("vpcId", "name"),
        unique_code="InvalidGroup.Duplicate",
    ),
    _group_rule(INGRESS),
    _group_rule(EGRESS),
    ResourceType(
        token=GROUP_RULE,
        identify=id_with_prefix("sgrule"),
        describe=lambda request: {"securityGroupRuleId": f"sgr-0{request.digits('rule', 16)}"},
        immutable=("securityGroupId", "type", "protocol", "fromPort", "toPort", "cidrBlocks",
                   "sourceSecurityGroupId", "self", "region"),
        enums={"type": ("ingress", "egress")},
        rules=(
            PORTS,
            InputRule("sources of a rule", "Terraform AWS provider, aws_security_group_rule", _sources),
            value_rule("protocol of a group's rule", "protocol", _protocol, PERMISSION),
        ),
        references=(in_groups("securityGroupId", ""), in_groups("sourceSecurityGroupId")),
        preconditions=(GROUPS_IN_VPC,),
    ),
)  # fmt: skip
