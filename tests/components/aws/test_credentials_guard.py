"""Pods with a pod identity, which EKS injects some seconds after `pulumi up` has created the association."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.capacity.pod_identity import PodIdentity, PodIdentityInjector, PodIdentityStore
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.layout import Layout

from components.aws.credentials_guard import VARIABLE
from tests.components.aws.eks_stack import all_features_stack
from tests.components.recorder import Graph
from tests.waiting import wait_until

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
DEPLOYMENTS = {"eks-autoscaler": "cluster-autoscaler", "eks-metrics": "metrics-agent"}
PODS = "/api/v1/namespaces/kube-system/pods"
SECONDS = 120.0


@pytest.mark.parametrize("component", DEPLOYMENTS)
def test_the_policy_exists_before_the_association_and_the_association_before_the_pod(
    component: str,
) -> None:
    graph = all_features_stack()

    assert f"{component}-guard-binding" in graph.ancestors(f"{component}-identity")
    assert f"{component}-identity" in graph.ancestors(f"{component}-deployment")


@pytest.fixture
def api(control_plane: Path) -> Iterator[KubernetesClient]:
    """Yield a client of a control plane, in which a test leaves no Deployment and no policy."""
    api = admin_client(Layout(control_plane.parent))
    yield api
    for name in DEPLOYMENTS.values():
        api.delete(f"/apis/apps/v1/namespaces/kube-system/deployments/{name}")
        api.delete(f"/api/v1/namespaces/kube-system/serviceaccounts/{name}")
        for path in KINDS.values():
            api.delete(f"{ADMISSION}/{path}/everstep-{name}-credentials")


def create(api: KubernetesClient, graph: Graph, component: str) -> None:
    """Create the guard, the ServiceAccount and the Deployment of a component."""
    for kind, path in KINDS.items():
        for resource in graph.of_type(kind):
            if resource.name.startswith(f"{component}-guard"):
                version = "admissionregistration.k8s.io/v1"
                body = {"kind": kind, "apiVersion": version, **resource.inputs}
                api.post(f"{ADMISSION}/{path}", body)
    accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
    api.post(accounts, {"metadata": {"name": DEPLOYMENTS[component]}})
    wait_until(lambda: bool(refusal(api, component)), "the policy is effective", SECONDS)
    deployment = graph[f"{component}-deployment"].inputs
    body = {"metadata": deployment["metadata"], "spec": deployment["spec"]}
    api.post("/apis/apps/v1/namespaces/kube-system/deployments", body)


def refusal(api: KubernetesClient, component: str) -> str:
    """Return the message with which a pod of the account is refused; empty if it is admitted."""
    spec = {
        "serviceAccountName": DEPLOYMENTS[component],
        "containers": [{"name": "main", "image": "any"}],
    }
    try:
        api.post(f"{PODS}?dryRun=All", {"metadata": {"name": "probe"}, "spec": spec})
    except ApiError as error:
        return error.message
    return ""


def pods(api: KubernetesClient, component: str) -> list[dict[str, Any]]:
    """Return the pods of a component."""
    items: list[dict[str, Any]] = api.get(PODS)["items"]
    account = DEPLOYMENTS[component]
    return [item for item in items if item["spec"].get("serviceAccountName") == account]


def replica_failure(api: KubernetesClient, component: str) -> str:
    """Return the reason why the Deployment has no pod; empty if it has not failed yet."""
    path = f"/apis/apps/v1/namespaces/kube-system/deployments/{DEPLOYMENTS[component]}"
    conditions = api.get(path).get("status", {}).get("conditions", [])
    return next((str(c["message"]) for c in conditions if c["type"] == "ReplicaFailure"), "")


@pytest.mark.twin
@pytest.mark.timeout(900)
@pytest.mark.parametrize("component", DEPLOYMENTS)
def test_no_pod_starts_before_its_identity_is_effective_and_then_it_has_credentials(
    api: KubernetesClient, tmp_path: Path, component: str
) -> None:
    create(api, all_features_stack(), component)
    store = PodIdentityStore(tmp_path)
    injector = PodIdentityInjector(api, store)
    identity = PodIdentity("kube-system", DEPLOYMENTS[component])
    store.put(identity)
    injector.sync()

    failure = wait_until(
        lambda: replica_failure(api, component), "the ReplicaSet is refused", SECONDS
    )
    assert "the pod is created again in some seconds" in failure
    assert not pods(api, component)

    def injected() -> list[dict[str, Any]]:
        injector.sync()
        return pods(api, component)

    (pod,) = wait_until(injected, "the pod is created", SECONDS)
    (container,) = pod["spec"]["containers"]
    assert VARIABLE in {variable["name"] for variable in container["env"]}
    store.delete(identity)
    injector.sync()
