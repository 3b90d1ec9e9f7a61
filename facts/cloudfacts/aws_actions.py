"""The IAM actions by which Pulumi creates, reads, changes and deletes each type of AWS resource.

The provider has default tags, so that each type that can have tags needs the actions for them, even to create one.

The table covers only the types that the twin supports. Source: Service Authorization Reference and the operations of
the Terraform provider that Pulumi's AWS provider is built on, 2026-11-22.
"""

from collections.abc import Collection, Mapping

ALWAYS = ("sts:GetCallerIdentity", "eks:DescribeAddonVersions", "ec2:DescribeAccountAttributes")
"""Actions of the provider itself and of its functions."""

PUSH = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:GetAuthorizationToken",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
)
"""Actions of a push. Source: ECR User Guide, "IAM permissions for pushing an image", 2026-11-25; the two that read an
image are for its digest, and for layers that the next build reuses."""

STATE_KEY = ("kms:Decrypt", "kms:Encrypt")
"""Actions on the KMS key of the stack's secrets. Source: gocloud.dev/secrets/awskms, which Pulumi uses."""

STATE = ("s3:DeleteObject", "s3:GetObject", "s3:ListBucket", "s3:PutObject")
"""Actions on the bucket of the state. Source: Pulumi, "State and backends", AWS S3, 2026-11-25."""

DOCTOR = (
    "ec2:DescribeAddresses",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeVpcs",
    "ecr:DescribeImages",
    "eks:DescribeAddonVersions",
    "eks:DescribeCluster",
    "fsx:DescribeFileSystems",
    "iam:GetRole",
    "iam:SimulatePrincipalPolicy",
    "kms:DescribeKey",
    "logs:DescribeLogGroups",
    "logs:ListTagsForResource",
    "servicequotas:GetAWSDefaultServiceQuota",
    "servicequotas:GetServiceQuota",
    "sts:GetCallerIdentity",
)
"""Actions of `everstep doctor`; it reports `not checked` where one is missing."""

TASKS: Mapping[str, tuple[str, ...]] = {
    "`everstep images push`, on the stack's repositories": PUSH,
    "the state, on its bucket": STATE,
    "the stack's secrets, on their key": STATE_KEY,
    "`everstep doctor`": DOCTOR,
    "the workflow `teardown`": (
        "fsx:CreateDataRepositoryTask",
        "fsx:DescribeDataRepositoryTasks",
        "logs:DeleteLogGroup",
    ),
    "`everstep plan --live`": ("ec2:DescribeSpotPriceHistory",),
}
"""Task other than managing a stack's resources -> actions."""

UNSCOPED = frozenset(
    {
        "autoscaling:DescribeTags",
        "ec2:DescribeAccountAttributes",
        "ec2:DescribeAddresses",
        "ec2:DescribeInternetGateways",
        "ec2:DescribeLaunchTemplateVersions",
        "ec2:DescribeLaunchTemplates",
        "ec2:DescribeNatGateways",
        "ec2:DescribeNetworkAcls",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribePlacementGroups",
        "ec2:DescribePrefixLists",
        "ec2:DescribeRouteTables",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
        "ec2:DescribeTags",
        "ec2:DescribeVpcEndpoints",
        "ec2:DescribeVpcs",
        "ecr:GetAuthorizationToken",
        "kms:CreateKey",
        "kms:ListAliases",
    }
)
"""Actions that IAM allows on all resources or not at all. Source: Service Authorization Reference, 2026-11-25; the
list has only actions that a stack needs, but not all of them."""

