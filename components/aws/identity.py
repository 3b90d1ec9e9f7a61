"""IAM roles of an EKS cluster: for the control plane, the nodes and pods.

Pods get a role through EKS Pod Identity: an association in EKS names the ServiceAccount, and no object in the
cluster contains an ARN. The older alternative, an OIDC provider in IAM, needs the issuer of the
cluster in the trust policy of each role.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_aws import eks, iam

from components.aws.credentials_guard import CredentialsGuard, CredentialsGuardArgs
from components.aws.iam import POD_IDENTITY, Statement, policy, trust_policy
from components.component import Component


@dataclass(frozen=True, kw_only=True)
class RoleArgs:
    """Arguments of a Role.

    Attributes:
        role_name: name of the role in IAM, at most 64 characters.
        service: AWS service that assumes the role, such as ec2.amazonaws.com.
        managed_policies: names of AWS managed policies, such as AmazonEKSWorkerNodePolicy.
        statements: name of an inline policy -> its statements.
    """

    role_name: str
    service: str
    managed_policies: Sequence[str] = ()
    statements: Mapping[str, Sequence[Statement]] = field(default_factory=dict)


class Role(Component):
    """An IAM role with its policies.

    Attributes:
        arn: ARN of the role.
        policies: attachments and inline policies. Resources that use the role depend on them: a resource that
            is deleted after its permissions cannot clean up.
    """

    arn: pulumi.Output[str]
    policies: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: RoleArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:Role", name, opts)
        self._role = iam.Role(
            f"{name}-role",
            name=args.role_name,
            assume_role_policy=trust_policy(args.service),
            opts=self.child(delete_before_replace=True),
        )
        self.arn = self._role.arn
        self.policies = (
            *(self._attach(policy_name) for policy_name in args.managed_policies),
            *(self._allow(key, statements) for key, statements in args.statements.items()),
        )
        self.register_outputs({"arn": self.arn})

    def _attach(self, policy_name: str) -> iam.RolePolicyAttachment:
        """Attach an AWS managed policy."""
        return iam.RolePolicyAttachment(
            f"{self.name}-{policy_name}",
            role=self._role.name,
            policy_arn=f"arn:aws:iam::aws:policy/{policy_name}",
            opts=self.child(),
        )

    def _allow(self, key: str, statements: Sequence[Statement]) -> iam.RolePolicy:
        """Declare an inline policy."""
        return iam.RolePolicy(
            f"{self.name}-{key}",
            name=key,
            role=self._role.name,
            policy=policy(*statements),
            opts=self.child(delete_before_replace=True),
        )


@dataclass(frozen=True, kw_only=True)
class PodIdentityArgs:
    """Arguments of a pod identity.

    Attributes:
        cluster_name: name of the cluster, as an output of the cluster, so that the identity depends on it.
        namespace: namespace of the pods.
        service_account: name of their ServiceAccount.
        role_name: name of the role in IAM, at most 64 characters.
        statements: name of an inline policy -> its statements.
        guarded: True if a pod without credentials is refused, see `credentials_guard`.
    """

    cluster_name: pulumi.Input[str]
    namespace: str
    service_account: str
    role_name: str
    statements: Mapping[str, Sequence[Statement]]
    guarded: bool = False


def declare_pod_identity(parent: Component, args: PodIdentityArgs) -> eks.PodIdentityAssociation:
    """Declare a role for pods and return its association, which must exist before the pods start."""
    role = Role(
        f"{parent.name}-role",
        RoleArgs(role_name=args.role_name, service=POD_IDENTITY, statements=args.statements),
        parent.child(),
    )
    depends_on = [*role.policies, *([_guard(parent, args).binding] if args.guarded else [])]
    return eks.PodIdentityAssociation(
        f"{parent.name}-identity",
        cluster_name=args.cluster_name,
        namespace=args.namespace,
        service_account=args.service_account,
        role_arn=role.arn,
        opts=parent.child(depends_on=depends_on, delete_before_replace=True),
    )


def _guard(parent: Component, args: PodIdentityArgs) -> CredentialsGuard:
    """Declare the policy that refuses pods without the credentials of an identity."""
    return CredentialsGuard(
        f"{parent.name}-guard",
        CredentialsGuardArgs(namespace=args.namespace, account=args.service_account),
        parent.child(),
    )
