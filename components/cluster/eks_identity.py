"""Who acts on AWS for an EKS cluster: its own role, its nodes', its pods'.

Pods get a role by pod identity: an association in EKS names the ServiceAccount, and nothing in the
cluster carries an ARN. The older way, an OIDC provider in IAM, would need a trust policy that repeats
the cluster's issuer in each role.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from components.iam import Statement, policy, trusting
from components.part import Part


@dataclass(frozen=True, kw_only=True)
class RoleArgs:
    """What a role is for.

    Attributes:
        physical: its name in IAM, at most 64 characters.
        service: who assumes it, such as ec2.amazonaws.com.
        managed: names of AWS' own policies, such as AmazonEKSWorkerNodePolicy.
        statements: what it may do besides, under the name of the policy.
    """

    physical: str
    service: str
    managed: Sequence[str] = ()
    statements: Mapping[str, Sequence[Statement]] = field(default_factory=dict)


class Role(Part):
    """A role and all that it may do.

    Attributes:
        arn: of the role.
        rights: its attachments and policies; whoever uses the role waits for these, and must be
            gone before they are, or could not clean up after itself.
    """

    arn: pulumi.Output[str]
    rights: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: RoleArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:Role", name, opts)
        self._role = aws.iam.Role(
            f"{name}-role",
            name=args.physical,
            assume_role_policy=trusting(args.service),
            opts=self.child(delete_before_replace=True),
        )
        self.arn = self._role.arn
        self.rights = (
            *(self._attach(policy_name) for policy_name in args.managed),
            *(self._allow(what, said) for what, said in args.statements.items()),
        )
        self.register_outputs({"arn": self.arn})

    def _attach(self, policy_name: str) -> aws.iam.RolePolicyAttachment:
        """Attach one of AWS' own policies."""
        return aws.iam.RolePolicyAttachment(
            f"{self.name}-{policy_name}",
            role=self._role.name,
            policy_arn=f"arn:aws:iam::aws:policy/{policy_name}",
            opts=self.child(),
        )

    def _allow(self, what: str, statements: Sequence[Statement]) -> aws.iam.RolePolicy:
        """Allow what only this role needs."""
        return aws.iam.RolePolicy(
            f"{self.name}-{what}",
            name=what,
            role=self._role.name,
            policy=policy(*statements),
            opts=self.child(delete_before_replace=True),
        )