EC2_TAGS = ("ec2:CreateTags", "ec2:DeleteTags", "ec2:DescribeTags")
EKS_TAGS = ("eks:TagResource", "eks:UntagResource")  # the descriptions of EKS contain the tags
RULES = (
    "ec2:DescribeSecurityGroupRules",
    "ec2:ModifySecurityGroupRules",
    "ec2:DescribeSecurityGroups",
)

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "aws:amp/ruleGroupNamespace:RuleGroupNamespace": (
        "aps:CreateRuleGroupsNamespace",
        "aps:DeleteRuleGroupsNamespace",
        "aps:DescribeRuleGroupsNamespace",
        "aps:ListTagsForResource",
        "aps:PutRuleGroupsNamespace",
        "aps:TagResource",
        "aps:UntagResource",
    ),
    "aws:amp/workspace:Workspace": (
        "aps:CreateWorkspace",
        "aps:DeleteWorkspace",
        "aps:DescribeLoggingConfiguration",
        "aps:DescribeWorkspace",
        "aps:ListTagsForResource",
        "aps:TagResource",
        "aps:UntagResource",
        "aps:UpdateWorkspaceAlias",
    ),
    "aws:autoscaling/tag:Tag": (
        "autoscaling:CreateOrUpdateTags",
        "autoscaling:DeleteTags",
        "autoscaling:DescribeTags",
    ),
    "aws:budgets/budget:Budget": (
        "budgets:ListTagsForResource",
        "budgets:ModifyBudget",
        "budgets:TagResource",
        "budgets:UntagResource",
        "budgets:ViewBudget",
    ),
    "aws:cloudwatch/logGroup:LogGroup": (
        "logs:CreateLogGroup",
        "logs:DeleteLogGroup",
        "logs:DescribeLogGroups",
        "logs:ListTagsForResource",
        "logs:PutRetentionPolicy",
        "logs:TagResource",
        "logs:UntagResource",
    ),
    "aws:ec2/eip:Eip": (
        "ec2:AllocateAddress",
        "ec2:DescribeAddresses",
        "ec2:DescribeAddressesAttribute",
        "ec2:DisassociateAddress",
        "ec2:ReleaseAddress",
    ),
    "aws:ec2/internetGateway:InternetGateway": (
        "ec2:AttachInternetGateway",
        "ec2:CreateInternetGateway",
        "ec2:DeleteInternetGateway",
        "ec2:DescribeInternetGateways",
        "ec2:DetachInternetGateway",
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": (
        "ec2:CreateLaunchTemplate",
        "ec2:CreateLaunchTemplateVersion",
        "ec2:DeleteLaunchTemplate",
        "ec2:DescribeLaunchTemplateVersions",
        "ec2:DescribeLaunchTemplates",
        "ec2:ModifyLaunchTemplate",
        "ec2:RunInstances",
    ),
    "aws:ec2/natGateway:NatGateway": (
        "ec2:CreateNatGateway",
        "ec2:DeleteNatGateway",
        "ec2:DescribeNatGateways",
    ),
    "aws:ec2/placementGroup:PlacementGroup": (
        "ec2:CreatePlacementGroup",
        "ec2:DeletePlacementGroup",
        "ec2:DescribePlacementGroups",
    ),
    "aws:ec2/route:Route": (
        "ec2:CreateRoute",
        "ec2:DeleteRoute",
        "ec2:DescribeRouteTables",
        "ec2:ReplaceRoute",
    ),
    "aws:ec2/routeTable:RouteTable": (
        "ec2:CreateRouteTable",
        "ec2:DeleteRouteTable",
        "ec2:DescribeRouteTables",
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": (
        "ec2:AssociateRouteTable",
        "ec2:DisassociateRouteTable",
        "ec2:ReplaceRouteTableAssociation",
    ),
    "aws:ec2/securityGroup:SecurityGroup": (
        "ec2:CreateSecurityGroup",
        "ec2:DeleteSecurityGroup",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSecurityGroups",
        "ec2:RevokeSecurityGroupEgress",
    ),
    "aws:ec2/subnet:Subnet": (
        "ec2:CreateSubnet",
        "ec2:DeleteSubnet",
        "ec2:DescribeSubnets",
        "ec2:ModifySubnetAttribute",
    ),
    "aws:ec2/vpc:Vpc": (
        "ec2:CreateVpc",
        "ec2:DeleteVpc",
        "ec2:DescribeNetworkAcls",
        "ec2:DescribeVpcAttribute",
        "ec2:DescribeVpcs",
        "ec2:ModifyVpcAttribute",
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": (
        "ec2:CreateVpcEndpoint",
        "ec2:DeleteVpcEndpoints",
        "ec2:DescribePrefixLists",
        "ec2:DescribeVpcEndpoints",
        "ec2:ModifyVpcEndpoint",
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": (
        "ecr:DeleteLifecyclePolicy",
        "ecr:GetLifecyclePolicy",
        "ecr:PutLifecyclePolicy",
    ),
    "aws:ecr/repository:Repository": (
        "ecr:CreateRepository",
        "ecr:DeleteRepository",
        "ecr:DescribeRepositories",
        "ecr:ListTagsForResource",
        "ecr:PutImageScanningConfiguration",
        "ecr:PutImageTagMutability",
        "ecr:TagResource",
        "ecr:UntagResource",
    ),
    "aws:ecr/repositoryPolicy:RepositoryPolicy": (
        "ecr:DeleteRepositoryPolicy",
        "ecr:GetRepositoryPolicy",
        "ecr:SetRepositoryPolicy",
    ),
    "aws:eks/accessEntry:AccessEntry": (
        "eks:CreateAccessEntry",
        "eks:DeleteAccessEntry",
        "eks:DescribeAccessEntry",
        "eks:UpdateAccessEntry",
        *EKS_TAGS,
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        "eks:AssociateAccessPolicy",
        "eks:DisassociateAccessPolicy",
        "eks:ListAssociatedAccessPolicies",
    ),
    "aws:eks/addon:Addon": (
        "eks:CreateAddon",
        "eks:DeleteAddon",
        "eks:DescribeAddon",
        "eks:UpdateAddon",
        *EKS_TAGS,
    ),
    "aws:eks/cluster:Cluster": (
        "eks:CreateCluster",
        "eks:DeleteCluster",
        "eks:DescribeCluster",
        "eks:DescribeUpdate",
        "eks:UpdateClusterConfig",
        "eks:UpdateClusterVersion",
        "iam:CreateServiceLinkedRole",
        "iam:PassRole",
        "kms:CreateGrant",
        *EKS_TAGS,
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        "eks:CreateNodegroup",
        "eks:DeleteNodegroup",
        "eks:DescribeNodegroup",
        "eks:UpdateNodegroupConfig",
        "eks:UpdateNodegroupVersion",
        "iam:CreateServiceLinkedRole",
        "iam:PassRole",
        *EKS_TAGS,
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        "eks:CreatePodIdentityAssociation",
        "eks:DeletePodIdentityAssociation",
        "eks:DescribePodIdentityAssociation",
        "eks:UpdatePodIdentityAssociation",
        "iam:PassRole",
        *EKS_TAGS,
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        "fsx:CreateDataRepositoryAssociation",
        "fsx:DeleteDataRepositoryAssociation",
        "fsx:DescribeDataRepositoryAssociations",
        "fsx:ListTagsForResource",
        "fsx:TagResource",
        "fsx:UntagResource",
        "fsx:UpdateDataRepositoryAssociation",
        "iam:AttachRolePolicy",
        "iam:CreateServiceLinkedRole",
        "iam:PutRolePolicy",
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        "fsx:CreateFileSystem",
        "fsx:DeleteFileSystem",
        "fsx:DescribeFileSystems",
        "fsx:ListTagsForResource",
        "fsx:TagResource",
        "fsx:UntagResource",
        "fsx:UpdateFileSystem",
        "iam:CreateServiceLinkedRole",
        "kms:CreateGrant",
    ),
    "aws:iam/role:Role": (
        "iam:CreateRole",
        "iam:DeleteRole",
        "iam:GetRole",
        "iam:ListAttachedRolePolicies",
        "iam:ListInstanceProfilesForRole",
        "iam:ListRolePolicies",
        "iam:TagRole",
        "iam:UntagRole",
        "iam:UpdateAssumeRolePolicy",
    ),
    "aws:iam/rolePolicy:RolePolicy": (
        "iam:DeleteRolePolicy",
        "iam:GetRolePolicy",
        "iam:PutRolePolicy",
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": (
        "iam:AttachRolePolicy",
        "iam:DetachRolePolicy",
        "iam:ListAttachedRolePolicies",
    ),
    "aws:kms/alias:Alias": (
        "kms:CreateAlias",
        "kms:DeleteAlias",
        "kms:ListAliases",
        "kms:UpdateAlias",
    ),
    "aws:kms/key:Key": (
        "kms:CreateKey",
        "kms:DescribeKey",
        "kms:EnableKeyRotation",
        "kms:GetKeyPolicy",
        "kms:GetKeyRotationStatus",
        "kms:ListResourceTags",
        "kms:PutKeyPolicy",
        "kms:ScheduleKeyDeletion",
        "kms:TagResource",
        "kms:UntagResource",
    ),
    "aws:s3/bucket:Bucket": (
        "s3:CreateBucket",
        "s3:DeleteBucket",
        "s3:GetAccelerateConfiguration",
        "s3:GetBucketAcl",
        "s3:GetBucketCORS",
        "s3:GetBucketLogging",
        "s3:GetBucketObjectLockConfiguration",
        "s3:GetBucketRequestPayment",
        "s3:GetBucketTagging",
        "s3:GetBucketWebsite",
        "s3:GetReplicationConfiguration",
        "s3:ListBucket",
        "s3:ListBucketVersions",
        "s3:PutBucketTagging",
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": (
        "s3:GetLifecycleConfiguration",
        "s3:PutLifecycleConfiguration",
    ),
    "aws:s3/bucketObjectv2:BucketObjectv2": (
        "s3:DeleteObject",
        "s3:DeleteObjectVersion",
        "s3:GetObject",
        "s3:GetObjectTagging",
        "s3:PutObject",
    ),
    "aws:s3/bucketPolicy:BucketPolicy": (
        "s3:DeleteBucketPolicy",
        "s3:GetBucketPolicy",
        "s3:PutBucketPolicy",
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": (
        "s3:GetBucketPublicAccessBlock",
        "s3:PutBucketPublicAccessBlock",
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": (
        "s3:GetEncryptionConfiguration",
        "s3:PutEncryptionConfiguration",
    ),
    "aws:s3/bucketVersioning:BucketVersioning": (
        "s3:GetBucketVersioning",
        "s3:PutBucketVersioning",
    ),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": (
        "ec2:AuthorizeSecurityGroupEgress",
        "ec2:RevokeSecurityGroupEgress",
        *RULES,
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": (
        "ec2:AuthorizeSecurityGroupIngress",
        "ec2:RevokeSecurityGroupIngress",
        *RULES,
    ),
}
"""Type of resource -> actions."""

