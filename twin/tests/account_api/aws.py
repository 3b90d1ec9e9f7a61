"""An HTTP endpoint that serves requests of the AWS SDKs about the twin's account.

A client uses it through AWS_ENDPOINT_URL. The service is read from the signature, which is not verified.
Responses have the form of the service's protocol: JSON, or XML for EC2, IAM and STS.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from cloudfacts.aws import INSTANCE_TYPES, zones
from cloudfacts.quotas import ELASTIC_IPS, LUSTRE_STORAGE, VPCS
from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.capacity.quotas import QuotaStore
from cloudtwin.providers.account import Account
from cloudtwin.providers.aws.addon_versions import available_versions
from cloudtwin.providers.aws.common import CALLER
from cloudtwin.providers.aws.eks_rules import CLUSTER
from cloudtwin.providers.aws.fsx import FILE_SYSTEM
from cloudtwin.providers.aws.monitoring import LOGS
from cloudtwin.providers.aws.network import EIP, VPC
from cloudtwin.providers.aws.policies import ROLE
from cloudtwin.providers.inventory import Inventory

AwsResponse: TypeAlias = Mapping[str, Any]
JSON_SERVICES = frozenset({"eks", "logs", "servicequotas", "ecr", "kms", "fsx"})
ALL_RESOURCES = "*"
SESSION_KEY = "ASIACLOUDTWIN"  # id of the access key of an assumed role
POLL_SECONDS = 0.01  # interval at which the server checks for its shutdown
DEFAULT_QUOTA = 0.0  # in a new account, for quotas that DEFAULT_QUOTAS lacks, such as for GPUs
DEFAULT_QUOTAS: Mapping[str, float] = {
    "L-1216C47A": 64,
    "L-34B43A08": 64,
    ELASTIC_IPS.code: 5,
    VPCS.code: 5,
    **{quota.code: 100800 for quota in LUSTRE_STORAGE.values()},
}
"""Code of a quota -> its value in a new account."""


@dataclass(frozen=True)
class AwsError(Exception):
    """A refusal, with the error code and status of the service."""

    code: str
    message: str
    status: HTTPStatus = HTTPStatus.BAD_REQUEST


@dataclass(frozen=True)
class AccountFacts:
    """Properties of the account that no resource of the twin has.

    Attributes:
        caller: ARN of the identity that sends requests.
        role: ARN of the role that the identity may assume; empty: none.
        account: ID of the account that the identity belongs to, twelve digits.
        expired: True if its credentials are no longer valid.
        denied: actions that its policies deny; all requests for them are refused.
        scoped: actions that its policies allow on some resources only.
        key: metadata of the account's existing KMS key, if it has one.
        service_roles: names of the service-linked roles that the account has.
        role_boundary: permissions boundary that its policies require of a new role; empty: none.
        role_path: path that its policies require of a new role.
        region: region to which its policies limit requests, except requests to IAM; empty: all regions.
        not_offered: pairs of instance type and zone without an offering.
        unavailable_zones: zones that the account cannot use.
        zone_ids: ids of zones that differ from the usual order.
        images: images of the registry, as `repository:tag` or `repository@digest`.
        spot_prices: USD per hour by instance type and zone.
    """

    caller: str = CALLER
    role: str = ""
    account: str = AWS_ACCOUNT
    expired: bool = False
    denied: frozenset[str] = frozenset()
    scoped: frozenset[str] = frozenset()
    key: Mapping[str, str] = field(default_factory=dict)
    service_roles: frozenset[str] = frozenset({"AWSServiceRoleForAutoScaling"})
    role_boundary: str = ""
    role_path: str = "/"
    region: str = ""
    not_offered: frozenset[tuple[str, str]] = frozenset()
    unavailable_zones: frozenset[str] = frozenset()
    zone_ids: Mapping[str, str] = field(default_factory=dict)
    images: frozenset[str] = frozenset()
    spot_prices: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True)
class AwsRequest:
    """A request of a client.

    Attributes:
        service: name in the signature, such as `ec2`.
        operation: name of the operation, such as `DescribeAvailabilityZones`.
        region: AWS region.
        arguments: arguments as the protocol sends them: text, or JSON values.
        access_key: id of the access key in the signature; empty for services that use JSON.
    """

    service: str
    operation: str
    region: str
    arguments: Mapping[str, Any]
    access_key: str = ""

    def list_members(self, name: str) -> list[str]:
        """Return the members of a list in a query: `name.member.1` or `name.1`."""
        member_values = {
            key: value
            for key, value in self.arguments.items()
            if key.startswith(f"{name}.") and key.rpartition(".")[2].isdigit()
        }
        return [str(value) for _, value in sorted(member_values.items(), key=_number)]

    def filter_values(self, name: str) -> list[str]:
        """Return the values of a filter of EC2; empty if it is absent."""
        for key, value in self.arguments.items():
            if key.startswith("Filter.") and key.endswith(".Name") and value == name:
                return self.list_members(key.removesuffix("Name") + "Value")
        return []


def _number(item: tuple[str, object]) -> int:
    return int(item[0].rpartition(".")[2])


@dataclass(frozen=True)
class AwsApi:
    """The endpoint of one twin's account.

    Attributes:
        state: folder of the twin.
        facts: properties of the account.
    """

    state: Path
    facts: AccountFacts = field(default_factory=AccountFacts)

    @property
    def inventory(self) -> Inventory:
        """The resources of the account."""
        return Account(self.state, "aws").read()

    def respond(self, request: AwsRequest) -> AwsResponse:
        """Return the response to a request.

        Raises:
            AwsError: the service refuses it.
        """
        if self.facts.expired:
            raise AwsError("ExpiredToken", "The security token included in the request is expired")
        action = f"{request.service}:{request.operation}"
        if action in self.facts.denied:
            reason = f"User: {self.facts.caller} is not authorized to perform: {action}"
            raise AwsError("AccessDenied", reason, HTTPStatus.FORBIDDEN)
        operation = OPERATIONS.get(action)
        if operation is None:
            raise AwsError("InvalidAction", f"the twin has no {action}")
        return operation(self, request)

    # -- operations

    def caller(self, request: AwsRequest) -> AwsResponse:
        """Return the identity of the caller: with the credentials of a role, its session."""
        is_session = request.access_key == SESSION_KEY
        arn = _session_arn(self.facts.role) if is_session else self.facts.caller
        return {"Account": self.facts.account, "Arn": arn, "UserId": "AIDACLOUDTWIN"}

    def assume_role(self, request: AwsRequest) -> AwsResponse:
        """Return credentials of the role that the caller may assume."""
        role = str(request.arguments["RoleArn"])
        if role != self.facts.role:
            reason = f"User: {self.facts.caller} is not authorized to perform: sts:AssumeRole on resource: {role}"
            raise AwsError("AccessDenied", reason, HTTPStatus.FORBIDDEN)
        return {
            "Credentials": {
                "AccessKeyId": SESSION_KEY,
                "SecretAccessKey": "none",
                "SessionToken": "none",
                "Expiration": "2099-01-01T00:00:00Z",
            },
            "AssumedRoleUser": {"Arn": _session_arn(role), "AssumedRoleId": "AROACLOUDTWIN:twin"},
        }

    def availability_zones(self, request: AwsRequest) -> AwsResponse:
        """Return the zones of the region with their ids."""
        prefix = _zone_id_prefix(request.region)
        return {
            "availabilityZoneInfo": [
                {
                    "zoneName": zone,
                    "zoneId": self.facts.zone_ids.get(zone, f"{prefix}-az{ord(zone[-1]) - 96}"),
                    "zoneState": "available",
                    "regionName": request.region,
                }
                for zone in zones(request.region)
                if zone not in self.facts.unavailable_zones
            ]
        }

    def offerings(self, request: AwsRequest) -> AwsResponse:
        """Return the zones that offer the instance types of the filter."""
        names = [name for name in request.filter_values("instance-type") if name in INSTANCE_TYPES]
        return {
            "instanceTypeOfferingSet": [
                {"instanceType": name, "location": zone, "locationType": "availability-zone"}
                for name in names
                for zone in zones(request.region)
                if (name, zone) not in self.facts.not_offered
            ]
        }

    def spot_prices(self, request: AwsRequest) -> AwsResponse:
        """Return the spot prices of instance types at the start time."""
        names = request.list_members("InstanceType")
        return {
            "spotPriceHistorySet": [
                {
                    "instanceType": name,
                    "productDescription": "Linux/UNIX",
                    "spotPrice": f"{price:.6f}",
                    "timestamp": "2026-11-22T23:16:49.000Z",
                    "availabilityZone": zone,
                }
                for (name, zone), price in self.facts.spot_prices.items()
                if name in names and zone.startswith(request.region)
            ],
            "nextToken": "",
        }

    def quota(self, request: AwsRequest) -> AwsResponse:
        """Return the quota of the account if it is set, else the quota of a new account."""
        code = str(request.arguments["QuotaCode"])
        value = QuotaStore(self.state).all().get(code, DEFAULT_QUOTAS.get(code, DEFAULT_QUOTA))
        service = str(request.arguments["ServiceCode"])
        return {"Quota": {"ServiceCode": service, "QuotaCode": code, "Value": value}}

    def addresses(self, _request: AwsRequest) -> AwsResponse:
        """Return the Elastic IPs of the account."""
        return {"addressesSet": [{"allocationId": item.id} for item in self.inventory.all(EIP)]}

    def vpcs(self, _request: AwsRequest) -> AwsResponse:
        """Return the VPCs of the account."""
        return {"vpcSet": [{"vpcId": item.id} for item in self.inventory.all(VPC)]}

    def file_systems(self, _request: AwsRequest) -> AwsResponse:
        """Return the file systems of the account."""
        return {
            "FileSystems": [
                {
                    "FileSystemId": item.id,
                    "StorageCapacity": int(item.inputs["storageCapacity"]),
                    "LustreConfiguration": {"DeploymentType": item.inputs["deploymentType"]},
                }
                for item in self.inventory.all(FILE_SYSTEM)
            ]
        }

    def addon_versions(self, request: AwsRequest) -> AwsResponse:
        """Return the versions of an add-on."""
        name = str(request.arguments["addonName"])
        versions = available_versions(name, str(request.arguments["kubernetesVersion"]))
        version_entries = [{"addonVersion": version} for version in versions]
        return {
            "addons": [{"addonName": name, "addonVersions": version_entries}]
            if version_entries
            else []
        }

    def cluster(self, request: AwsRequest) -> AwsResponse:
        """Return a cluster with its tags."""
        name = str(request.arguments["name"])
        resource = self.inventory.find((CLUSTER,), name)
        if resource is None:
            reason = f"No cluster found for name: {name}."
            raise AwsError("ResourceNotFoundException", reason, HTTPStatus.NOT_FOUND)
        return {"cluster": {"name": name, "tags": resource.outputs.get("tagsAll") or {}}}

    def log_groups(self, request: AwsRequest) -> AwsResponse:
        """Return the log groups with a prefix."""
        prefix = str(request.arguments.get("logGroupNamePrefix") or "")
        names = [
            resource.id for resource in self.inventory.all(LOGS) if resource.id.startswith(prefix)
        ]
        return {
            "logGroups": [
                {"logGroupName": name, "logGroupArn": f"{_log_group_prefix(request)}{name}"}
                for name in names
            ]
        }

    def log_group_tags(self, request: AwsRequest) -> AwsResponse:
        """Return the tags of a log group."""
        arn, prefix = str(request.arguments["resourceArn"]), _log_group_prefix(request)
        resource = self.inventory.find((LOGS,), arn.removeprefix(prefix))
        if resource is None:
            reason = "The specified resource does not exist."
            raise AwsError("ResourceNotFoundException", reason, HTTPStatus.BAD_REQUEST)
        return {"tags": resource.outputs.get("tagsAll") or {}}

    def key(self, request: AwsRequest) -> AwsResponse:
        """Return the metadata of the account's key."""
        arn = str(request.arguments["KeyId"])
        if self.facts.key.get("Arn") != arn:
            raise AwsError("NotFoundException", f"Key {arn!r} does not exist")
        return {"KeyMetadata": self.facts.key}

    def role(self, request: AwsRequest) -> AwsResponse:
        """Return a role with its tags; the roles of the caller always exist."""
        name = str(request.arguments["RoleName"])
        resource = self.inventory.find((ROLE,), name)
        exists = name in self.facts.service_roles
        is_caller = f":assumed-role/{name}/" in self.facts.caller
        if (
            resource is None
            and not exists
            and not is_caller
            and not self.facts.role.endswith(f"/{name}")
        ):
            reason = f"The role with name {name} cannot be found."
            raise AwsError("NoSuchEntity", reason, HTTPStatus.NOT_FOUND)
        tags = (resource.outputs.get("tagsAll") if resource else None) or {}
        path = (resource.inputs.get("path") if resource else None) or "/"
        return {
            "Role": {
                "RoleName": name,
                "Path": path,
                "RoleId": "AROACLOUDTWIN",
                "Arn": f"arn:aws:iam::{self.facts.account}:role{path}{name}",
                "CreateDate": "2026-01-01T00:00:00Z",
                "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            }
        }

    def simulation(self, request: AwsRequest) -> AwsResponse:
        """Return the decision of the caller's policies for each action."""
        resource = next(iter(request.list_members("ResourceArns")), ALL_RESOURCES)
        return {
            "IsTruncated": "false",
            "EvaluationResults": [
                {
                    "EvalActionName": action,
                    "EvalResourceName": resource,
                    "EvalDecision": self._decision(request, action, resource),
                }
                for action in request.list_members("ActionNames")
            ],
        }

    def _decision(self, request: AwsRequest, action: str, resource: str) -> str:
        """Return the decision of the caller's policies about one action."""
        if action in self.facts.denied:
            return "explicitDeny"
        is_scoped = resource == ALL_RESOURCES and action in self.facts.scoped
        is_refused_role = action == "iam:CreateRole" and not self._allows_role(request, resource)
        is_limited = self.facts.region and not action.startswith("iam:")
        is_elsewhere = is_limited and _context(request) != (
            "aws:RequestedRegion",
            self.facts.region,
        )
        return "implicitDeny" if is_scoped or is_refused_role or is_elsewhere else "allowed"

    def _allows_role(self, request: AwsRequest, resource: str) -> bool:
        """Return True if the caller's policies allow a role of this ARN with the request's boundary."""
        boundary = _context(request)[1]
        has_path = resource == ALL_RESOURCES or f":role{self.facts.role_path}" in resource
        return boundary == self.facts.role_boundary and has_path

    def image_details(self, request: AwsRequest) -> AwsResponse:
        """Return the details of a repository if it has all images of the request."""
        repository = str(request.arguments["repositoryName"])
        for image in request.arguments.get("imageIds") or ():
            tag, digest = image.get("imageTag"), image.get("imageDigest")
            name = f"{repository}@{digest}" if digest else f"{repository}:{tag}"
            if name not in self.facts.images:
                raise AwsError("ImageNotFoundException", f"The image {name} does not exist")
        return {"imageDetails": [{"repositoryName": repository}]}


OPERATIONS: Mapping[str, Callable[[AwsApi, AwsRequest], AwsResponse]] = {
    "sts:AssumeRole": AwsApi.assume_role,
    "sts:GetCallerIdentity": AwsApi.caller,
    "ec2:DescribeAvailabilityZones": AwsApi.availability_zones,
    "ec2:DescribeInstanceTypeOfferings": AwsApi.offerings,
    "ec2:DescribeSpotPriceHistory": AwsApi.spot_prices,
    "ec2:DescribeAddresses": AwsApi.addresses,
    "ec2:DescribeVpcs": AwsApi.vpcs,
    "fsx:DescribeFileSystems": AwsApi.file_systems,
    "servicequotas:GetServiceQuota": AwsApi.quota,
    "eks:DescribeAddonVersions": AwsApi.addon_versions,
    "eks:DescribeCluster": AwsApi.cluster,
    "logs:DescribeLogGroups": AwsApi.log_groups,
    "logs:ListTagsForResource": AwsApi.log_group_tags,
    "iam:GetRole": AwsApi.role,
    "kms:DescribeKey": AwsApi.key,
    "iam:SimulatePrincipalPolicy": AwsApi.simulation,
    "ecr:DescribeImages": AwsApi.image_details,
}


def _log_group_prefix(request: AwsRequest) -> str:
    """Return the ARN of a log group without its name."""
    return f"arn:aws:logs:{request.region}:{AWS_ACCOUNT}:log-group:"


def _context(request: AwsRequest) -> tuple[str, str]:
    """Return the condition key and its value in a simulation; both are empty if it has none."""
    entry = "ContextEntries.member.1"
    key = request.arguments.get(f"{entry}.ContextKeyName", "")
    return str(key), str(request.arguments.get(f"{entry}.ContextKeyValues.member.1", ""))


def _session_arn(role: str) -> str:
    """Return the ARN of a session of a role, which has the role's name without its path."""
    account = role.split(":")[4]
    return f"arn:aws:sts::{account}:assumed-role/{role.rpartition('/')[2]}/twin"


def _zone_id_prefix(region: str) -> str:
    """Return the prefix of zone ids: `use1` for `us-east-1`."""
    area, direction, number = region.rsplit("-", 2)
    directions = ("north", "south", "east", "west", "central")
    direction_code = "".join(word[0] for word in directions if word in direction)
    return f"{area.replace('-', '')}{direction_code}{number}"


@contextmanager
def serve(api: AwsApi) -> Iterator[str]:
    """Serve an endpoint on a free port of this machine, and yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond(b"")

        def do_POST(self) -> None:
            self._respond(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        def _respond(self, body: bytes) -> None:
            request = parse(self.path, self.headers, body)
            try:
                status, response = HTTPStatus.OK, api.respond(request)
            except AwsError as fault:
                status, response = fault.status, {"code": fault.code, "message": fault.message}
            content = encode(request, status, response)
            self.send_response(status)
            if status is not HTTPStatus.OK:
                self.send_header("x-amzn-ErrorType", str(response["code"]))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as in the base class
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(
        target=server.serve_forever, kwargs={"poll_interval": POLL_SECONDS}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parse(path: str, headers: Message, body: bytes) -> AwsRequest:
    """Return the request in an HTTP message: service and region are in its signature."""
    scope = str(headers.get("Authorization") or "").partition("Credential=")[2].split(",")[0]
    access_key, _, region, service = (scope.split("/") + [""] * 5)[:4]
    url = urlsplit(path)
    query = {key: values[0] for key, values in parse_qs(url.query).items()}
    if service == "eks":
        if url.path.startswith("/clusters/"):
            name = unquote(url.path.split("/")[2])
            return AwsRequest(service, "DescribeCluster", region, {"name": name})
        return AwsRequest(service, "DescribeAddonVersions", region, query)
    if service in JSON_SERVICES:
        operation = str(headers.get("X-Amz-Target") or "").rpartition(".")[2]
        return AwsRequest(service, operation, region, json.loads(body or b"{}"))
    form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
    return AwsRequest(service, str(form.get("Action", "")), region, form, access_key)


def encode(request: AwsRequest, status: HTTPStatus, response: AwsResponse) -> bytes:
    """Return a response or an error in the protocol of its service."""
    is_error = status is not HTTPStatus.OK
    if request.service in JSON_SERVICES:
        value = (
            {"__type": response["code"], "message": response["message"]} if is_error else response
        )
        return json.dumps(value).encode()
    if is_error:
        error = _xml({"Code": response["code"], "Message": response["message"]}, "member")
        if request.service == "ec2":
            return f"<Response><Errors><Error>{error}</Error></Errors></Response>".encode()
        return f"<ErrorResponse><Error>{error}</Error></ErrorResponse>".encode()
    name = f"{request.operation}Response"
    if request.service == "ec2":
        return f"<{name}>{_xml(response, 'item')}</{name}>".encode()
    result = f"{request.operation}Result"
    return f"<{name}><{result}>{_xml(response, 'member')}</{result}></{name}>".encode()


def _xml(value: object, item: str) -> str:
    """Return XML of nested mappings and lists, whose members have the given name."""
    if isinstance(value, Mapping):
        return "".join(f"<{key}>{_xml(inner, item)}</{key}>" for key, inner in value.items())
    if isinstance(value, list):
        return "".join(f"<{item}>{_xml(inner, item)}</{item}>" for inner in value)
    return escape(str(value))
