"""Fake provider outputs, in the format of the clouds, for every declared resource type.

A missing output becomes None in the program, and Pulumi then drops the input and its dependency.
So every output that the components read must be defined here.
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

# Outputs of other stacks, by stack name.
STACK_OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "acme/network/dev": {
        "vpcId": "vpc-0123456789abcdef0",
        "privateSubnetIds": {"us-east-1a": "subnet-0aaaaaaa", "us-east-1b": "subnet-0bbbbbbb"},
    }
}

Outputs = Mapping[str, Any]
Inputs = Mapping[str, Any]


class ProviderOutputs(mocks.Mocks):
    """Mocks that return the inputs, an id, and the outputs that a provider adds."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        package = args.typ.split(":", 1)[0]
        inputs = dict(args.inputs)
        if args.typ == "pulumi:pulumi:StackReference":
            return args.name, {**inputs, "outputs": STACK_OUTPUTS[args.name]}
        if package == "aws":
            return _aws(args.typ, args.name, inputs)
        if package == "azure-native":
            return _azure(args.typ, args.name, inputs)
        return f"{args.name}-id", inputs

    def call(  # type: ignore[override]  # the base class allows a dict, but its annotation does not
        self, args: mocks.MockCallArgs
    ) -> dict[str, Any]:
        if args.token == "azure-native:managedidentity:getUserAssignedIdentity":
            return dict(_identity(args.args["resourceName"], args.args))
        if args.token == "azure-native:storage:getBlobContainer":
            return dict(_container(args.args))
        if args.token == "aws:eks/getAddonVersion:getAddonVersion":
            return dict(_addon_version(args.args))
        if args.token not in CALLS:
            raise AssertionError(f"the program must not call {args.token}")
        return dict(CALLS[args.token])


def resolved_addon(addon: str, kubernetes: str) -> str:
    """Return the version of an add-on that AWS resolves in these tests; each is different."""
    return f"v{kubernetes}.{len(addon)}-eksbuild.{sum(addon.encode()) % 50}"


def _addon_version(args: Inputs) -> Outputs:
    version = resolved_addon(args["addonName"], args["kubernetesVersion"])
    return {**args, "id": args["addonName"], "version": version}


