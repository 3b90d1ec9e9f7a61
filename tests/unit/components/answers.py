"""What the clouds would answer: outputs of the right shape for every type that is declared.

An output that the answer lacks becomes None in the program, and Pulumi drops it from the inputs it
was meant for, edge and all; so whatever the components read stands here.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from pulumi.runtime import mocks

ACCOUNT = "123456789012"
REGION = "us-east-1"
SUBSCRIPTION = "00000000-0000-4000-8000-000000000000"
TENANT = "00000000-0000-4000-8000-00000000000a"
CERTIFICATE = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()

Answer = Mapping[str, Any]
Inputs = Mapping[str, Any]


class Answers(mocks.Mocks):
    """Answers as an API server and the clouds would: the inputs back, an id, and what they add."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        package = args.typ.split(":", 1)[0]
        inputs = dict(args.inputs)
        if package == "aws":
            return _aws(args.typ, args.name, inputs)
        if package == "azure-native":
            return _azure(args.typ, args.name, inputs)
        return f"{args.name}-id", inputs

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        if args.token == "azure-native:managedidentity:getUserAssignedIdentity":
            return dict(_identity(args.args["resourceName"], args.args))
        if args.token not in CALLS:
            raise AssertionError(f"the program must not call {args.token}")
        return dict(CALLS[args.token])


