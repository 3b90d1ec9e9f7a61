"""For every rule and demand of the twin's AWS: what passes, what fails, and a word of the refusal."""

import json

from twin.clouds.aws.common import arn
from twin.clouds.aws.eks_rules import ADDON, CLUSTER, ENTRY, NODES
from twin.clouds.aws.fsx import SYSTEM, TIE
from twin.clouds.aws.machines import PLACEMENT, TEMPLATE
from twin.clouds.aws.network import (
    ASSOCIATION,
    GATEWAY,
    GROUP,
    INGRESS,
    NAT,
    ROUTE,
    SUBNET,
    VPC,
)
from twin.clouds.aws.policies import ATTACHMENT, ROLE
from twin.clouds.aws.s3 import BUCKET
from twin.clouds.world import Resource, World

POD = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
LOGS = "aws:cloudwatch/logGroup:LogGroup"
BUDGET = "aws:budgets/budget:Budget"
ALIAS = "aws:kms/alias:Alias"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
BUCKET_POLICY = "aws:s3/bucketPolicy:BucketPolicy"
REPOSITORY_POLICY = "aws:ecr/repositoryPolicy:RepositoryPolicy"
ACCESS = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
GOOD = json.dumps({"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]})
BAD = json.dumps({"Statement": [{"Effect": "Maybe", "Action": "s3:GetObject"}]})
SIZES = {"minSize": 0, "desiredSize": 1, "maxSize": 3}


def disk(encrypted: object) -> dict:
    return {"blockDeviceMappings": [{"ebs": {"encrypted": encrypted}}]}


def card(**said: object) -> dict:
    return {"networkInterfaces": [said]}


# rule -> (inputs that pass, inputs that fail, what the refusal says)
RULES: dict[str, tuple[dict, dict, str]] = {
    "size of a VPC": ({"cidrBlock": "10.0.0.0/16"}, {"cidrBlock": "10.0.0.0/8"}, "/16"),
    "size of a subnet": ({"cidrBlock": "10.0.0.0/24"}, {"cidrBlock": "10.0.0.0/29"}, "/28"),
    "place of a NAT gateway": (
        {"subnetId": "s", "allocationId": "e"},
        {"subnetId": "s"},
        "elastic address",
    ),
    "target of a route": (
        {"gatewayId": "g"},
        {"gatewayId": "g", "natGatewayId": "n"},
        "one target",
    ),
    "destination of a route": (
        {"destinationCidrBlock": "0.0.0.0/0"},
        {"destinationCidrBlock": "everywhere"},
        "no CIDR",
    ),
    "region of an endpoint": (
        {"serviceName": "com.amazonaws.us-east-1.s3", "region": "us-east-1"},
        {"serviceName": "com.amazonaws.us-west-2.s3", "region": "us-east-1"},
        "is not in us-east-1",
    ),
    "name of a security group": ({"name": "efa"}, {"name": "sg-efa"}, "begins with sg-"),
    "ports of a rule": (
        {"ipProtocol": "tcp", "fromPort": 988, "toPort": 988},
        {"ipProtocol": "tcp", "fromPort": 1023, "toPort": 1018},
        "no range",
    ),
    "one source of a rule": (
        {"cidrIpv4": "10.0.0.0/8"},
        {"cidrIpv4": "10.0.0.0/8", "referencedSecurityGroupId": "sg-1"},
        "exactly one",
    ),
    "name of a role": ({"name": "nodes"}, {"name": "no des"}, "other characters"),
    "trust of a role": ({"assumeRolePolicy": GOOD}, {"assumeRolePolicy": "{"}, "no JSON"),
    "name of a policy": ({"name": "read"}, {"name": "re/ad"}, "other characters"),
    "document of a policy": ({"policy": GOOD}, {"policy": BAD}, "Allow or Deny"),
    "document of a role's policy": ({"policy": GOOD}, {"policy": "{}"}, "no Statement"),
    "document of a bucket": ({"policy": GOOD}, {"policy": BAD}, "Allow or Deny"),
    "document of a repository": ({"policy": GOOD}, {"policy": BAD}, "Allow or Deny"),
    "window of a key": ({"deletionWindowInDays": 7}, {"deletionWindowInDays": 3}, "7 to 30"),
    "name of an alias": ({"name": "alias/mine"}, {"name": "mine"}, "alias/"),
    "name of a launch template": ({"name": "gpu"}, {"name": "g"}, "fewer than 3"),
    "security groups at one place": (
        card(securityGroups=["sg-1"]),
        {**card(securityGroups=["sg-1"]), "vpcSecurityGroupIds": ["sg-1"]},
        "at each of the networkInterfaces",
    ),
    "place of EFA interfaces": (
        card(networkCardIndex=1, deviceIndex=1, interfaceType="efa-only"),
        card(networkCardIndex=0, deviceIndex=0, interfaceType="efa-only"),
        "carries IP",
    ),
    "number of EFA interfaces": (
        {"instanceType": "g5.12xlarge", **card(interfaceType="efa")},
        {"instanceType": "g5.xlarge", **card(interfaceType="efa")},
        "at most 0",
    ),
    "texts of a disk": (disk("true"), disk("yes"), "true and false"),
    "version of a cluster": ({"version": "1.36"}, {"version": "1.29"}, "not offered"),
    "name of a cluster": ({"name": "everstep-dev"}, {"name": "-everstep"}, "begin with"),
    "endpoints of a cluster": (
        {"vpcConfig": {"publicAccessCidrs": ["203.0.113.0/24"]}},
        {"vpcConfig": {"publicAccessCidrs": ["10.0.0.0/8"]}},
        "private range",
    ),
    "Auto Mode whole": ({}, {"computeConfig": {"enabled": True}}, "together"),
    "sizes of a node group": (
        {"scalingConfig": SIZES},
        {"scalingConfig": {**SIZES, "desiredSize": 9}},
        "must hold",
    ),
    "launch template or not": (
        {"launchTemplate": {"id": "lt-1", "version": "1"}},
        {"launchTemplate": {"id": "lt-1", "version": "1"}, "diskSize": 100},
        "launch template when there is one",
    ),
    "labels of a node group": (
        {"labels": {"everstep/pool": "gpu-spot"}},
        {"labels": {"eks.amazonaws.com/nodegroup": "x"}},
        "service's own",
    ),
    "image of a node group": (
        {"amiType": "AL2023_x86_64_NVIDIA"},
        {"amiType": "AL2_x86_64_GPU"},
        "no Amazon Linux 2",
    ),
    "types of a node group": (
        {"instanceTypes": ["g5.xlarge"]},
        {"instanceTypes": ["p3.2xlarge"]},
        "retired",
    ),
    "form of an add-on": (
        {"addonName": "vpc-cni", "addonVersion": "v1.20.4-eksbuild.2"},
        {"addonName": "vpc-cni", "addonVersion": "1.20"},
        "not of the form",
    ),
    "form of an access policy": (
        {"policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"},
        {"policyArn": "arn:aws:iam::aws:policy/AmazonEKSViewPolicy"},
        "no access policy",
    ),
    "size of a file system": (
        {"deploymentType": "SCRATCH_2", "storageCapacity": 4800},
        {"deploymentType": "SCRATCH_2", "storageCapacity": 2000},
        "multiple of 2400",
    ),
    "throughput of a file system": (
        {"deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": 250},
        {"deploymentType": "SCRATCH_2", "perUnitStorageThroughput": 250},
        "leave it out",
    ),
    "what lasts": (
        {"deploymentType": "PERSISTENT_2", "kmsKeyId": "k"},
        {"deploymentType": "SCRATCH_2", "kmsKeyId": "k"},
        "only a PERSISTENT",
    ),
    "EFA of a file system": (
        {},
        {"efaEnabled": True, "deploymentType": "SCRATCH_2"},
        "PERSISTENT_2",
    ),
    "one zone of a file system": (
        {"subnetIds": "subnet-1"},
        {"subnetIds": "subnet-1,subnet-2"},
        "one zone",
    ),
    "paths of an association": (
        {"fileSystemPath": "/", "dataRepositoryPath": "s3://mine/data"},
        {"fileSystemPath": "/", "dataRepositoryPath": "mine/data"},
        "s3://bucket",
    ),
    "name of a bucket": ({"bucket": "everstep-dev"}, {"bucket": "Everstep_dev"}, "bucket's name"),
    "name of a repository": (
        {"name": "everstep/trainer"},
        {"name": "Everstep"},
        "repository's name",
    ),
    "days of a log group": ({"retentionInDays": 30}, {"retentionInDays": 31}, "are none of"),
    "name of a log group": ({"name": "/aws/eks/x"}, {"name": "a b"}, "other characters"),
    "amount of a budget": ({"limitAmount": "100.0"}, {"limitAmount": "100 USD"}, "no amount"),
}


def resource(token: str, identity: str, inputs: dict, **outputs: object) -> Resource:
    return Resource(
        token=token, id=identity, urn=f"urn::{identity}", inputs=inputs, outputs=outputs
    )


def role(name: str, service: str, *actions: str) -> Resource:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions)}
    trust = json.dumps({"Statement": [statement]})
    return resource(
        ROLE, name, {"assumeRolePolicy": trust}, arn=arn("iam", f"role/{name}"), name=name
    )


