"""An admission policy that reserves a service account for the pods of one component.

A pod may name any service account of its namespace, so a user who may create pods or jobs there would get the
permissions of every account, such as the controller's. The policy admits a pod under its account only with the
configured image and command, and with nothing that could run another program next to it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.component import Component
from components.platform.account_policy import AccountPolicy, declare_policy
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
        declare_policy(self, _policy(args))
        self.register_outputs({})


def _policy(args: ServiceAccountGuardArgs) -> AccountPolicy:
    # A JSON list is also a list in CEL.
    command = pulumi.Output.all(*args.command).apply(json.dumps)
    return AccountPolicy(
        name=f"everstep-{args.account}-account",
        namespace=args.namespace,
        account=args.account,
        resources=("pods", "pods/ephemeralcontainers"),
        operations=("CREATE", "UPDATE"),
        conditions=_expressions(args.image, command),
        message=f"the service account {args.account} is reserved: only its own pod may use it, with its image, "
        "its command and no other container, volume, hook or variable",
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
