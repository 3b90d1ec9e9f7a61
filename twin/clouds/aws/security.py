"""Security groups of Amazon VPC and their rules. Pure.

Source: EC2 API Reference (CreateSecurityGroup, IpPermission). Read 2026-11.
"""

from collections.abc import Iterable

from twin.clouds.aws.common import DEPENDENCY, arn, ec2, prefixed
from twin.clouds.aws.network import EGRESS, GROUP, INGRESS, OLD_RULE, in_vpc
from twin.clouds.model import (
    Inputs,
    Naming,
    Reference,
    ResourceType,
    Rule,
)
from twin.clouds.rules import at
from twin.clouds.wire.check import Mistake

LAST_PORT = 65535


def _one_source(inputs: Inputs) -> Iterable[Mistake]:
    names = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")
    given = [name for name in names if inputs.get(name) is not None]
    if len(given) != 1:
        yield at(names[0], f"exactly one of {', '.join(names)} must be set, not {len(given)}")


def _ports(inputs: Inputs) -> Iterable[Mistake]:
    protocol = inputs.get("ipProtocol", inputs.get("protocol"))
    low, high = inputs.get("fromPort"), inputs.get("toPort")
    if protocol in ("-1", "all"):
        if any(isinstance(port, int) and port not in (0, -1) for port in (low, high)):
            yield at("fromPort", "the protocol -1 means every port: leave the ports out")
    elif protocol in ("tcp", "udp") and (low is None or high is None):
        yield at("fromPort", f"the protocol {protocol} needs fromPort and toPort")
    elif isinstance(low, int) and isinstance(high, int) and not 0 <= low <= high <= LAST_PORT:
        yield at("fromPort", f"{low}-{high} is no range of ports")


def _group_name(inputs: Inputs) -> Iterable[Mistake]:
    name = inputs.get("name")
    if isinstance(name, str) and name.startswith("sg-"):
        yield at("name", f"{name!r} begins with sg-, as ids do")


PORTS = Rule(name="ports of a rule", source="EC2 API, IpPermission", broken=_ports)


ONE_SOURCE = Rule(name="one source of a rule", source="EC2 API, IpPermission", broken=_one_source)


SOURCES = (
    Reference(path="securityGroupId", to=(GROUP,), code="InvalidGroup.NotFound"),
    Reference(
        path="referencedSecurityGroupId",
        to=(GROUP,),
        code="InvalidGroup.NotFound",
        holds=DEPENDENCY,
    ),
)


def _rule_type(token: str) -> ResourceType:
    unique = ("securityGroupId", "ipProtocol", "fromPort", "toPort", "cidrIpv4", "cidrIpv6",
              "prefixListId", "referencedSecurityGroupId")  # fmt: skip
    return ResourceType(
        token=token,
        identify=prefixed("sgr"),
        describe=lambda making: {
            "arn": arn("ec2", f"security-group-rule/{making.id}", making.region),
            "securityGroupRuleId": making.id,
        },
        immutable=("securityGroupId",),
        rules=(PORTS, ONE_SOURCE),
        references=SOURCES,
        unique=unique,
        unique_code="InvalidPermission.Duplicate",
    )


TYPES = (
    ResourceType(
        token=GROUP,
        identify=prefixed("sg"),
        describe=ec2("security-group"),
        defaults={"description": "Managed by Pulumi"},
        naming=Naming(longest=255),
        immutable=("vpcId", "description", "namePrefix", "region"),
        rules=(
            Rule(
                name="name of a security group",
                source="EC2 API, CreateSecurityGroup",
                broken=_group_name,
            ),
        ),
        references=(in_vpc(),),
        unique=("vpcId", "name"),
        unique_code="InvalidGroup.Duplicate",
    ),
    _rule_type(INGRESS),
    _rule_type(EGRESS),
    ResourceType(
        token=OLD_RULE,
        identify=prefixed("sgrule"),
        describe=lambda making: {"securityGroupRuleId": f"sgr-0{making.digits('rule', 16)}"},
        immutable=(
            "securityGroupId",
            "type",
            "protocol",
            "fromPort",
            "toPort",
            "cidrBlocks",
            "sourceSecurityGroupId",
            "self",
            "region",
        ),
        enums={"type": ("ingress", "egress")},
        rules=(PORTS,),
        references=(
            Reference(path="securityGroupId", to=(GROUP,), code="InvalidGroup.NotFound"),
            Reference(
                path="sourceSecurityGroupId",
                to=(GROUP,),
                code="InvalidGroup.NotFound",
                holds=DEPENDENCY,
            ),
        ),
    ),
)
