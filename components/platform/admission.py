"""An admission policy that reserves a service account for the pods of one component.

A pod may name any service account of its namespace, so a user who may create pods or jobs there would get the
permissions of every account, such as the controller's. The policy admits a pod under its account only with the
configured image and command, and with nothing that could run another program next to it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import admissionregistration as admission
from pulumi_kubernetes import meta

from components.component import Component
from components.platform.pods import PART_OF
from everstep.catalog.names import POD_NAME_VARIABLE

VARIABLES = (POD_NAME_VARIABLE, "POD_NAMESPACE")
"""Environment variables that the pod may set; another variable, such as LD_PRELOAD, could load a library."""

POD_ANNOTATIONS = {"kubernetes.azure.com/no-http-proxy-vars": "true"}
"""Annotations of a guarded pod: AKS would add the variables of an HTTP proxy, and the policy would refuse the pod.

The pods only connect to the API server and to other pods. Source: AKS documentation, "HTTP proxy support", 2026-11.
"""

MOUNT_FOLDERS = ("/tmp", "/var/run/secrets/kubernetes.io/serviceaccount")  # noqa: S108 - private to the pod
"""Folders where the pod may mount a volume: no program or library is in them."""


@dataclass(frozen=True, kw_only=True)
class ServiceAccountGuardArgs:
    """Arguments of a ServiceAccountGuard.

    Attributes:
        namespace: namespace of the service account.
        account: name of the service account.
        image: image of the only container that may use it.
        command: command of that container.
    """

    namespace: pulumi.Input[str]
    account: str
    image: str
    command: Sequence[pulumi.Input[str]]


class ServiceAccountGuard(Component):
    """A ValidatingAdmissionPolicy for the pods of one service account, and its binding."""

    def __init__(
        self, name: str, args: ServiceAccountGuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:ServiceAccountGuard", name, opts)
        declare_policy(self, f"everstep-{args.account}-account", _spec(args))
        self.register_outputs({})


def declare_policy(
    parent: Component, policy: str, spec: admission.v1.ValidatingAdmissionPolicySpecArgs
) -> admission.v1.ValidatingAdmissionPolicyBinding:
    """Declare an admission policy that refuses requests, and return its binding, which makes it effective.

    Args:
        parent: component of the two resources.
        policy: name of both objects in the cluster.
        spec: the requests and the conditions on them.
    """
    metadata = meta.v1.ObjectMetaArgs(name=policy, labels=PART_OF)
    admission_policy = admission.v1.ValidatingAdmissionPolicy(
        f"{parent.name}-policy",
        metadata=metadata,
        spec=spec,
        opts=parent.child(delete_before_replace=True),
    )
    return admission.v1.ValidatingAdmissionPolicyBinding(
        f"{parent.name}-binding",
        metadata=metadata,
        spec=admission.v1.ValidatingAdmissionPolicyBindingSpecArgs(
            policy_name=policy, validation_actions=["Deny"]
        ),
        opts=parent.child(depends_on=[admission_policy], delete_before_replace=True),
    )


def _spec(args: ServiceAccountGuardArgs) -> admission.v1.ValidatingAdmissionPolicySpecArgs:
    """Return the spec of the policy: the pods that it matches and the conditions on them."""
    pods = admission.v1.NamedRuleWithOperationsArgs(
        api_groups=[""],
        api_versions=["v1"],
        resources=["pods", "pods/ephemeralcontainers"],
        operations=["CREATE", "UPDATE"],
    )
    uses_account = pulumi.Output.concat(
        'request.namespace == "',
        args.namespace,
        f'" && object.spec.?serviceAccountName.orValue("") == "{args.account}"',
    )
    # A JSON list is also a list in CEL.
    command = pulumi.Output.all(*args.command).apply(json.dumps)
    message = (
        f"the service account {args.account} is reserved: only its own pod may use it, with its image, "
        "its command and no other container, volume, hook or variable"
    )
    return admission.v1.ValidatingAdmissionPolicySpecArgs(
        failure_policy="Fail",
        match_constraints=admission.v1.MatchResourcesArgs(resource_rules=[pods]),
        match_conditions=[
            admission.v1.MatchConditionArgs(name="uses-the-account", expression=uses_account)
        ],
        validations=[
            admission.v1.ValidationArgs(expression=expression, message=message)
            for expression in _expressions(args.image, command)
        ],
    )


def _expressions(image: str, command: pulumi.Input[str]) -> list[pulumi.Input[str]]:
    """Return the conditions that the pod must meet, in CEL."""
    names, folders = json.dumps(VARIABLES), json.dumps(MOUNT_FOLDERS)
    return [
        "size(object.spec.containers) == 1",
        "!has(object.spec.initContainers) || size(object.spec.initContainers) == 0",
        "!has(object.spec.ephemeralContainers) || size(object.spec.ephemeralContainers) == 0",
        f"object.spec.containers[0].image == {json.dumps(image)}",
        pulumi.Output.concat("object.spec.containers[0].?command.orValue([]) == ", command),
        "size(object.spec.containers[0].?args.orValue([])) == 0",
        "!has(object.spec.containers[0].lifecycle)",
        "!has(object.spec.containers[0].envFrom)",
        "object.spec.containers[0].?livenessProbe.exec == optional.none()",
        "object.spec.containers[0].?readinessProbe.exec == optional.none()",
        "!has(object.spec.containers[0].startupProbe)",
        f"object.spec.containers[0].?env.orValue([]).all(variable, variable.name in {names})",
        "object.spec.?volumes.orValue([]).all(volume, has(volume.emptyDir) || has(volume.projected))",
        # A projected volume may contain any text: Python would import it from its working folder or its packages.
        "!has(object.spec.containers[0].workingDir)",
        f"object.spec.containers[0].?volumeMounts.orValue([]).all(mount, mount.mountPath in {folders})",
        *(
            f"!object.spec.?{shared}.orValue(false)"
            for shared in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
        ),
    ]
