"""An AWS account as `everstep doctor` reads it, through boto3. No request changes anything."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from cloudfacts.aws_actions import UNSCOPED
from cloudfacts.quotas import Quota

from everstep.cli.account.checks import RequestError
from everstep.optional_packages import BOTO3

CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 20, 3
NOT_FOUND = frozenset(
    {"ResourceNotFoundException", "NoSuchEntity", "NoSuchResourceException", "NotFoundException"}
)
ACTIONS_PER_SIMULATION = 50  # limit of one request
ALL_RESOURCES = "*"
REGION_KEY = "aws:RequestedRegion"
Response = Mapping[str, Any]


@dataclass(frozen=True)
class Caller:
    """The identity that sends the requests.

    Attributes:
        account: AWS account, twelve digits.
        arn: ARN of the user or of the role session.
    """

    account: str
    arn: str

    @property
    def role(self) -> str:
        """The name of a session's role; empty for a user."""
        kind, *segments = self.arn.rpartition(":")[2].split("/")
        return segments[0] if kind == "assumed-role" and segments else ""

    def is_principal(self, arn: str) -> bool:
        """Return True if the ARN of a user or role is this identity.

        The ARN of a session has the name of its role without the path.
        """
        same_role = ":role/" in arn and arn.rpartition("/")[2] == self.role
        return arn == self.arn or (same_role and arn.split(":")[4] == self.account)


@dataclass(frozen=True)
class Denials:
    """Actions that a simulation of the caller's policies did not allow.

    Attributes:
        denied: actions that the policies deny.
        undecided: actions that no policy allows on all resources, or whose conditions need unknown values. A policy
            may still allow them on the stack's own resources, whose ARNs do not exist yet.
    """

    denied: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    def __add__(self, other: "Denials") -> "Denials":
        return Denials(self.denied + other.denied, self.undecided + other.undecided)


