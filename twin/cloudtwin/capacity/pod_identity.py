"""EKS Pod Identity as the cluster sees it: pods of an associated ServiceAccount get variables when they are created.

EKS does this with a webhook in its control plane, which learns of a new association some seconds after the call that
creates it has returned. A twin does it with an admission policy per association, and as late. The variables are EKS's
("How EKS Pod Identity works", AWS, 2026-11-29), but there is no agent at their address: a pod gets no credentials.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtwin import files
from cloudtwin.kubernetes_api import KubernetesClient

DELAY_SECONDS = 3.0
"""Delay of a new association. AWS: "several seconds" ("EKS Pod Identities", considerations, 2026-11-29)."""

VARIABLES = {
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": (
        "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount/eks-pod-identity-token"
    ),
}
API = "/apis/admissionregistration.k8s.io/v1"
LABEL = "cloudtwin.everstep.dev/pod-identity"


@dataclass(frozen=True, order=True)
class PodIdentity:
    """The ServiceAccount of an association.

    Attributes:
        namespace: its namespace.
        account: its name.
    """

    namespace: str
    account: str

    @property
    def key(self) -> str:
        """Its key in the store."""
        return f"{self.namespace}/{self.account}"

    @property
    def policy(self) -> str:
        """Name of its policy."""
        return f"cloudtwin-pod-identity.{self.namespace}.{self.account}"


@dataclass(frozen=True)
class PodIdentityStore:
    """The associations of one twin, each with the time when it takes effect.

    Attributes:
        state: the twin's folder.
    """

    state: Path

    @property
    def path(self) -> Path:
        """The file of the associations."""
        return self.state / "cloud" / "pod-identities.json"

    def put(self, identity: PodIdentity) -> None:
        """Add an association; an existing one keeps its time."""
        due = time.time() + DELAY_SECONDS
        files.change_json(self.path, lambda times: times.setdefault(identity.key, due))

    def delete(self, identity: PodIdentity) -> None:
        """Delete an association, if it exists."""
        files.change_json(self.path, lambda times: times.pop(identity.key, None))

    def effective(self) -> set[PodIdentity]:
        """Return the associations that have taken effect."""
        now, times = time.time(), files.read_json(self.path) or {}
        return {PodIdentity(*key.split("/")) for key, due in times.items() if due <= now}


@dataclass
class PodIdentityInjector:
    """Keeps the admission policies of a cluster equal to the associations that have taken effect.

    Attributes:
        api: a client of the cluster.
        store: the associations.
    """

    api: KubernetesClient
    store: PodIdentityStore
    _injected: set[PodIdentity] | None = None

    def sync(self) -> None:
        """Create missing policies and delete the policies of deleted associations.

        Raises:
            ApiError, OSError: the cluster does not respond; the next call continues.
        """
        wanted = self.store.effective()
        if self._injected is None:
            if not wanted and not self.store.path.exists():
                return  # no request for a twin that never had an association
            self._injected = self._existing()
        for identity in sorted(wanted - self._injected):
            self._create(identity)
            self._injected.add(identity)
        for identity in sorted(self._injected - wanted):
            self._delete(identity)
            self._injected.discard(identity)

    def _existing(self) -> set[PodIdentity]:
        """Return the associations whose policy and binding an earlier daemon created."""
        names = [
            {
                item["metadata"]["name"]
                for item in self.api.get(f"{API}/{kind}?{_SELECTOR}")["items"]
            }
            for kind in (_POLICIES, _BINDINGS)
        ]
        return {PodIdentity(*name.split(".", 2)[1:]) for name in names[0] & names[1]}

    def _create(self, identity: PodIdentity) -> None:
        for kind, (path, spec) in _objects(identity).items():
            metadata = {"name": identity.policy, "labels": {LABEL: "true"}}
            self.api.apply(
                f"{API}/{path}/{identity.policy}",
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": kind,
                    "metadata": metadata,
                    "spec": spec,
                },
            )

    def _delete(self, identity: PodIdentity) -> None:
        for path in (_BINDINGS, _POLICIES):
            self.api.delete(f"{API}/{path}/{identity.policy}")


_POLICIES, _BINDINGS = "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"
_SELECTOR = f"labelSelector={LABEL}"


def _objects(identity: PodIdentity) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the path and the spec of the objects of an association, by kind."""
    return {
        "MutatingAdmissionPolicy": (_POLICIES, _policy(identity)),
        "MutatingAdmissionPolicyBinding": (_BINDINGS, {"policyName": identity.policy}),
    }


def _policy(identity: PodIdentity) -> dict[str, Any]:
    """Return the spec of the policy: variables for the containers of new pods with the ServiceAccount."""
    new_pods = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    uses_account = (
        f'request.namespace == "{identity.namespace}" '
        f'&& object.spec.?serviceAccountName.orValue("") == "{identity.account}"'
    )
    return {
        "failurePolicy": "Ignore",  # as EKS's webhook
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [new_pods]},
        "matchConditions": [{"name": "uses-the-account", "expression": uses_account}],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": _with_variables()},
            }
        ],
    }


def _with_variables() -> str:
    """Return the apply configuration of a pod, in CEL: the variables in each of its containers."""
    variables = ", ".join(
        f'Object.spec.containers.env{{name: "{name}", value: "{value}"}}'
        for name, value in VARIABLES.items()
    )
    containers = (
        "object.spec.containers.map(container, "
        f"Object.spec.containers{{name: container.name, env: [{variables}]}})"
    )
    return f"Object{{spec: Object.spec{{containers: {containers}}}}}"
