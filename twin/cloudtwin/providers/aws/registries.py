"""The registry of an AWS account, and whether its nodes may pull. Pure.

Source: ECR User Guide, "Using Amazon ECR Images with Amazon EKS": the node role needs actions such as
ecr:BatchGetImage, which the managed policies in PULL_POLICIES allow.
"""

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers.aws.eks_rules import NODES, PULL_POLICIES
from cloudtwin.providers.aws.policies import ROLE, attached_policies
from cloudtwin.providers.aws.s3 import REPOSITORY
from cloudtwin.providers.inventory import Inventory
from cloudtwin.providers.registries import PrivateRegistry

USER = "AWS"


def registries(account: Inventory) -> dict[str, PrivateRegistry]:
    """Return the registry of each region that has repositories, by its host."""
    result: dict[str, dict[str, bool]] = {}
    for repository in account.all(REPOSITORY):
        host, _, name = str(repository.outputs["repositoryUrl"]).partition("/")
        immutable = str(repository.inputs.get("imageTagMutability", "")).startswith("IMMUTABLE")
        result.setdefault(host, {})[name] = immutable
    may_pull = nodes_may_pull(account)
    return {
        host: PrivateRegistry(
            id=AWS_ACCOUNT, user=USER, nodes_may_pull=may_pull, repositories=repositories
        )
        for host, repositories in result.items()
    }


def nodes_may_pull(account: Inventory) -> bool:
    """Return True if the role of a node group has a policy that lets nodes pull images."""
    node_roles = {str(nodes.inputs.get("nodeRoleArn")) for nodes in account.all(NODES)}
    roles = [role for role in account.all(ROLE) if str(role.outputs.get("arn")) in node_roles]
    return any(PULL_POLICIES & attached_policies(role, account) for role in roles)
