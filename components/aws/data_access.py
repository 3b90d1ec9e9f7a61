"""The identity that reads data in a bucket: one role, for one ServiceAccount.

With `data.source`, the role belongs to the data preparation; workers read the copy on the volume and need no role.
With `data.cache`, it belongs to the workers.
"""

from dataclasses import dataclass

import pulumi

from components.aws.iam import Statement
from components.aws.identity import PodIdentityArgs, declare_pod_identity
from components.component import Component
from everstep.catalog.names import JOB_NAMESPACE


@dataclass(frozen=True, kw_only=True)
class EksDataAccessArgs:
    """Arguments of an EksDataAccess.

    Attributes:
        cluster: name of the cluster, prefix of the role's name.
        cluster_name: the same name as an output of the cluster, so that the identity depends on it.
        bucket: name of the bucket.
        prefix: prefix without leading or trailing slashes, or the key of one object; empty for the whole bucket.
        service_account: name of the ServiceAccount, in the namespace of the job.
    """

    cluster: str
    cluster_name: pulumi.Input[str]
    bucket: str
    prefix: str
    service_account: str


class EksDataAccess(Component):
    """A role that may list and read one prefix, and its binding to the pods that read.

    Attributes:
        prerequisites: resources that must exist before these pods start.
    """

    prerequisites: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: EksDataAccessArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksDataAccess", name, opts)
        association = declare_pod_identity(
            self,
            PodIdentityArgs(
                cluster_name=args.cluster_name,
                namespace=JOB_NAMESPACE,
                service_account=args.service_account,
                role_name=f"{args.cluster}-data",
                statements={"read": read_statements(args.bucket, args.prefix)},
            ),
        )
        self.prerequisites = (association,)
        self.register_outputs({"role": association.role_arn})


def read_statements(bucket: str, prefix: str) -> list[Statement]:
    """Return the permissions to list the objects below a prefix, and to read them and an object with that key."""
    arn = f"arn:aws:s3:::{bucket}"
    if not prefix:
        listing = Statement(actions=["s3:ListBucket"], resources=[arn])
        return [listing, Statement(actions=["s3:GetObject"], resources=[f"{arn}/*"])]
    below = {"StringLike": {"s3:prefix": f"{prefix}/*"}}
    return [
        Statement(actions=["s3:ListBucket"], resources=[arn], conditions=below),
        Statement(actions=["s3:GetObject"], resources=[f"{arn}/{prefix}", f"{arn}/{prefix}/*"]),
    ]