def _aws(token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an id, and the outputs with an ARN, tags and the outputs of the type."""
    kind = token.rsplit(":", 1)[-1]
    module = token.split(":")[1].partition("/")[0]
    identity = inputs.get(AWS_IDS.get(kind, ""), f"{name}-id")
    physical_name = inputs.get("name") or f"{inputs.get('namePrefix', name)}-0a1b2c3"
    outputs: dict[str, Any] = {
        "name": physical_name,
        "arn": f"arn:aws:{module}:{REGION}:{ACCOUNT}:{kind.lower()}/{physical_name}",
        "tagsAll": inputs.get("tags", {}),
    }
    outputs.update(inputs)
    outputs.update(AWS_OUTPUTS.get(kind, _no_outputs)(name, inputs))
    return str(identity), outputs


def _azure(token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an id in ARM format, and the outputs with a name and the outputs of the type."""
    kind = token.rsplit(":", 1)[-1]
    physical_name = inputs.get(AZURE_NAMES.get(kind, ""), name)
    group = inputs.get("resourceGroupName", name)
    identity = (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/{kind}/{physical_name}"
        if kind != "ResourceGroup"
        else f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{physical_name}"
    )
    outputs = {**inputs, "name": physical_name}
    outputs.update(AZURE_OUTPUTS.get(kind, _no_outputs)(physical_name, inputs))
    return identity, outputs


def _no_outputs(_name: str, _inputs: Inputs) -> Outputs:
    return {}


def _iam_arn(kind: str) -> Callable[[str, Inputs], Outputs]:
    def outputs(name: str, inputs: Inputs) -> Outputs:
        return {"arn": f"arn:aws:iam::{ACCOUNT}:{kind}/{inputs.get('name', name)}"}

    return outputs


def _eks_cluster(name: str, inputs: Inputs) -> Outputs:
    cluster_name = inputs.get("name", name)
    issuer = f"https://oidc.eks.{REGION}.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"
    network = {"vpcId": "vpc-0a1b2c3", "clusterSecurityGroupId": f"sg-{cluster_name}-cluster"}
    return {
        "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{cluster_name}",
        "endpoint": f"https://0123456789ABCDEF.gr7.{REGION}.eks.amazonaws.com",
        "certificateAuthority": {"data": CERTIFICATE},
        "certificateAuthorities": [{"data": CERTIFICATE}],
        "identities": [{"oidcs": [{"issuer": issuer}]}],
        "platformVersion": "eks.1",
        "status": "ACTIVE",
        "vpcConfig": {**inputs.get("vpcConfig", {}), **network},
    }


def _node_group(name: str, inputs: Inputs) -> Outputs:
    group_name = inputs.get("nodeGroupName", name)
    cluster = inputs.get("clusterName", "")
    return {
        "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:nodegroup/{cluster}/{group_name}/0a1b2c3d",
        "nodeGroupName": group_name,
        "resources": [{"autoscalingGroups": [{"name": f"eks-{group_name}-0a1b2c3d"}]}],
        "status": "ACTIVE",
    }


def _file_system(name: str, _inputs: Inputs) -> Outputs:
    return {
        "arn": f"arn:aws:fsx:{REGION}:{ACCOUNT}:file-system/{name}-id",
        "dnsName": f"{name}-id.fsx.{REGION}.amazonaws.com",
        "mountName": "fsmount1",
        "vpcId": "vpc-0a1b2c3",
    }


def _bucket(name: str, inputs: Inputs) -> Outputs:
    bucket = inputs.get("bucket") or f"{inputs.get('bucketPrefix', name)}0a1b2c3"
    return {"arn": f"arn:aws:s3:::{bucket}", "bucket": bucket, "region": REGION}


def _repository(name: str, inputs: Inputs) -> Outputs:
    repository_name = inputs.get("name", name)
    url = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{repository_name}"
    return {"repositoryUrl": url, "registryId": ACCOUNT}


def _key(name: str, _inputs: Inputs) -> Outputs:
    return {"arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{name}", "keyId": name}


def _log_group(_name: str, inputs: Inputs) -> Outputs:
    return {"arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{inputs['name']}"}


AWS_IDS = {"Role": "name", "Cluster": "name", "Repository": "name", "LogGroup": "name"}
AWS_OUTPUTS: Mapping[str, Callable[[str, Inputs], Outputs]] = {
    "Role": _iam_arn("role"),
    "Policy": _iam_arn("policy"),
    "Cluster": _eks_cluster,
    "NodeGroup": _node_group,
    "LustreFileSystem": _file_system,
    "Bucket": _bucket,
    "Repository": _repository,
    "Key": _key,
    "LogGroup": _log_group,
    "Workspace": lambda _name, _inputs: {
        "prometheusEndpoint": f"https://aps-workspaces.{REGION}.amazonaws.com/workspaces/ws-0/"
    },
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


def _managed_cluster(name: str, inputs: Inputs) -> Outputs:
    identity = dict(inputs.get("identity", {}))
    identity_ids = identity.pop("userAssignedIdentities", [])
    principal = {"clientId": f"{name}-client", "principalId": f"{name}-principal"}
    identity["userAssignedIdentities"] = dict.fromkeys(identity_ids, principal)
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


def _identity(name: str, _inputs: Inputs) -> Outputs:
    return {"clientId": f"{name}-client", "principalId": f"{name}-principal", "tenantId": TENANT}


def _container(args: Inputs) -> Outputs:
    """Return an existing container of Blob Storage."""
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{args['resourceGroupName']}"
    account = f"{group}/providers/Microsoft.Storage/storageAccounts/{args['accountName']}"
    name = args["containerName"]
    return {"id": f"{account}/blobServices/default/containers/{name}", "name": name}


def _account(name: str, _inputs: Inputs) -> Outputs:
    services = ("blob", "dfs", "file", "queue", "table", "web")
    return {
        "primaryEndpoints": {
            service: f"https://{name}.{service}.core.windows.net/" for service in services
        }
    }


# Azure type -> the input with the resource's name, which is the last segment of its id.
AZURE_NAMES: Mapping[str, str] = {
    "ResourceGroup": "resourceGroupName",
    "ManagedCluster": "resourceName",
    "AgentPool": "agentPoolName",
    "MaintenanceConfiguration": "configName",
    "UserAssignedIdentity": "resourceName",
    "FederatedIdentityCredential": "federatedIdentityCredentialResourceName",
    "StorageAccount": "accountName",
    "BlobContainer": "containerName",
    "Registry": "registryName",
    "VirtualNetwork": "virtualNetworkName",
    "Subnet": "subnetName",
    "NatGateway": "natGatewayName",
    "RouteTable": "routeTableName",
    "PublicIPAddress": "publicIpAddressName",
    "NetworkSecurityGroup": "networkSecurityGroupName",
    "PrivateEndpoint": "privateEndpointName",
    "PrivateZone": "privateZoneName",
    "Workspace": "workspaceName",
    "AzureMonitorWorkspace": "azureMonitorWorkspaceName",
    "DataCollectionEndpoint": "dataCollectionEndpointName",
    "DataCollectionRule": "dataCollectionRuleName",
    "RoleAssignment": "roleAssignmentName",
    "Budget": "budgetName",
    "BlobServiceProperties": "blobServicesName",
    "DataCollectionRuleAssociation": "associationName",
    "Task": "taskName",
}
AZURE_OUTPUTS: Mapping[str, Callable[[str, Inputs], Outputs]] = {
    "ManagedCluster": _managed_cluster,
    "UserAssignedIdentity": _identity,
    "StorageAccount": _account,
    "Registry": lambda name, _inputs: {"loginServer": f"{name}.azurecr.io"},
    "PublicIPAddress": lambda _name, _inputs: {"ipAddress": "198.51.100.7"},
    "Workspace": lambda _name, _inputs: {"customerId": TENANT},
}

_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://c.test:443"}}],
    "users": [{"name": "u", "user": {"exec": {"command": "kubelogin"}}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}
_CREDENTIALS = base64.b64encode(json.dumps(_KUBECONFIG).encode()).decode()
_GROUP_ID = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/theirs"
CALLS: Mapping[str, Outputs] = {
    "azure-native:resources:getResourceGroup": {"id": _GROUP_ID, "name": "theirs"},
    "azure-native:storage:getStorageAccount": {
        "id": f"{_GROUP_ID}/providers/Microsoft.Storage/storageAccounts/theiraccount",
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
