"""The types of AWS resources that a stack does not declare, because it uses existing ones or an option is off.

A team that brings its own VPC or file system often has a policy that denies the actions to create one.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from components.config import EksConfig, StackConfig

NETWORK = (
    "aws:ec2/eip:Eip",
    "aws:ec2/internetGateway:InternetGateway",
    "aws:ec2/natGateway:NatGateway",
    "aws:ec2/route:Route",
    "aws:ec2/routeTable:RouteTable",
    "aws:ec2/routeTableAssociation:RouteTableAssociation",
    "aws:ec2/subnet:Subnet",
    "aws:ec2/vpc:Vpc",
    "aws:ec2/vpcEndpoint:VpcEndpoint",
)
BUCKET = (
    "aws:s3/bucket:Bucket",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    "aws:s3/bucketPolicy:BucketPolicy",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:s3/bucketVersioning:BucketVersioning",
)
FILE_SYSTEM = (
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:s3/bucketObjectv2:BucketObjectv2",
    *BUCKET,
)
SECURITY_GROUPS = (
    "aws:ec2/securityGroup:SecurityGroup",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
)
EFA = ("aws:autoscaling/tag:Tag", "aws:ec2/placementGroup:PlacementGroup")
REGISTRY = (
    "aws:ecr/lifecyclePolicy:LifecyclePolicy",
    "aws:ecr/repository:Repository",
    "aws:ecr/repositoryPolicy:RepositoryPolicy",
)
ACCESS = (
    "aws:eks/accessEntry:AccessEntry",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
)
METRICS = ("aws:amp/workspace:Workspace", "aws:amp/ruleGroupNamespace:RuleGroupNamespace")
BUDGET = ("aws:budgets/budget:Budget",)
KEYS = ("aws:kms/key:Key", "aws:kms/alias:Alias")


def undeclared_types(config: "StackConfig", cluster: "EksConfig") -> frozenset[str]:
    """Return the types of resources that a stack with these options does not declare."""
    storage = config.storage
    has_file_system = storage.kind == "fsx" and storage.existing is not None
    has_bucket = storage.kind == "fsx" and storage.bucket is not None
    uses_efa = any(pool.settings.efa for pool in cluster.pools)
    unused = (
        (NETWORK, cluster.network.vpc_id is not None),
        (FILE_SYSTEM, has_file_system),
        (BUCKET, has_bucket),
        (SECURITY_GROUPS, has_file_system and not uses_efa),
        (EFA, not uses_efa),
        (REGISTRY, config.registry.kind != "ecr"),
        (ACCESS, not cluster.administrators),
        (METRICS, not cluster.monitoring.managed_prometheus),
        (BUDGET, config.cost.budget is None),
        (KEYS, cluster.kms_key_arn is not None),
    )
    return frozenset(token for tokens, is_unused in unused if is_unused for token in tokens)