def attached(to: str, policy: str) -> Resource:
    own = f"arn:aws:iam::aws:policy/{policy}"
    return resource(ATTACHMENT, f"{to}/{policy}", {"role": to, "policyArn": own})


def subnet(name: str, zone: str, block: str) -> Resource:
    return resource(
        SUBNET, name, {"vpcId": "vpc-1", "cidrBlock": block}, availabilityZone=zone, vpcId="vpc-1"
    )


def cluster(version: str = "1.36") -> Resource:
    return resource(
        CLUSTER, "c", {"bootstrapSelfManagedAddons": False, "version": version}, name="c",
        version=version, vpcConfig={"clusterSecurityGroupId": "sg-c"},
    )  # fmt: skip


A, B, SAME = (
    subnet("subnet-a", "us-east-1a", "10.0.0.0/24"),
    subnet("subnet-b", "us-east-1b", "10.0.1.0/24"),
    subnet("subnet-c", "us-east-1a", "10.0.2.0/24"),
)
THE_VPC = resource(VPC, "vpc-1", {"cidrBlock": "10.0.0.0/16"})
ASSUME, TAG = "sts:AssumeRole", "sts:TagSession"
EKS_ROLE, NODE_ROLE = (
    role("eks", "eks.amazonaws.com", ASSUME),
    role("n", "ec2.amazonaws.com", ASSUME),
)
POD_ROLE, HALF_ROLE = (
    role("pod", "pods.eks.amazonaws.com", ASSUME, TAG),
    role("half", "pods.eks.amazonaws.com", ASSUME),
)
WORKER = attached("n", "AmazonEKSWorkerNodePolicy")
PULL = attached("n", "AmazonEC2ContainerRegistryPullOnly")
CNI = resource(ADDON, "c:vpc-cni", {"clusterName": "c", "addonName": "vpc-cni"})
WAY = resource(ASSOCIATION, "w", {"subnetId": "subnet-a", "routeTableId": "rtb-1"})
OUT = resource(
    ROUTE, "r", {"routeTableId": "rtb-1", "destinationCidrBlock": "0.0.0.0/0", "natGatewayId": "n"}
)
NODE = {"clusterName": "c", "nodeRoleArn": arn("iam", "role/n"), "subnetIds": ["subnet-a"]}
EFA_TEMPLATE = resource(
    TEMPLATE, "lt-1", {"networkInterfaces": [{"interfaceType": "efa"}]}, latestVersion=2
)
LUSTRE = [
    resource(
        INGRESS, f"sgr-{low}",
        {"securityGroupId": "sg-f", "referencedSecurityGroupId": "sg-f", "ipProtocol": "tcp",
         "fromPort": low, "toPort": high},
    )
    for low, high in ((988, 988), (1018, 1023))
]  # fmt: skip
SYSTEM_INPUTS = {"subnetIds": "subnet-a", "securityGroupIds": ["sg-f"], "storageCapacity": 1200}
GROUP_F = resource(GROUP, "sg-f", {"vpcId": "vpc-1"})
TIE_INPUTS = {"fileSystemId": "fs-1", "fileSystemPath": "/", "dataRepositoryPath": "s3://mine"}
THE_TIE = resource(TIE, "dra-1", TIE_INPUTS)

