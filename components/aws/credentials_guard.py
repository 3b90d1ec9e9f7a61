"""An admission policy for pods that would run without AWS credentials until a user deletes them.

EKS injects the credentials of a pod identity when a pod is created, through a webhook that learns of a new association
some seconds after its creation ("EKS Pod Identities", considerations, AWS, 2026-11-29). A pod that is created earlier
gets none, and a restart of its container does not change that. The policy refuses such a pod; the ReplicaSet tries
again after twice the time, and `pulumi up` waits until the pod is ready.

A pod of a Job, and a worker, need no guard: it fails, and is replaced by a new pod.
"""

from dataclasses import dataclass

import pulumi

from components.component import Component
from components.platform.account_policy import AccountPolicy, declare_policy

VARIABLE = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
"""Variable by which the AWS SDKs find the agent. Source: "How EKS Pod Identity works", AWS, 2026-11-29."""


@dataclass(frozen=True, kw_only=True)
class CredentialsGuardArgs:
    """Arguments of a CredentialsGuard.

    Attributes:
        namespace: namespace of the pods.
        account: name of their ServiceAccount.
    """

    namespace: str
    account: str


class CredentialsGuard(Component):
    """A ValidatingAdmissionPolicy for the pods of a ServiceAccount with a pod identity, and its binding.

    Attributes:
        binding: the binding, which must exist before the association of the pod identity.
    """

    binding: pulumi.Resource

    def __init__(
        self, name: str, args: CredentialsGuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:CredentialsGuard", name, opts)
        self.binding = declare_policy(self, _policy(args))
        self.register_outputs({})


def _policy(args: CredentialsGuardArgs) -> AccountPolicy:
    has_credentials = (
        "object.spec.containers.all(container, "
        f'container.?env.orValue([]).exists(variable, variable.name == "{VARIABLE}"))'
    )
    return AccountPolicy(
        name=f"everstep-{args.account}-credentials",
        namespace=args.namespace,
        account=args.account,
        conditions=[has_credentials],
        message=f"EKS has not injected the credentials of the service account {args.account} yet, because its pod "
        "identity association is not effective; the pod is created again in some seconds",
    )
