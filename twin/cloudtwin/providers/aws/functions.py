"""Functions of the AWS provider. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers.aws.addon_versions import resolve_version
from cloudtwin.providers.aws.common import CALLER, zones
from cloudtwin.providers.errors import CloudError
from cloudtwin.providers.inventory import Inventory
from cloudtwin.providers.model import Function, Inputs, ProviderConfig
from cloudtwin.providers.protocol.values import Object

ELEMENTS = (("actions", "Action"), ("notActions", "NotAction"), ("resources", "Resource"),
            ("notResources", "NotResource"))  # fmt: skip


def caller_identity(_arguments: Inputs, _config: ProviderConfig, _account: Inventory) -> Object:
    """Return the account and the user."""
    return {"accountId": AWS_ACCOUNT, "arn": CALLER, "userId": "AIDACLOUDTWIN", "id": AWS_ACCOUNT}


def partition(_arguments: Inputs, config: ProviderConfig, _account: Inventory) -> Object:
    """Return the partition of all regions that the twin has."""
    return {
        "partition": "aws",
        "dnsSuffix": "amazonaws.com",
        "reverseDnsPrefix": "com.amazonaws",
        "id": "aws",
        "region": config.region,
    }


def region(arguments: Inputs, config: ProviderConfig, _account: Inventory) -> Object:
    """Return the properties of a region."""
    name = str(arguments.get("region") or arguments.get("name") or config.region)
    endpoint = f"ec2.{name}.amazonaws.com"
    return {"name": name, "region": name, "id": name, "endpoint": endpoint, "description": name}


def availability_zones(arguments: Inputs, config: ProviderConfig, _account: Inventory) -> Object:
    """Return the zones of a region."""
    name = str(arguments.get("region") or config.region)
    names = zones(name)
    return {
        "id": name,
        "region": name,
        "names": names,
        "zoneIds": [f"{name.replace('-', '')}-az{index + 1}" for index, _ in enumerate(names)],
        "groupNames": [name],
        "state": "available",
    }


def policy_document(arguments: Inputs, _config: ProviderConfig, _account: Inventory) -> Object:
    """Return an IAM policy document of statements, as the official provider writes it."""
    statements = [_statement(statement) for statement in arguments.get("statements") or ()]
    document = {"Version": arguments.get("version") or "2012-10-17", "Statement": statements}
    text = json.dumps(document, indent=2)
    return {"id": "document", "json": text, "minifiedJson": json.dumps(document)}


def _statement(block: Mapping[str, Any]) -> Object:
    statement: Object = {"Effect": block.get("effect") or "Allow"}
    if block.get("sid"):
        statement["Sid"] = block["sid"]
    for name, key in ELEMENTS:
        if block.get(name):
            statement[key] = _one_or_many(block[name])
    for name, key in (("principals", "Principal"), ("notPrincipals", "NotPrincipal")):
        if block.get(name):
            statement[key] = _principals(block[name])
    conditions: dict[str, dict[str, Any]] = {}
    for condition in block.get("conditions") or ():
        conditions.setdefault(condition["test"], {})[condition["variable"]] = _one_or_many(
            condition["values"]
        )
    return {**statement, "Condition": conditions} if conditions else statement


def _principals(blocks: list[Mapping[str, Any]]) -> Any:  # noqa: ANN401  text or an object
    if [principal["type"] for principal in blocks] == ["*"]:
        return "*"
    return {principal["type"]: _one_or_many(principal["identifiers"]) for principal in blocks}


def _one_or_many(values: list[Any]) -> Any:  # noqa: ANN401  IAM writes a single value without a list
    return values[0] if len(values) == 1 else list(values)


def _lookup(token: str, argument: str, output: str = "id") -> Function:
    """Return a function that looks up a resource."""

    def look_up(arguments: Inputs, _config: ProviderConfig, account: Inventory) -> Object:
        identity = str(arguments.get(argument) or "")
        resource = account.find((token,), identity, output)
        if resource is None:
            raise CloudError(
                "NotFound", f"no {token.rpartition(':')[2]} {identity!r} in the account"
            )
        return {**resource.outputs, "id": resource.id}

    return look_up


def cluster_auth(arguments: Inputs, _config: ProviderConfig, _account: Inventory) -> Object:
    """Refuse to issue a token: a kubeconfig with an exec plugin fetches one when required.

    Raises:
        CloudError: always.
    """
    raise CloudError(
        "AccessDenied",
        f"the twin issues no token for {arguments.get('name')!r}: use `aws eks get-token` in the "
        "kubeconfig, so that no credential is stored in the state",
    )


def addon_version(arguments: Inputs, config: ProviderConfig, _account: Inventory) -> Object:
    """Return the version of an EKS add-on: the default or the most recent version."""
    name, kubernetes = str(arguments["addonName"]), str(arguments["kubernetesVersion"])
    most_recent = bool(arguments.get("mostRecent"))
    version = resolve_version(name, kubernetes, most_recent=most_recent)
    return {
        **{key: value for key, value in arguments.items() if value is not None},
        "id": name,
        "region": str(arguments.get("region") or config.region),
        "version": version,
    }


FUNCTIONS: Mapping[str, Function] = {
    "aws:index/getCallerIdentity:getCallerIdentity": caller_identity,
    "aws:index/getPartition:getPartition": partition,
    "aws:index/getRegion:getRegion": region,
    "aws:index/getAvailabilityZones:getAvailabilityZones": availability_zones,
    "aws:iam/getPolicyDocument:getPolicyDocument": policy_document,
    "aws:ec2/getVpc:getVpc": _lookup("aws:ec2/vpc:Vpc", "id"),
    "aws:ec2/getSubnet:getSubnet": _lookup("aws:ec2/subnet:Subnet", "id"),
    "aws:ec2/getSecurityGroup:getSecurityGroup": _lookup(
        "aws:ec2/securityGroup:SecurityGroup", "id"
    ),
    "aws:eks/getAddonVersion:getAddonVersion": addon_version,
    "aws:eks/getCluster:getCluster": _lookup("aws:eks/cluster:Cluster", "name"),
    "aws:eks/getClusterAuth:getClusterAuth": cluster_auth,
    "aws:iam/getRole:getRole": _lookup("aws:iam/role:Role", "name"),
    "aws:kms/getKey:getKey": _lookup("aws:kms/key:Key", "keyId", "keyId"),
    "aws:s3/getBucket:getBucket": _lookup("aws:s3/bucket:Bucket", "bucket"),
    "aws:ecr/getRepository:getRepository": _lookup("aws:ecr/repository:Repository", "name", "name"),
}
