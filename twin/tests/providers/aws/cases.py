"""For each rule and precondition of the twin's AWS: a valid and an invalid case, and part of the message.

The cases of CHANGE_RULES are in `test_changes.py`; NEVER_HOLDS have no valid case.
"""

import json
from base64 import b64encode

from cloudtwin.providers.aws.common import arn
from cloudtwin.providers.aws.eks_rules import ADDON, CLUSTER, ENTRY, NODES
from cloudtwin.providers.aws.fsx import ASSOCIATION as DATA_REPOSITORY
from cloudtwin.providers.aws.fsx import FILE_SYSTEM
from cloudtwin.providers.aws.machines import PLACEMENT, TEMPLATE
from cloudtwin.providers.aws.network import (
    ASSOCIATION,
    ENDPOINT,
    GATEWAY,
    GROUP,
    INGRESS,
    NAT,
    ROUTE,
    SUBNET,
    TABLE,
    VPC,
)
from cloudtwin.providers.aws.policies import ATTACHMENT, ROLE
from cloudtwin.providers.aws.s3 import BUCKET, PUBLIC_ACCESS_BLOCK
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.protocol.values import Object

POD_IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
BUCKET_POLICY = "aws:s3/bucketPolicy:BucketPolicy"
ACCESS = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
ALLOW_GET = {"Effect": "Allow", "Action": "s3:GetObject", "Principal": "*"}
TRUST = json.dumps({"Statement": [{**ALLOW_GET, "Action": "sts:AssumeRole"}]})
RESOURCE_DOCUMENT = json.dumps({"Statement": [{**ALLOW_GET, "Resource": "*"}]})
IDENTITY_DOCUMENT = json.dumps(
    {"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
)
INVALID_DOCUMENT = json.dumps({"Statement": [{"Effect": "Maybe", "Action": "s3:GetObject"}]})
SIZES = {"minSize": 0, "desiredSize": 1, "maxSize": 3}


def disk(encrypted: object) -> Object:
    return {"blockDeviceMappings": [{"ebs": {"encrypted": encrypted}}]}


def encoded(text: str) -> str:
    """Return user data."""
    return b64encode(text.encode()).decode()


def interface(**fields: object) -> Object:
    return {"networkInterfaces": [fields]}


# rule -> (valid inputs, invalid inputs, part of the message)
RULES: dict[str, tuple[Object, Object, str]] = {
    "size of a VPC": ({"cidrBlock": "10.0.0.0/16"}, {"cidrBlock": "10.0.0.0/8"}, "/16"),
    "border group of a VPC": (
        {"ipv6CidrBlockNetworkBorderGroup": "us-east-1", "assignGeneratedIpv6CidrBlock": True},
        {"ipv6CidrBlockNetworkBorderGroup": "us-east-1"},
        "requires assignGeneratedIpv6CidrBlock",
    ),
    "size of a subnet": ({"cidrBlock": "10.0.0.0/24"}, {"cidrBlock": "10.0.0.0/29"}, "/28"),
    "zonal NAT gateway": (
        {"subnetId": "s", "allocationId": "e"}, {"subnetId": "s"}, "Elastic IP address",
    ),
    "regional NAT gateway": (
        {"availabilityMode": "regional", "vpcId": "v"},
        {"availabilityMode": "regional", "vpcId": "v", "subnetId": "s"},
        "leave it out",
    ),
    "private NAT gateway": (
        {"connectivityType": "private", "subnetId": "s"},
        {"connectivityType": "private", "subnetId": "s", "allocationId": "e"},
        "no Elastic IP address",
    ),
    "host names of a VPC": (
        {"enableDnsHostnames": True},
        {"enableDnsHostnames": True, "enableDnsSupport": False},
        "need enableDnsSupport",
    ),
    "zone of a subnet": (
        {"availabilityZone": "us-east-1a"},
        {"availabilityZone": "us-east-1a", "availabilityZoneId": "use1-az1"},
        "leave one out",
    ),
    "targets of inline routes": (
        {"routes": [{"cidrBlock": "0.0.0.0/0", "gatewayId": "g"}]},
        {"routes": [{"cidrBlock": "0.0.0.0/0"}]},
        "exactly one target is required",
    ),
    "target of an association": (
        {"subnetId": "s"}, {"subnetId": "s", "gatewayId": "g"}, "one target",
    ),
    "protocol of a rule": ({"ipProtocol": "TCP"}, {"ipProtocol": "htcp"}, "Unknown protocol"),
    "protocol of a group's rule": ({"protocol": "6"}, {"protocol": "256"}, "Unknown protocol"),
    "inline protocol of ingress": (
        {"ingress": [{"protocol": "-1"}]}, {"ingress": [{"protocol": "any"}]}, "Unknown protocol",
    ),
    "inline protocol of egress": (
        {"egress": [{"protocol": "-1"}]}, {"egress": [{"protocol": "any"}]}, "Unknown protocol",
    ),
    "inline ports": (
        {"ingress": [{"protocol": "tcp", "fromPort": 22, "toPort": 22}]},
        {"ingress": [{"protocol": "-1", "fromPort": 22, "toPort": 22}]},
        "leave the ports out",
    ),
    "sources of a rule": (
        {"self": True}, {"self": True, "sourceSecurityGroupId": "sg-1"}, "exclude each other",
    ),
    "characters of a group's name": ({"name": "lustre"}, {"name": "Lüster"}, "has characters other than"),
    "description of a security group": (
        {"description": "Lustre (FSx)"}, {"description": "the client's"}, "has characters other than",
    ),
    "type of an endpoint": (
        {"serviceName": "com.amazonaws.us-east-1.s3"},
        {"serviceName": "com.amazonaws.us-east-1.ecr.api"},
        "does not match available service types",
    ),
    "actions of a lifecycle": (
        {"rules": [{"transitions": [{"days": 30, "storageClass": "STANDARD_IA"}],
                    "expiration": {"days": 60}}]},
        {"rules": [{"transitions": [{"days": 30, "storageClass": "GLACIER"}],
                    "expiration": {"days": 30}}]},
        "must be greater than",
    ),
    "URL of an identity provider": (
        {"url": "https://oidc.example/id"}, {"url": "http://oidc.example/id"}, "not an https URL",
    ),
    "name of a log group": ({"name": "/aws/eks"}, {"name": "aws/eks"}, "begins with aws/"),
    "rotation of a key": (
        {"enableKeyRotation": True, "rotationPeriodInDays": 90}, {"rotationPeriodInDays": 90},
        "needs enableKeyRotation",
    ),
    "policy of an endpoint": (
        {"policy": RESOURCE_DOCUMENT}, {"policy": INVALID_DOCUMENT}, "Effect must be",
    ),
    "target of a route": (
        {"gatewayId": "g"}, {"gatewayId": "g", "natGatewayId": "n"}, "one target",
    ),
    "destination of a route": (
        {"destinationCidrBlock": "0.0.0.0/0"},
        {"destinationCidrBlock": "0.0.0.0/0", "destinationPrefixListId": "pl-1"},
        "one destination",
    ),
    "IPv4 block of a route": (
        {"destinationCidrBlock": "0.0.0.0/0"}, {"destinationCidrBlock": "10.0.0.1"}, "prefix length",
    ),
    "IPv6 block of a route": (
        {"destinationIpv6CidrBlock": "::/0"},
        {"destinationIpv6CidrBlock": "0.0.0.0/0"},
        "not an IPv6 block",
    ),
    "inline routes": (
        {"routes": [{"cidrBlock": "0.0.0.0/0"}]}, {"routes": [{"cidrBlock": "everywhere"}]}, "CIDR",
    ),
    "inline IPv6 routes": (
        {"routes": [{"ipv6CidrBlock": "::/0"}]}, {"routes": [{"ipv6CidrBlock": "::"}]}, "prefix",
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
        "not a valid range",
    ),
    "one source of a rule": (
        {"cidrIpv4": "10.0.0.0/8"},
        {"cidrIpv4": "10.0.0.0/8", "referencedSecurityGroupId": "sg-1"},
        "exactly one",
    ),
    "IPv4 source of a rule": ({"cidrIpv4": "10.0.0.0/8"}, {"cidrIpv4": "10.0.0.1/8"}, "host bits"),
    "IPv6 source of a rule": ({"cidrIpv6": "::/0"}, {"cidrIpv6": "10.0.0.0/8"}, "IPv6"),
    "trust policy of a role": ({"assumeRolePolicy": TRUST}, {"assumeRolePolicy": IDENTITY_DOCUMENT}, "Principal"),
    "permissions boundary of a role": (
        {"permissionsBoundary": arn("iam", "policy/team/boundary")},
        {"permissionsBoundary": arn("iam", "role/boundary")},
        "not the ARN of a policy",
    ),
    "rule groups": (
        {"data": "groups: [{name: g, rules: [{record: up:sum, expr: sum(up)}]}]"},
        {"data": "groups: [{name: g, rules: []}]"},
        "at least one rule",
    ),
    "document of a policy": ({"policy": IDENTITY_DOCUMENT}, {"policy": INVALID_DOCUMENT}, "Allow or Deny"),
    "document of a role's policy": ({"policy": IDENTITY_DOCUMENT}, {"policy": "{}"}, "no Statement"),
    "policy of a bucket": ({"policy": RESOURCE_DOCUMENT}, {"policy": INVALID_DOCUMENT}, "Allow or Deny"),
    "policy of a repository": ({"policy": TRUST}, {"policy": INVALID_DOCUMENT}, "Allow or Deny"),
    "deletion window of a key": ({"deletionWindowInDays": 7}, {"deletionWindowInDays": 3}, "7 to 30"),
    "name of an alias": ({"name": "alias/mine"}, {"name": "mine"}, "alias/"),
    "name of a launch template": ({"name": "gpu"}, {"name": "g"}, "3 to 128"),
    "hop limit of the metadata service": (
        {"metadataOptions": {"httpPutResponseHopLimit": 64}},
        {"metadataOptions": {"httpPutResponseHopLimit": 65}},
        "1 to 64",
    ),
    "instance type of a launch template": (
        {"instanceType": "g5.xlarge"}, {"instanceType": "g5.tiny"}, "no such type",
    ),
    "user data of a launch template": (
        {"userData": encoded("x" * 16384)}, {"userData": encoded("x" * 16385)}, "16385 bytes, at most 16384",
    ),
    "security groups set once": (
        interface(securityGroups=["sg-1"]),
        {**interface(securityGroups=["sg-1"]), "vpcSecurityGroupIds": ["sg-1"]},
        "of each interface",
    ),
    "key of a disk": (
        {"blockDeviceMappings": [{"ebs": {"encrypted": "true", "kmsKeyId": "k"}}]},
        {"blockDeviceMappings": [{"ebs": {"kmsKeyId": "k"}}]},
        "requires encrypted",
    ),
    "KMS key of a repository": (
        {"encryptionConfigurations": [{"encryptionType": "KMS", "kmsKey": "k"}]},
        {"encryptionConfigurations": [{"kmsKey": "k"}]},
        "encryptionType KMS",
    ),
    "KMS key of a bucket": (
        {"rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "k"}}]},
        {"rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256", "kmsMasterKeyId": "k"}}]},
        "sseAlgorithm aws:kms",
    ),
    "positions of EFA interfaces": (
        interface(networkCardIndex=1, deviceIndex=1, interfaceType="efa-only"),
        interface(networkCardIndex=0, deviceIndex=0, interfaceType="efa-only"),
        "carries IP",
    ),
    "number of EFA interfaces": (
        {"instanceType": "g5.12xlarge", **interface(interfaceType="efa")},
        {"instanceType": "g5.xlarge", **interface(interfaceType="efa")},
        "at most 0",
    ),
    "boolean string in ebsOptimized": ({"ebsOptimized": "true"}, {"ebsOptimized": "yes"}, "true and false"),
    "end of an object's retention": (
        {"objectLockRetainUntilDate": "2027-01-01T00:00:00Z"},
        {"objectLockRetainUntilDate": "20270101T000000Z"},
        "2026-01-31T00:00:00Z",
    ),
    "boolean string in blockDeviceMappings.*.ebs.encrypted": (disk("true"), disk("yes"), "true and false"),
    "boolean string in blockDeviceMappings.*.ebs.deleteOnTermination": (
        {"blockDeviceMappings": [{"ebs": {"deleteOnTermination": "false"}}]},
        {"blockDeviceMappings": [{"ebs": {"deleteOnTermination": "no"}}]},
        "true and false",
    ),
    "boolean string in networkInterfaces.*.deleteOnTermination": (
        interface(deleteOnTermination="true"), interface(deleteOnTermination="maybe"), "true and false",
    ),
    "boolean string in networkInterfaces.*.associatePublicIpAddress": (
        interface(associatePublicIpAddress="true"), interface(associatePublicIpAddress="1"), "true and false",
    ),
    "version of a cluster": ({"version": "1.36"}, {"version": "1.29"}, "not one of"),
    "endpoints of a cluster": (
        {"vpcConfig": {"endpointPublicAccess": False, "endpointPrivateAccess": True}},
        {"vpcConfig": {"endpointPublicAccess": False}},
        "both off",
    ),
    "VPC of a cluster": (
        {"vpcConfig": {"subnetIds": ["s", "t"]}}, {"vpcConfig": {"vpcId": "vpc-1"}}, "EKS sets it",
    ),
    "security group of a cluster": (
        {"vpcConfig": {"securityGroupIds": ["sg-1"]}},
        {"vpcConfig": {"clusterSecurityGroupId": "sg-1"}},
        "EKS sets it",
    ),
    "IPv6 Service CIDR of a cluster": (
        {"kubernetesNetworkConfig": {"ipFamily": "ipv6"}},
        {"kubernetesNetworkConfig": {"serviceIpv6Cidr": "fd00::/108"}},
        "EKS sets it",
    ),
    "public ranges of a cluster": (
        {"vpcConfig": {"publicAccessCidrs": ["203.0.113.0/24"]}},
        {"vpcConfig": {"publicAccessCidrs": ["10.0.0.0/8"]}},
        "private range",
    ),
    "subnets of a cluster": (
        {"vpcConfig": {"subnetIds": ["a", "b"]}}, {"vpcConfig": {"subnetIds": []}}, "at least two",
    ),
    "Service CIDR of a cluster": (
        {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16"}},
        {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/8"}},
        "CIDR",
    ),
    "Auto Mode complete": ({}, {"computeConfig": {"enabled": True}}, "all on or all off"),
    "sizes of a node group": (
        {"scalingConfig": SIZES}, {"scalingConfig": {**SIZES, "desiredSize": 9}}, "must hold",
    ),
    "launch template of a node group": (
        {"launchTemplate": {"id": "lt-1", "version": "1"}},
        {"launchTemplate": {"id": "lt-1", "version": "1"}, "diskSize": 100},
        "in the launch template instead",
    ),
    "template version of a node group": (
        {"launchTemplate": {"version": "$Latest"}}, {"launchTemplate": {"version": ""}}, "$Latest",
    ),
    "labels and taints of a node group": (
        {"labels": {"everstep.dev/pool": "gpu-spot"}},
        {"labels": {"eks.amazonaws.com/nodegroup": "x"}},
        "reserved for the service",
    ),
    "syntax of a node group's labels": (
        {"labels": {"everstep.dev/pool": "gpu-spot"}}, {"labels": {"bad key!": "a"}}, "not a valid label key",
    ),
    "subnets of a node group": ({"subnetIds": ["s"]}, {"subnetIds": []}, "at least one"),
    "Kubernetes version of a node group": ({"version": "1.36"}, {"version": ""}, "such as 1.36"),
    "format of a release version": (
        {"releaseVersion": "1.36.0-20261101"}, {"releaseVersion": "1.36-latest"}, "1.36.0-20261101",
    ),
    "release of a node group": (
        {"version": "1.36", "releaseVersion": "1.36.2-20261101"},
        {"version": "1.36", "releaseVersion": "1.35.2-20261101"},
        "not a release for Kubernetes 1.36",
    ),
    "unavailable nodes": (
        {"updateConfig": {"maxUnavailable": 100}}, {"updateConfig": {"maxUnavailable": 0}}, "1 to 100",
    ),
    "update of a node group": (
        {"updateConfig": {"maxUnavailable": 1}},
        {"updateConfig": {"maxUnavailable": 1, "maxUnavailablePercentage": 10}},
        "either",
    ),
    "image of a node group": (
        {"amiType": "AL2023_x86_64_NVIDIA"}, {"amiType": "AL2_x86_64_GPU"}, "no Amazon Linux 2",
    ),
    "types of a node group": (
        {"instanceTypes": ["g5.xlarge"]}, {"instanceTypes": ["p3.2xlarge"]}, "retired",
    ),
    "name of an add-on": ({"addonName": "vpc-cni"}, {"addonName": "cni"}, "not an add-on"),
    "version of an add-on": (
        {"addonVersion": "v1.20.4-eksbuild.2"}, {"addonVersion": "1.20"}, "not of the form",
    ),
    "configuration of an add-on": (
        {"configurationValues": "{}"}, {"configurationValues": "much"}, "neither JSON nor YAML",
    ),
    "principal of an entry": (
        {"principalArn": arn("iam", "role/admin")}, {"principalArn": "admin"}, "not the ARN",
    ),
    "access policy": (
        {"policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"},
        {"policyArn": "arn:aws:iam::aws:policy/AmazonEKSViewPolicy"},
        "not an access policy",
    ),
    "scope of an access policy": (
        {"accessScope": {"type": "cluster"}}, {"accessScope": {"type": "namespace"}}, "at least one",
    ),
    "namespace of a pod identity": (
        {"namespace": "elastic-job"}, {"namespace": "Elastic Job"}, "not a valid Kubernetes name",
    ),
    "storage of a file system": (
        {"deploymentType": "PERSISTENT_1", "storageType": "HDD"},
        {"deploymentType": "PERSISTENT_2", "storageType": "HDD"},
        "allows only SSD, INTELLIGENT_TIERING",
    ),
    "drive cache of a file system": (
        {"storageType": "HDD", "driveCacheType": "READ"}, {"storageType": "HDD"}, "NONE or READ",
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
    "PERSISTENT only": (
        {"deploymentType": "PERSISTENT_2", "kmsKeyId": "k"},
        {"deploymentType": "SCRATCH_2", "kmsKeyId": "k"},
        "requires a PERSISTENT",
    ),
    "Intelligent-Tiering only": (
        {}, {"throughputCapacity": 4000}, "only INTELLIGENT_TIERING: leave it out",
    ),
    "Intelligent-Tiering of a file system": (
        {"storageType": "INTELLIGENT_TIERING", "throughputCapacity": 8000,
         "dataReadCacheConfiguration": {"sizingMode": "NO_CACHE"}},
        {"storageType": "INTELLIGENT_TIERING", "throughputCapacity": 5000,
         "dataReadCacheConfiguration": {"sizingMode": "NO_CACHE"}},
        "a multiple of 4000 MB/s",
    ),
    "Lustre version of a file system": (
        {"deploymentType": "PERSISTENT_2", "fileSystemTypeVersion": "2.12"},
        {"deploymentType": "PERSISTENT_2", "fileSystemTypeVersion": "2.10"},
        "needs 2.12 or 2.15",
    ),
    "metadata of a file system": (
        {"metadataConfiguration": {"mode": "USER_PROVISIONED", "iops": 24000}},
        {"metadataConfiguration": {"mode": "AUTOMATIC", "iops": 12000}},
        "FSx sets it in the mode AUTOMATIC",
    ),
    "EFA of a file system": (
        {}, {"efaEnabled": True, "deploymentType": "SCRATCH_2"}, "PERSISTENT_2",
    ),
    "one zone of a file system": (
        {"subnetIds": "subnet-1"}, {"subnetIds": "subnet-1,subnet-2"}, "one zone",
    ),
    "path of an association": ({"fileSystemPath": "/"}, {"fileSystemPath": "data"}, "begin with /"),
    "bucket path of an association": (
        {"dataRepositoryPath": "s3://mine/data"}, {"dataRepositoryPath": "mine/data"}, "s3://bucket",
    ),
    "events of an association": (
        {"s3": {"autoImportPolicy": {"events": ["NEW"]}}},
        {"s3": {"autoImportPolicy": {"events": ["NEW", "NEW"]}}},
        "each once",
    ),
    "name of a bucket": ({"bucket": "everstep-dev"}, {"bucket": "my..bucket"}, "valid bucket name"),
    "rules of a lifecycle": ({"rules": [{"id": "old"}]}, {"rules": []}, "at least one"),
    "ids of lifecycle rules": ({"rules": [{"id": "old"}]}, {"rules": [{"id": ""}]}, "1 to 255"),
    "lifecycle expiration.days": (
        {"rules": [{"expiration": {"days": 1}}]}, {"rules": [{"expiration": {"days": 0}}]}, "0 days",
    ),
    "lifecycle expiration.date": (
        {"rules": [{"expiration": {"date": "2027-01-01T00:00:00Z"}}]},
        {"rules": [{"expiration": {"date": ""}}]},
        "not a date and time",
    ),
    "lifecycle transitions.*.date": (
        {"rules": [{"transitions": [{"date": "2027-01-01T00:00:00Z"}]}]},
        {"rules": [{"transitions": [{"date": "2027-01-01"}]}]},
        "not a date and time",
    ),
    "lifecycle noncurrentVersionExpiration.noncurrentDays": (
        {"rules": [{"noncurrentVersionExpiration": {"noncurrentDays": 1}}]},
        {"rules": [{"noncurrentVersionExpiration": {"noncurrentDays": 0}}]},
        "0 days",
    ),
    "lifecycle abortIncompleteMultipartUpload.daysAfterInitiation": (
        {"rules": [{"abortIncompleteMultipartUpload": {"daysAfterInitiation": 1}}]},
        {"rules": [{"abortIncompleteMultipartUpload": {"daysAfterInitiation": 0}}]},
        "0 days",
    ),
    "lifecycle of a repository": ({"policy": '{"rules": []}'}, {"policy": "{"}, "not valid JSON"),
    "retention of a log group": ({"retentionInDays": 30}, {"retentionInDays": 31}, "not one of"),
    "subscribers of a budget": (
        {"notifications": [{"subscriberEmailAddresses": ["a@b"]}]},
        {"notifications": [{"threshold": 80}]},
        "at least one subscriber",
    ),
    "limit of a budget": (
        {"limitAmount": "5", "limitUnit": "USD"}, {"limitAmount": "5"}, "limitUnit",
    ),
    "addresses of a budget": (
        {"notifications": [{"subscriberEmailAddresses": ["a@b"]}]},
        {"notifications": [{"subscriberEmailAddresses": ["ab"]}]},
        "not an email address",
    ),
    "topics of a budget": (
        {"notifications": [{"subscriberSnsTopicArns": ["arn:aws:sns:us-east-1:1:t"]}]},
        {"notifications": [{"subscriberSnsTopicArns": ["t"]}]},
        "SNS topic",
    ),
    "timePeriodStart of a budget": (
        {"timePeriodStart": "2026-01-01_00:00"}, {"timePeriodStart": "2026-01-01"}, "_00:00",
    ),
    "timePeriodEnd of a budget": (
        {"timePeriodEnd": "2027-01-01_00:00"}, {"timePeriodEnd": "never"}, "_00:00",
    ),
}  # fmt: skip


def resource(token: str, identity: str, inputs: Object, **outputs: object) -> Resource:
    return Resource(
        token=token, id=identity, urn=f"urn::{identity}", inputs=inputs, outputs=outputs
    )


def role(name: str, service: str, *actions: str) -> Resource:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions)}
    trust = json.dumps({"Statement": [statement]})
    return resource(
        ROLE, name, {"assumeRolePolicy": trust}, arn=arn("iam", f"role/{name}"), name=name
    )


