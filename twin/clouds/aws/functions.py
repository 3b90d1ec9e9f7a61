"""The functions of the AWS provider that programs call. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from twin.clouds.aws.common import ACCOUNT, CALLER, zones
from twin.clouds.catalog import Function
from twin.clouds.errors import CloudError
from twin.clouds.model import Inputs, Settings
from twin.clouds.world import World
from twin.pulumi.provider.convert import Object


def _region(arguments: Inputs, settings: Settings) -> str:
    return str(arguments.get("region") or arguments.get("name") or settings.region)


def caller_identity(_arguments: Inputs, _settings: Settings, _world: World) -> Object:
    """Say whose account this is."""
    return {"accountId": ACCOUNT, "arn": CALLER, "userId": "AIDAEVERSTEPTWIN", "id": ACCOUNT}


def partition(_arguments: Inputs, settings: Settings, _world: World) -> Object:
    """Name the partition of all regions that the twin knows."""
    return {
        "partition": "aws",
        "dnsSuffix": "amazonaws.com",
        "reverseDnsPrefix": "com.amazonaws",
        "id": "aws",
        "region": settings.region,
    }


def region(arguments: Inputs, settings: Settings, _world: World) -> Object:
    """Describe a region."""
    name = _region(arguments, settings)
    endpoint = f"ec2.{name}.amazonaws.com"
    return {"name": name, "region": name, "id": name, "endpoint": endpoint, "description": name}


def availability_zones(arguments: Inputs, settings: Settings, _world: World) -> Object:
    """List a region's zones."""
    name = str(arguments.get("region") or settings.region)
    names = zones(name)
    return {
        "id": name,
        "region": name,
        "names": names,
        "zoneIds": [f"{name.replace('-', '')}-az{at + 1}" for at, _ in enumerate(names)],
        "groupNames": [name],
        "state": "available",
    }


def policy_document(arguments: Inputs, _settings: Settings, _world: World) -> Object:
    """Write an IAM policy document from its statements, as the official provider does."""
    statements = [_statement(each) for each in arguments.get("statements") or ()]
    document = {"Version": arguments.get("version") or "2012-10-17", "Statement": statements}
    text = json.dumps(document, indent=2)
    return {"id": "document", "json": text, "minifiedJson": json.dumps(document)}


def _statement(given: Mapping[str, Any]) -> Object:
    written: Object = {"Effect": given.get("effect") or "Allow"}
    if given.get("sid"):
        written["Sid"] = given["sid"]
    for name, key in (("actions", "Action"), ("notActions", "NotAction"),
                      ("resources", "Resource"), ("notResources", "NotResource")):  # fmt: skip
        if given.get(name):
            written[key] = _one_or_many(given[name])
    for name, key in (("principals", "Principal"), ("notPrincipals", "NotPrincipal")):
        if given.get(name):
            written[key] = _principals(given[name])
    if given.get("conditions"):
        conditions: dict[str, dict[str, Any]] = {}
        for each in given["conditions"]:
            values = _one_or_many(each["values"])
            conditions.setdefault(each["test"], {})[each["variable"]] = values
        written["Condition"] = conditions
    return written


def _principals(given: list[Mapping[str, Any]]) -> Any:  # noqa: ANN401  text or an object
    if [each["type"] for each in given] == ["*"]:
        return "*"
    return {each["type"]: _one_or_many(each["identifiers"]) for each in given}


def _one_or_many(values: list[Any]) -> Any:  # noqa: ANN401  IAM writes a single value without a list
    return values[0] if len(values) == 1 else list(values)


def _by(token: str, argument: str, output: str = "id", extra: str = "") -> Function:
    """Return a function that looks one resource up."""

    def look_up(arguments: Inputs, _settings: Settings, world: World) -> Object:
        wanted = str(arguments.get(argument) or "")
        found = world.find((token,), wanted, output)
        if found is None:
            raise CloudError("NotFound", f"no {token.rpartition(':')[2]} {wanted!r} in the account")
        return {**found.outputs, "id": found.id, **({extra: wanted} if extra else {})}

    return look_up


def cluster_auth(arguments: Inputs, _settings: Settings, _world: World) -> Object:
    """Refuse to hand out a token: a kubeconfig with an exec plugin fetches one when it is needed."""
    raise CloudError(
        "AccessDenied",
        f"the twin gives no token for {arguments.get('name')!r}: use `aws eks get-token` in the "
        "kubeconfig, so that no credential ends in the state",
    )


FUNCTIONS: Mapping[str, Function] = {
    "aws:index/getCallerIdentity:getCallerIdentity": caller_identity,
    "aws:index/getPartition:getPartition": partition,
    "aws:index/getRegion:getRegion": region,
    "aws:index/getAvailabilityZones:getAvailabilityZones": availability_zones,
    "aws:iam/getPolicyDocument:getPolicyDocument": policy_document,
    "aws:ec2/getVpc:getVpc": _by("aws:ec2/vpc:Vpc", "id"),
    "aws:ec2/getSubnet:getSubnet": _by("aws:ec2/subnet:Subnet", "id"),
    "aws:ec2/getSecurityGroup:getSecurityGroup": _by("aws:ec2/securityGroup:SecurityGroup", "id"),
    "aws:eks/getCluster:getCluster": _by("aws:eks/cluster:Cluster", "name"),
    "aws:eks/getClusterAuth:getClusterAuth": cluster_auth,
    "aws:iam/getRole:getRole": _by("aws:iam/role:Role", "name"),
    "aws:kms/getKey:getKey": _by("aws:kms/key:Key", "keyId", "keyId"),
    "aws:s3/getBucket:getBucket": _by("aws:s3/bucket:Bucket", "bucket"),
    "aws:ecr/getRepository:getRepository": _by("aws:ecr/repository:Repository", "name", "name"),
}