def _aws(token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Answer for AWS: `<name>-id`, an ARN, tags, and what the type adds."""
    kind = token.rsplit(":", 1)[-1]
    module = token.split(":")[1].partition("/")[0]
    identity = inputs.get(AWS_IDS.get(kind, ""), f"{name}-id")
    physical = inputs.get("name") or (f"{inputs.get('namePrefix', name)}-0a1b2c3")
    made: dict[str, Any] = {
        "name": physical,
        "arn": f"arn:aws:{module}:{REGION}:{ACCOUNT}:{kind.lower()}/{physical}",
        "tagsAll": inputs.get("tags", {}),
    }
    made.update(inputs)
    made.update(AWS.get(kind, lambda _name, _inputs: {})(name, inputs))
    return str(identity), made


def _azure(token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Answer for Azure: an id as ARM writes it, a name, and what the type adds."""
    kind = token.rsplit(":", 1)[-1]
    physical = next((inputs[key] for key in AZURE_NAMES.get(kind, ()) if key in inputs), name)
    group = inputs.get("resourceGroupName", name)
    identity = (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/{kind}/{physical}"
        if kind != "ResourceGroup"
        else f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{physical}"
    )
    made = {**inputs, "name": physical}
    made.update(AZURE.get(kind, lambda _name, _inputs: {})(physical, inputs))
    return identity, made


def _iam_arn(kind: str) -> Callable[[str, Inputs], Answer]:
    def answer(name: str, inputs: Inputs) -> Answer:
        return {"arn": f"arn:aws:iam::{ACCOUNT}:{kind}/{inputs.get('name', name)}"}

    return answer


def _eks_cluster(name: str, inputs: Inputs) -> Answer:
    named = inputs.get("name", name)
    issuer = f"https://oidc.eks.{REGION}.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"
    network = {"vpcId": "vpc-0a1b2c3", "clusterSecurityGroupId": f"sg-{named}-cluster"}
    return {
        "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{named}",
        "endpoint": f"https://0123456789ABCDEF.gr7.{REGION}.eks.amazonaws.com",
        "certificateAuthority": {"data": CERTIFICATE},
        "certificateAuthorities": [{"data": CERTIFICATE}],
        "identities": [{"oidcs": [{"issuer": issuer}]}],
        "platformVersion": "eks.1",
        "status": "ACTIVE",
        "vpcConfig": {**inputs.get("vpcConfig", {}), **network},
    }


def _node_group(name: str, inputs: Inputs) -> Answer:
    named = inputs.get("nodeGroupName", name)
    cluster = inputs.get("clusterName", "")
    return {
        "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:nodegroup/{cluster}/{named}/0a1b2c3d",
        "nodeGroupName": named,
        "resources": [{"autoscalingGroups": [{"name": f"eks-{named}-0a1b2c3d"}]}],
        "status": "ACTIVE",
    }


def _file_system(name: str, _inputs: Inputs) -> Answer:
    return {
        "arn": f"arn:aws:fsx:{REGION}:{ACCOUNT}:file-system/{name}-id",
        "dnsName": f"{name}-id.fsx.{REGION}.amazonaws.com",
        "mountName": "fsmount1",
        "vpcId": "vpc-0a1b2c3",
    }


def _bucket(name: str, inputs: Inputs) -> Answer:
    bucket = inputs.get("bucket") or f"{inputs.get('bucketPrefix', name)}0a1b2c3"
    return {"arn": f"arn:aws:s3:::{bucket}", "bucket": bucket, "region": REGION}


def _repository(name: str, inputs: Inputs) -> Answer:
    named = inputs.get("name", name)
    url = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{named}"
    return {"repositoryUrl": url, "registryId": ACCOUNT}


def _key(name: str, _inputs: Inputs) -> Answer:
    return {"arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{name}", "keyId": name}


def _log_group(_name: str, inputs: Inputs) -> Answer:
    return {"arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{inputs['name']}"}


AWS_IDS = {"Role": "name", "Cluster": "name", "Repository": "name", "LogGroup": "name"}
AWS: Mapping[str, Callable[[str, Inputs], Answer]] = {
    "Role": _iam_arn("role"),
    "Policy": _iam_arn("policy"),
    "Cluster": _eks_cluster,
    "NodeGroup": _node_group,
    "LustreFileSystem": _file_system,
    "Bucket": _bucket,
    "Repository": _repository,
    "Key": _key,
    "LogGroup": _log_group,
    "LaunchTemplate": lambda _name, _inputs: {"latestVersion": 1, "defaultVersion": 1},
    "Vpc": lambda _name, inputs: {
        "cidrBlock": inputs.get("cidrBlock"),
        "defaultSecurityGroupId": "sg-default",
        "defaultRouteTableId": "rtb-default",
        "mainRouteTableId": "rtb-default",
    },
    "Eip": lambda _name, _inputs: {"publicIp": "198.51.100.7", "allocationId": "eipalloc-1"},
    "PodIdentityAssociation": lambda _name, _inputs: {"associationId": "a-0a1b2c3"},
}


def _managed_cluster(name: str, inputs: Inputs) -> Answer:
    identity = dict(inputs.get("identity", {}))
    listed = identity.pop("userAssignedIdentities", [])
    principal = {"clientId": f"{name}-client", "principalId": f"{name}-principal"}
    identity["userAssignedIdentities"] = dict.fromkeys(listed, principal)
    kubelet = {"clientId": "kubelet-client", "objectId": "kubelet-object", "resourceId": "kubelet"}
    return {
        "fqdn": f"{name}-0a1b2c3.hcp.eastus.azmk8s.io",
        "azurePortalFQDN": f"{name}-0a1b2c3.portal.hcp.eastus.azmk8s.io",
        "privateFQDN": f"{name}-0a1b2c3.privatelink.eastus.azmk8s.io",
        "identity": {"principalId": f"{name}-principal", "tenantId": TENANT, **identity},
        "identityProfile": inputs.get("identityProfile", {"kubeletidentity": kubelet}),
        "nodeResourceGroup": inputs.get("nodeResourceGroup", f"MC_{name}"),
        "oidcIssuerProfile": {"enabled": True, "issuerURL": f"https://eastus.oic.test/{name}/"},
    }


def _identity(name: str, _inputs: Inputs) -> Answer:
    return {"clientId": f"{name}-client", "principalId": f"{name}-principal", "tenantId": TENANT}


def _account(name: str, _inputs: Inputs) -> Answer:
    kinds = ("blob", "dfs", "file", "queue", "table", "web")
    return {"primaryEndpoints": {one: f"https://{name}.{one}.core.windows.net/" for one in kinds}}


# Under which input each type's own name stands, as the id ends in it.
AZURE_NAMES: Mapping[str, tuple[str, ...]] = {
    "ResourceGroup": ("resourceGroupName",),
    "ManagedCluster": ("resourceName",),
    "AgentPool": ("agentPoolName",),
    "MaintenanceConfiguration": ("configName",),
    "UserAssignedIdentity": ("resourceName",),
    "FederatedIdentityCredential": ("federatedIdentityCredentialResourceName",),
    "StorageAccount": ("accountName",),
    "BlobContainer": ("containerName",),
    "Registry": ("registryName",),
    "VirtualNetwork": ("virtualNetworkName",),
    "Subnet": ("subnetName",),
    "NatGateway": ("natGatewayName",),
    "PublicIPAddress": ("publicIpAddressName",),
    "NetworkSecurityGroup": ("networkSecurityGroupName",),
    "PrivateEndpoint": ("privateEndpointName",),
    "PrivateZone": ("privateZoneName",),
    "Workspace": ("workspaceName",),
    "AzureMonitorWorkspace": ("azureMonitorWorkspaceName",),
    "DataCollectionEndpoint": ("dataCollectionEndpointName",),
    "DataCollectionRule": ("dataCollectionRuleName",),
    "RoleAssignment": ("roleAssignmentName",),
    "Budget": ("budgetName",),
    "BlobServiceProperties": ("blobServicesName",),
    "DataCollectionRuleAssociation": ("associationName",),
    "Task": ("taskName",),
}
AZURE: Mapping[str, Callable[[str, Inputs], Answer]] = {
    "ManagedCluster": _managed_cluster,
    "UserAssignedIdentity": _identity,
    "StorageAccount": _account,
    "Registry": lambda name, _inputs: {"loginServer": f"{name}.azurecr.io"},
    "PublicIPAddress": lambda _name, _inputs: {"ipAddress": "198.51.100.7"},
    "Workspace": lambda _name, _inputs: {"customerId": TENANT},
}

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://c.test:443"}}],
    "users": [{"name": "u", "user": {"exec": {"command": "kubelogin"}}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}
_CREDENTIALS = base64.b64encode(json.dumps(KUBECONFIG).encode()).decode()
_ARM = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/theirs"
CALLS: Mapping[str, Answer] = {
    "azure-native:resources:getResourceGroup": {"id": _ARM, "name": "theirs"},
    "azure-native:storage:getStorageAccount": {
        "id": f"{_ARM}/providers/Microsoft.Storage/storageAccounts/theiraccount",
        "name": "theiraccount",
    },
    "azure-native:containerservice:listManagedClusterUserCredentials": {
        "kubeconfigs": [{"name": "clusterUser", "value": _CREDENTIALS}]
    },
    "azure-native:authorization:getClientConfig": {
        "clientId": "client",
        "objectId": "object",
        "subscriptionId": SUBSCRIPTION,
        "tenantId": TENANT,
    },
    "aws:index/getCallerIdentity:getCallerIdentity": {
        "accountId": ACCOUNT,
        "arn": f"arn:aws:iam::{ACCOUNT}:role/deployer",
        "id": ACCOUNT,
        "userId": "AROAEXAMPLE:session",
    },
}