# demand -> (type, inputs, the world in which it passes, the one in which it fails, the refusal)
DEMANDS: dict[str, tuple[str, dict, list[Resource], list[Resource], str]] = {
    "subnet in its VPC": (
        SUBNET, {"vpcId": "vpc-1", "cidrBlock": "10.0.3.0/24"},
        [THE_VPC], [resource(VPC, "vpc-1", {"cidrBlock": "10.1.0.0/16"})], "is not in",
    ),
    "subnets apart": (
        SUBNET, {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/24"}, [B], [A], "conflicts",
    ),
    "NAT gateway with a way out": (
        NAT, {"subnetId": "subnet-a"},
        [A, resource(GATEWAY, "igw-1", {"vpcId": "vpc-1"})], [A], "no Internet gateway",
    ),
    "policy of AWS exists": (
        ATTACHMENT, {"policyArn": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicie"},
        [], [], "did you mean AmazonEKSClusterPolicy",
    ),
    "placement group exists": (
        TEMPLATE, {"placement": {"groupName": "near"}}, [resource(PLACEMENT, "near", {})], [], "unknown",
    ),
    "role of a cluster": (CLUSTER, {"roleArn": arn("iam", "role/eks")}, [EKS_ROLE],
                          [role("eks", "ec2.amazonaws.com", ASSUME)], "does not let eks.amazonaws.com"),
    "rights of a cluster": (CLUSTER, {"roleArn": arn("iam", "role/eks")},
                            [EKS_ROLE, attached("eks", "AmazonEKSClusterPolicy")], [EKS_ROLE], "lacks"),
    "zones of a cluster": (CLUSTER, {"vpcConfig": {"subnetIds": ["subnet-a", "subnet-b", "subnet-c"]}},
                           [A, B, SAME], [A, SAME], "two different AZs"),
    "role of nodes": (NODES, NODE, [NODE_ROLE], [role("n", "eks.amazonaws.com", ASSUME)], "ec2.amazonaws.com"),
    "rights of nodes": (NODES, NODE, [NODE_ROLE, WORKER], [NODE_ROLE, PULL], "AmazonEKSWorkerNodePolicy"),
    "nodes pull images": (NODES, NODE, [NODE_ROLE, PULL], [NODE_ROLE, WORKER], "may not pull"),
    "nodes have a network plugin": (NODES, NODE, [cluster(), CNI], [cluster()], "cni plugin not initialized"),
    "nodes have a way out": (NODES, NODE, [A, WAY, OUT], [A, WAY], "no route out"),
    "version of a template": (NODES, {**NODE, "launchTemplate": {"id": "lt-1", "version": "2"}}, [EFA_TEMPLATE],
                              [resource(TEMPLATE, "lt-1", {}, latestVersion=1)], "has no version 2"),
    "one type with EFA": (
        NODES, {**NODE, "launchTemplate": {"id": "lt-1"}, "instanceTypes": ["g5.12xlarge", "g6.12xlarge"]},
        [resource(TEMPLATE, "lt-1", {}, latestVersion=1)], [EFA_TEMPLATE], "one instance type",
    ),
    "version of nodes": (NODES, {**NODE, "version": "1.36"}, [cluster()], [cluster("1.35")], "older than cluster"),
    "role of an add-on": (
        ADDON, {"podIdentityAssociations": [{"roleArn": arn("iam", "role/pod")}]}, [POD_ROLE],
        [role("pod", "pods.eks.amazonaws.com", ASSUME)], "sts:TagSession",
    ),
    "nodes for an add-on": (ADDON, {"clusterName": "c", "addonName": "coredns"},
                            [cluster(), resource(NODES, "c:n", NODE)], [cluster()], "InsufficientNumberOfReplicas"),
    "entry of a policy": (ACCESS, {"clusterName": "c", "principalArn": "p"},
                          [resource(ENTRY, "c:p", {"clusterName": "c", "principalArn": "p"})], [], "no access entry"),
    "role of a pod": (POD, {"roleArn": arn("iam", "role/half")}, [POD_ROLE], [HALF_ROLE], "sts:TagSession"),
    "Lustre among servers": (SYSTEM, SYSTEM_INPUTS, [A, GROUP_F, *LUSTRE], [A, GROUP_F, LUSTRE[0]], "1018-1023"),
    "bucket of an association": (TIE, TIE_INPUTS, [resource(BUCKET, "mine", {})], [], "does not exist"),
    "associations apart": (TIE, {**TIE_INPUTS, "fileSystemPath": "/data"},
                           [resource(TIE, "dra-1", {**TIE_INPUTS, "fileSystemPath": "/runs"})], [THE_TIE], "overlaps"),
    "associations of a kind": (TIE, TIE_INPUTS, [resource(SYSTEM, "fs-1", {"deploymentType": "SCRATCH_2"})],
                               [resource(SYSTEM, "fs-1", {})], "SCRATCH_1"),
}  # fmt: skip
ONLY_FAILS = {"policy of AWS exists"}  # no world makes it pass
ON_CHANGE = {"steps of a version", "a file system grows"}  # see test_changes.py
WORLDS = {
    name: (World(tuple(good)), World(tuple(bad))) for name, (_, _, good, bad, _) in DEMANDS.items()
}