def attachment(role: str, policy: str) -> Resource:
    policy_arn = f"arn:aws:iam::aws:policy/{policy}"
    return resource(ATTACHMENT, f"{role}/{policy}", {"role": role, "policyArn": policy_arn})


def subnet(name: str, zone: str, block: str) -> Resource:
    return resource(
        SUBNET, name, {"vpcId": "vpc-1", "cidrBlock": block}, availabilityZone=zone, vpcId="vpc-1"
    )


def cluster(version: str = "1.36") -> Resource:
    return resource(
        CLUSTER, "c", {"bootstrapSelfManagedAddons": False, "version": version}, name="c",
        version=version, vpcConfig={"clusterSecurityGroupId": "sg-c"},
    )  # fmt: skip


SUBNET_A, SUBNET_B, SUBNET_C = (
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
POD_ROLE, INCOMPLETE_POD_ROLE = (
    role("pod", "pods.eks.amazonaws.com", ASSUME, TAG),
    role("incomplete", "pods.eks.amazonaws.com", ASSUME),
)
WORKER = attachment("n", "AmazonEKSWorkerNodePolicy")
PULL = attachment("n", "AmazonEC2ContainerRegistryPullOnly")
CNI = resource(ADDON, "c:vpc-cni", {"clusterName": "c", "addonName": "vpc-cni"})
TABLE_ASSOCIATION = resource(ASSOCIATION, "w", {"subnetId": "subnet-a", "routeTableId": "rtb-1"})
DEFAULT_ROUTE = resource(
    ROUTE, "r", {"routeTableId": "rtb-1", "destinationCidrBlock": "0.0.0.0/0", "natGatewayId": "n"}
)
NODE = {"clusterName": "c", "nodeRoleArn": arn("iam", "role/n"), "subnetIds": ["subnet-a"]}
EFA_TEMPLATE = resource(
    TEMPLATE, "lt-1", {"networkInterfaces": [{"interfaceType": "efa"}]}, latestVersion=2
)
RESERVED = {
    "instanceType": "p5.48xlarge",
    "capacityReservationSpecification": {
        "capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}
    },
    "instanceMarketOptions": {"marketType": "capacity-block"},
}
TEMPLATED = {**NODE, "launchTemplate": {"id": "lt-1"}}
MULTIPART = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="part"

--part
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/sh
--part--
"""
LUSTRE = [
    resource(
        INGRESS, f"sgr-{low}",
        {"securityGroupId": "sg-f", "referencedSecurityGroupId": "sg-f", "ipProtocol": "tcp",
         "fromPort": low, "toPort": high},
    )
    for low, high in ((988, 988), (1018, 1023))
]  # fmt: skip
FILE_SYSTEM_INPUTS = {
    "subnetIds": "subnet-a",
    "securityGroupIds": ["sg-f"],
    "storageCapacity": 1200,
}
MAIN_TABLE = resource(TABLE, "rtb-1", {"vpcId": "vpc-1"})
S3_ENDPOINT = {"vpcId": "vpc-1", "serviceName": "com.amazonaws.us-east-1.s3"}
GROUP_F = resource(GROUP, "sg-f", {"vpcId": "vpc-1"})
LINK_INPUTS = {
    "fileSystemId": "fs-1",
    "fileSystemPath": "/",
    "dataRepositoryPath": "s3://mine",
}
LINK = resource(DATA_REPOSITORY, "dra-1", LINK_INPUTS)

# precondition -> (type, inputs, an account in which it holds, an account in which it fails, part of the message)
PRECONDITIONS: dict[str, tuple[str, Object, list[Resource], list[Resource], str]] = {
    "subnet in its VPC": (
        SUBNET, {"vpcId": "vpc-1", "cidrBlock": "10.0.3.0/24"},
        [THE_VPC], [resource(VPC, "vpc-1", {"cidrBlock": "10.1.0.0/16"})], "is not in",
    ),
    "subnets do not overlap": (
        SUBNET, {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/24"}, [SUBNET_B], [SUBNET_A], "conflicts",
    ),
    "Internet gateway of a NAT gateway": (
        NAT, {"subnetId": "subnet-a"},
        [SUBNET_A, resource(GATEWAY, "igw-1", {"vpcId": "vpc-1"})], [SUBNET_A], "no Internet gateway",
    ),
    "ACL of a bucket": (BUCKET, {"acl": "public-read"}, [], [], "cannot have ACLs"),
    "public policy of a bucket": (
        BUCKET_POLICY, {"bucket": "b", "policy": RESOURCE_DOCUMENT},
        [resource(PUBLIC_ACCESS_BLOCK, "b", {"bucket": "b", "blockPublicPolicy": False})], [],
        "public policies are blocked",
    ),
    "bucket of a policy": (
        BUCKET_POLICY,
        {"bucket": "b", "policy": {"Statement": [{**ALLOW_GET, "Resource": "arn:aws:s3:::other/*"}]}},
        [], [], "invalid resource",
    ),
    "one Internet gateway of a VPC": (
        GATEWAY, {"vpcId": "vpc-1"}, [resource(GATEWAY, "igw-2", {"vpcId": "vpc-2"})],
        [resource(GATEWAY, "igw-1", {"vpcId": "vpc-1"})], "already has an internet gateway attached",
    ),
    "address of a NAT gateway": (
        NAT, {"allocationId": "eipalloc-1"}, [resource(NAT, "nat-2", {"allocationId": "eipalloc-2"})],
        [resource(NAT, "nat-1", {"allocationId": "eipalloc-1"})], "already associated",
    ),
    "route in one VPC": (
        ROUTE, {"routeTableId": "rtb-1", "natGatewayId": "nat-1"},
        [MAIN_TABLE, resource(NAT, "nat-1", {"subnetId": "subnet-a"}), SUBNET_A],
        [MAIN_TABLE, resource(NAT, "nat-1", {"vpcId": "vpc-2"})], "belong to different networks",
    ),
    "inline routes in one VPC": (
        TABLE, {"vpcId": "vpc-1", "routes": [{"gatewayId": "igw-1"}]},
        [resource(GATEWAY, "igw-1", {"vpcId": "vpc-1"})],
        [resource(GATEWAY, "igw-1", {"vpcId": "vpc-2"})], "belong to different networks",
    ),
    "table in the VPC of a subnet": (
        ASSOCIATION, {"subnetId": "subnet-a", "routeTableId": "rtb-1"}, [SUBNET_A, MAIN_TABLE],
        [SUBNET_A, resource(TABLE, "rtb-1", {"vpcId": "vpc-2"})], "belong to different networks",
    ),
    "groups of a rule in one VPC": (
        INGRESS, {"securityGroupId": "sg-f", "referencedSecurityGroupId": "sg-1"},
        [GROUP_F, resource(GROUP, "sg-1", {"vpcId": "vpc-1"})],
        [GROUP_F, resource(GROUP, "sg-1", {"vpcId": "vpc-2"})], "belong to different networks",
    ),
    "DNS of the VPC of an endpoint": (
        ENDPOINT, {"vpcId": "vpc-1", "privateDnsEnabled": True},
        [resource(VPC, "vpc-1", {"enableDnsHostnames": True})], [THE_VPC], "requires both",
    ),
    "zones of an endpoint": (
        ENDPOINT, {"subnetIds": ["subnet-a", "subnet-b", "subnet-c"]},
        [SUBNET_A, SUBNET_B], [SUBNET_A, SUBNET_B, SUBNET_C], "in the availability zone of subnet-c",
    ),
    "route tables of an endpoint": (
        ENDPOINT, {**S3_ENDPOINT, "routeTableIds": ["rtb-1", "rtb-2"]},
        [resource(ENDPOINT, "vpce-1", {**S3_ENDPOINT, "routeTableIds": ["rtb-3"]})],
        [resource(ENDPOINT, "vpce-1", {**S3_ENDPOINT, "routeTableIds": ["rtb-2"]})],
        "already has a route",
    ),
    "domain of an endpoint": (
        ENDPOINT, {**S3_ENDPOINT, "privateDnsEnabled": True},
        [resource(ENDPOINT, "vpce-1", {**S3_ENDPOINT, "privateDnsEnabled": False})],
        [resource(ENDPOINT, "vpce-1", {**S3_ENDPOINT, "privateDnsEnabled": True})],
        "conflicting DNS domain",
    ),
    "AWS managed policy exists": (
        ATTACHMENT, {"policyArn": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicie"},
        [], [], "did you mean AmazonEKSClusterPolicy",
    ),
    "release of nodes": (
        NODES, {**NODE, "releaseVersion": "1.36.0-20261101"}, [cluster("1.36")], [cluster("1.35")],
        "invalid for kubernetes version 1.35",
    ),
    "AWS managed boundary exists": (
        ROLE, {"permissionsBoundary": "arn:aws:iam::aws:policy/PowerUser"}, [], [], "does not exist",
    ),
    "placement group exists": (
        TEMPLATE, {"placement": {"groupName": "near"}}, [resource(PLACEMENT, "near", {})], [], "unknown",
    ),
    "role of a cluster": (CLUSTER, {"roleArn": arn("iam", "role/eks")}, [EKS_ROLE],
                          [role("eks", "ec2.amazonaws.com", ASSUME)], "does not let eks.amazonaws.com"),
    "permissions of a cluster": (CLUSTER, {"roleArn": arn("iam", "role/eks")},
                            [EKS_ROLE, attachment("eks", "AmazonEKSClusterPolicy")], [EKS_ROLE], "lacks"),
    "zones of a cluster": (CLUSTER, {"vpcConfig": {"subnetIds": ["subnet-a", "subnet-b", "subnet-c"]}},
                           [SUBNET_A, SUBNET_B, SUBNET_C], [SUBNET_A, SUBNET_C], "two different AZs"),
    "Services outside the VPC": (
        CLUSTER,
        {"vpcConfig": {"subnetIds": ["subnet-a"]}, "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.0.0.0/20"}},
        [SUBNET_A, resource(VPC, "vpc-1", {"cidrBlock": "10.1.0.0/16"})], [SUBNET_A, THE_VPC],
        "10.0.0.0/20 overlaps with the block 10.0.0.0/16 of vpc-1",
    ),
    "role of nodes": (NODES, NODE, [NODE_ROLE], [role("n", "eks.amazonaws.com", ASSUME)], "ec2.amazonaws.com"),
    "permissions of nodes": (NODES, NODE, [NODE_ROLE, WORKER], [NODE_ROLE, PULL], "AmazonEKSWorkerNodePolicy"),
    "nodes pull images": (NODES, NODE, [NODE_ROLE, PULL], [NODE_ROLE, WORKER], "may not pull"),
    "nodes have a network plugin": (NODES, NODE, [cluster(), CNI], [cluster()], "cni plugin not initialized"),
    "nodes have an egress route": (
        NODES, NODE, [SUBNET_A, TABLE_ASSOCIATION, DEFAULT_ROUTE], [SUBNET_A, TABLE_ASSOCIATION], "no egress route",
    ),
    "version of a template": (NODES, {**NODE, "launchTemplate": {"id": "lt-1", "version": "2"}}, [EFA_TEMPLATE],
                              [resource(TEMPLATE, "lt-1", {}, latestVersion=1)], "has no version 2"),
    "one type with EFA": (
        NODES, {**NODE, "launchTemplate": {"id": "lt-1"}, "instanceTypes": ["g5.12xlarge", "g6.12xlarge"]},
        [resource(TEMPLATE, "lt-1", {}, latestVersion=1)], [EFA_TEMPLATE], "one instance type",
    ),
    "instance types in the node group or in its template": (
        NODES, {**TEMPLATED, "instanceTypes": ["p5.48xlarge"]}, [EFA_TEMPLATE], [resource(TEMPLATE, "lt-1", RESERVED)],
        "not in both",
    ),
    "inputs of a node group's template": (
        NODES, TEMPLATED, [EFA_TEMPLATE],
        [resource(TEMPLATE, "lt-1", {"iamInstanceProfile": {"name": "nodes"}})], "lt-1 has iamInstanceProfile",
    ),
    "user data of a node group": (
        NODES, TEMPLATED, [resource(TEMPLATE, "lt-1", {"userData": encoded(MULTIPART)})],
        [resource(TEMPLATE, "lt-1", {"userData": encoded("#!/bin/sh\n")})],
        "User data was not in the MIME multipart format",
    ),
    "market options of a template": (
        NODES, TEMPLATED, [resource(TEMPLATE, "lt-1", RESERVED)],
        [resource(TEMPLATE, "lt-1", {"instanceMarketOptions": {"marketType": "spot"}})], "use capacityType",
    ),
    "Capacity Block of a node group": (
        NODES, {**TEMPLATED, "capacityType": "CAPACITY_BLOCK"}, [resource(TEMPLATE, "lt-1", RESERVED)],
        [resource(TEMPLATE, "lt-1", {**RESERVED, "capacityReservationSpecification": {}})], "its reservation",
    ),
    "version of nodes": (NODES, {**NODE, "version": "1.36"}, [cluster()], [cluster("1.35")], "older than cluster"),
    "role of an add-on": (
        ADDON, {"podIdentityAssociations": [{"roleArn": arn("iam", "role/pod")}]}, [POD_ROLE],
        [role("pod", "pods.eks.amazonaws.com", ASSUME)], "sts:TagSession",
    ),
    "version of an add-on for the cluster": (
        ADDON, {"clusterName": "c", "addonName": "kube-proxy", "addonVersion": "v1.36.0-eksbuild.7"},
        [cluster()], [cluster("1.35")], "Addon version specified is not supported",
    ),
    "nodes for an add-on": (ADDON, {"clusterName": "c", "addonName": "coredns"},
                            [cluster(), resource(NODES, "c:n", NODE)], [cluster()], "InsufficientNumberOfReplicas"),
    "entry of a policy": (ACCESS, {"clusterName": "c", "principalArn": "p"},
                          [resource(ENTRY, "c:p", {"clusterName": "c", "principalArn": "p"})], [], "no access entry"),
    "role of a pod": (
        POD_IDENTITY, {"roleArn": arn("iam", "role/incomplete")}, [POD_ROLE], [INCOMPLETE_POD_ROLE], "sts:TagSession",
    ),
    "Lustre ports between servers": (
        FILE_SYSTEM, FILE_SYSTEM_INPUTS, [SUBNET_A, GROUP_F, *LUSTRE], [SUBNET_A, GROUP_F, LUSTRE[0]], "1018-1023",
    ),
    "bucket of an association": (DATA_REPOSITORY, LINK_INPUTS, [resource(BUCKET, "mine", {})], [], "does not exist"),
    "associations do not overlap": (DATA_REPOSITORY, {**LINK_INPUTS, "fileSystemPath": "/data"},
                           [resource(DATA_REPOSITORY, "dra-1", {**LINK_INPUTS, "fileSystemPath": "/runs"})], [LINK],
                           "overlaps"),
    "no backups of a linked file system": (
        DATA_REPOSITORY, LINK_INPUTS, [resource(FILE_SYSTEM, "fs-1", {"deploymentType": "PERSISTENT_2"})],
        [resource(FILE_SYSTEM, "fs-1", {"automaticBackupRetentionDays": 7})], "S3-linked",
    ),
    "no backups while linked": (
        FILE_SYSTEM, {**FILE_SYSTEM_INPUTS, "automaticBackupRetentionDays": 7}, [],
        [resource(DATA_REPOSITORY, "dra-1", {**LINK_INPUTS, "fileSystemId": "new"})], "S3-linked",
    ),
    "file system of an association": (DATA_REPOSITORY, LINK_INPUTS,
                               [resource(FILE_SYSTEM, "fs-1", {"deploymentType": "SCRATCH_2"})],
                               [resource(FILE_SYSTEM, "fs-1", {})], "SCRATCH_1"),
}  # fmt: skip
# No account makes these pass.
NEVER_HOLDS = {
    "AWS managed policy exists", "AWS managed boundary exists", "ACL of a bucket", "bucket of a policy",
}  # fmt: skip
CHANGE_RULES = {  # see test_changes.py
    "upgrade by one minor version", "nodes updated before the cluster", "no version downgrade of nodes",
    "a file system only grows", "Lustre version only grows",
    "zones of a cluster stay",
}  # fmt: skip
ACCOUNTS = {
    name: (Inventory(tuple(holding)), Inventory(tuple(violating)))
    for name, (_, _, holding, violating, _) in PRECONDITIONS.items()
}