class AwsAccount:
    """An account in one region."""

    def __init__(self, region: str) -> None:
        """Prepare the requests; this reads no credentials and sends no request.

        Args:
            region: AWS region.

        Raises:
            EverstepError: boto3 is not installed.
        """
        try:
            import boto3
            from botocore.config import Config
        except ModuleNotFoundError:
            raise BOTO3.missing_error("the checks of an AWS account need boto3") from None
        self.region = region
        retries: Any = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
        self._config = Config(
            connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries=retries
        )
        self._open_session = partial(boto3.Session, region_name=region)
        self._clients: dict[str, Any] = {}

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401  boto3 has no types
        """The session, opened by the first request, so that a missing profile is reported as that request's error."""
        return self._open_session()

    def _call(self, service: str, operation: str, **arguments: object) -> Response:
        """Return the response to a request.

        Raises:
            RequestError: the request was refused, or there was no response.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        prefix = {"service-quotas": "servicequotas"}.get(service, service)
        action = f"{prefix}:{operation}"
        try:
            if service not in self._clients:
                self._clients[service] = self._session.client(service, config=self._config)
            client = self._clients[service]
            method = client.meta.method_to_api_mapping
            name = next(python for python, api in method.items() if api == operation)
            response: Response = getattr(client, name)(**arguments)
        except ClientError as error:
            detail = error.response.get("Error", {})
            code, message = detail.get("Code", "Unknown"), detail.get("Message", "")
            raise RequestError(action, str(code), str(message)) from None
        except BotoCoreError as error:
            raise RequestError(action, type(error).__name__, str(error)) from None
        return response

    def _call_if_exists(self, service: str, operation: str, **arguments: object) -> Response | None:
        """Return the response to a request; None if the resource does not exist."""
        try:
            return self._call(service, operation, **arguments)
        except RequestError as error:
            if error.code in NOT_FOUND:
                return None
            raise

    @cached_property
    def caller(self) -> Caller:
        """The identity of the credentials."""
        response = self._call("sts", "GetCallerIdentity")
        return Caller(str(response["Account"]), str(response["Arn"]))

    def zone_ids(self) -> dict[str, str]:
        """Return the ids of the zones that the account can use, by name."""
        response = self._call(
            "ec2",
            "DescribeAvailabilityZones",
            Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}],
        )
        return {
            str(zone["ZoneName"]): str(zone["ZoneId"])
            for zone in response["AvailabilityZones"]
            if zone.get("State") == "available"
        }

    def offering_zones(self, instance_types: Sequence[str]) -> dict[str, set[str]]:
        """Return the zones in which each instance type is offered."""
        zones: dict[str, set[str]] = {name: set() for name in instance_types}
        token: dict[str, object] = {}
        while True:
            page = self._call(
                "ec2",
                "DescribeInstanceTypeOfferings",
                LocationType="availability-zone",
                Filters=[{"Name": "instance-type", "Values": list(instance_types)}],
                **token,
            )
            for offering in page["InstanceTypeOfferings"]:
                zones[str(offering["InstanceType"])].add(str(offering["Location"]))
            if not page.get("NextToken"):
                return zones
            token = {"NextToken": page["NextToken"]}

    def quota(self, quota: Quota) -> float:
        """Return the value of a quota: the applied one, else AWS's default."""
        arguments = {"ServiceCode": quota.service, "QuotaCode": quota.code}
        response = self._call_if_exists("service-quotas", "GetServiceQuota", **arguments)
        if response is None:
            response = self._call("service-quotas", "GetAWSDefaultServiceQuota", **arguments)
        return float(response["Quota"]["Value"])

    def elastic_ips(self) -> int:
        """Return the number of Elastic IPs in the region."""
        return len(self._call("ec2", "DescribeAddresses").get("Addresses", ()))

    def vpcs(self) -> int:
        """Return the number of VPCs in the region."""
        return len(self._pages("ec2", "DescribeVpcs", "Vpcs"))

    def lustre_gib(self, deployment_types: Collection[str]) -> int:
        """Return the storage of the region's Lustre file systems of some deployment types, in GiB."""
        return sum(
            int(system["StorageCapacity"])
            for system in self._pages("fsx", "DescribeFileSystems", "FileSystems")
            if (system.get("LustreConfiguration") or {}).get("DeploymentType") in deployment_types
        )

    def _pages(self, service: str, operation: str, key: str) -> list[Response]:
        """Return the items of all pages of a response."""
        items: list[Response] = []
        token: dict[str, object] = {}
        while True:
            page = self._call(service, operation, **token)
            items += page.get(key, ())
            if not page.get("NextToken"):
                return items
            token = {"NextToken": page["NextToken"]}

    def addon_versions(self, addon: str, kubernetes: str) -> list[str]:
        """Return the versions of an add-on for a version of Kubernetes."""
        response = self._call_if_exists(
            "eks", "DescribeAddonVersions", addonName=addon, kubernetesVersion=kubernetes
        )
        addons = response["addons"] if response else []
        return [
            str(version_info["addonVersion"])
            for addon_info in addons
            for version_info in addon_info["addonVersions"]
        ]

    def cluster_tags(self, name: str) -> dict[str, str] | None:
        """Return the tags of a cluster; None if it does not exist."""
        response = self._call_if_exists("eks", "DescribeCluster", name=name)
        return dict(response["cluster"].get("tags") or {}) if response else None

    def log_group_tags(self, name: str) -> dict[str, str] | None:
        """Return the tags of a log group; None if it does not exist."""
        response = self._call("logs", "DescribeLogGroups", logGroupNamePrefix=name)
        groups = {str(group["logGroupName"]): group for group in response.get("logGroups", ())}
        if name not in groups:
            return None
        arn = groups[name]["logGroupArn"]  # `arn` ends with `:*`, which this request refuses
        tags = self._call_if_exists("logs", "ListTagsForResource", resourceArn=arn)
        return dict(tags.get("tags") or {}) if tags else None

    def key(self, arn: str) -> Response | None:
        """Return the metadata of a KMS key; None if it does not exist."""
        response = self._call_if_exists("kms", "DescribeKey", KeyId=arn)
        return dict(response["KeyMetadata"]) if response else None

    def role_tags(self, name: str) -> dict[str, str] | None:
        """Return the tags of a role; None if it does not exist."""
        response = self._call_if_exists("iam", "GetRole", RoleName=name)
        if response is None:
            return None
        return {str(tag["Key"]): str(tag["Value"]) for tag in response["Role"].get("Tags") or ()}

    def denied_actions(
        self,
        actions: Iterable[str],
        *,
        resource: str = ALL_RESOURCES,
        context: Mapping[str, str] | None = None,
    ) -> Denials:
        """Return the actions that the caller's policies do not allow.

        Args:
            actions: names of actions.
            resource: ARN on which they act; `*`: all resources.
            context: condition key -> value of the requests, such as iam:PermissionsBoundary.
        """
        entries = [
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in (context or {}).items()
        ]
        source, required, denials = self._policy_source(), sorted(actions), Denials()
        for start in range(0, len(required), ACTIONS_PER_SIMULATION):
            response = self._call(
                "iam",
                "SimulatePrincipalPolicy",
                PolicySourceArn=source,
                ActionNames=required[start : start + ACTIONS_PER_SIMULATION],
                ResourceArns=[resource],
                ContextEntries=entries,
                MaxItems=1000,
            )
            denials += _denials(response["EvaluationResults"], resource)
        return denials

    def _policy_source(self) -> str:
        """Return the ARN whose policies apply: the user, or the role of the session."""
        if not self.caller.role:
            return self.caller.arn
        role = self._call("iam", "GetRole", RoleName=self.caller.role)
        return str(role["Role"]["Arn"])

    def has_image(self, repository: str, *, tag: str = "", digest: str = "") -> bool:
        """Return True if a repository of the account's registry has an image."""
        image = {"imageDigest": digest} if digest else {"imageTag": tag}
        try:
            self._call("ecr", "DescribeImages", repositoryName=repository, imageIds=[image])
        except RequestError as error:
            if error.code in {"ImageNotFoundException", "RepositoryNotFoundException"}:
                return False
            raise
        return True


def _denials(results: Iterable[Response], resource: str) -> Denials:
    """Return the denials among the results of a simulation on a resource.

    An implicit denial on all resources decides nothing about an action that a policy can allow on some.
    """
    denied, undecided = [], []
    for result in results:
        action, decision = str(result["EvalActionName"]), result["EvalDecision"]
        if decision == "allowed":
            continue
        is_decided = resource != ALL_RESOURCES or action in UNSCOPED
        if decision == "explicitDeny" or (is_decided and not result.get("MissingContextValues")):
            denied.append(action)
        else:
            undecided.append(action)
    return Denials(tuple(denied), tuple(undecided))