REMOVING = ("Delete", "Detach", "Disassociate", "Release", "Revoke", "Schedule")
"""Prefixes of the names of actions that a deletion needs."""

CHANGING = ("Update", "Modify", "Replace", "Untag")
"""Prefixes of the names of actions that an update needs."""


def actions_of(token: str) -> tuple[str, ...]:
    """Return the actions of a type of resource, with the actions for its tags; none for an unknown type."""
    has_tags = token.startswith(("aws:ec2/", "aws:vpc/"))
    return tuple(sorted({*ACTIONS.get(token, ()), *(EC2_TAGS if has_tags else ())}))


def actions_to(verb: str, token: str) -> tuple[str, ...]:
    """Return the actions that one operation on a resource needs.

    Args:
        verb: create, update or delete.
        token: type of the resource.
    """

    def belongs(action: str) -> bool:
        name = action.partition(":")[2]
        if name.startswith(REMOVING):
            return verb == "delete"
        if name.startswith(CHANGING):
            return verb == "update"
        reads = name.startswith(("Describe", "Get", "List", "View"))
        return reads or verb == "create"

    return tuple(action for action in actions_of(token) if belongs(action))


def all_actions(without: Collection[str] = ()) -> list[str]:
    """Return every action that a stack may need, sorted.

    Args:
        without: types of resources that the stack does not declare.
    """
    tokens = [token for token in ACTIONS if token not in without]
    return sorted({*ALWAYS, *(action for token in tokens for action in actions_of(token))})
