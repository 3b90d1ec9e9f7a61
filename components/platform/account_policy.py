"""An admission policy for the pods of one service account."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import admissionregistration as admission
from pulumi_kubernetes import meta

from components.component import Component
from components.platform.pods import PART_OF


@dataclass(frozen=True, kw_only=True)
class AccountPolicy:
    """A ValidatingAdmissionPolicy that refuses pods of a service account.

    Attributes:
        name: name of the policy and of its binding in the cluster.
        namespace: namespace of the service account.
        account: name of the service account.
        resources: resources to which it applies, such as pods.
        operations: operations to which it applies.
        conditions: conditions that the pod must meet, in CEL.
        message: message of a refusal.
    """

    name: str
    namespace: pulumi.Input[str]
    account: str
    resources: Sequence[str] = ("pods",)
    operations: Sequence[str] = ("CREATE",)
    conditions: Sequence[pulumi.Input[str]]
    message: str


def declare_policy(
    parent: Component, policy: AccountPolicy
) -> admission.v1.ValidatingAdmissionPolicyBinding:
    """Declare a policy as part of a component, and return its binding, which makes it effective."""
    metadata = meta.v1.ObjectMetaArgs(name=policy.name, labels=PART_OF)
    admission_policy = admission.v1.ValidatingAdmissionPolicy(
        f"{parent.name}-policy",
        metadata=metadata,
        spec=_spec(policy),
        opts=parent.child(delete_before_replace=True),
    )
    return admission.v1.ValidatingAdmissionPolicyBinding(
        f"{parent.name}-binding",
        metadata=metadata,
        spec=admission.v1.ValidatingAdmissionPolicyBindingSpecArgs(
            policy_name=policy.name, validation_actions=["Deny"]
        ),
        opts=parent.child(depends_on=[admission_policy], delete_before_replace=True),
    )


def _spec(policy: AccountPolicy) -> admission.v1.ValidatingAdmissionPolicySpecArgs:
    """Return the spec of a policy: the pods that it matches and the conditions on them."""
    pods = admission.v1.NamedRuleWithOperationsArgs(
        api_groups=[""],
        api_versions=["v1"],
        resources=list(policy.resources),
        operations=list(policy.operations),
    )
    uses_account = pulumi.Output.concat(
        'request.namespace == "',
        policy.namespace,
        f'" && object.spec.?serviceAccountName.orValue("") == "{policy.account}"',
    )
    return admission.v1.ValidatingAdmissionPolicySpecArgs(
        failure_policy="Fail",
        match_constraints=admission.v1.MatchResourcesArgs(resource_rules=[pods]),
        match_conditions=[
            admission.v1.MatchConditionArgs(name="uses-the-account", expression=uses_account)
        ],
        validations=[
            admission.v1.ValidationArgs(expression=condition, message=policy.message)
            for condition in policy.conditions
        ],
    )
