"""The pods that may use the service account of a controller, as decided by a real API server."""

import copy
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes import Twin
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.progress import Silent

from everstep.cli.images import OPTIONS
from tests.components.existing.existing_stack import maintained_stack, pod_of, upstream_stack
from tests.components.recorder import Graph
from tests.waiting import wait_until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICY_TIMEOUT_SECONDS = 300.0


@pytest.fixture(scope="module")
def api() -> Iterator[KubernetesClient]:
    """Yield a client of a control plane without nodes, with the namespaces and accounts of both controllers."""
    twin = Twin.open(f"admission-{uuid.uuid4().hex[:6]}", OPTIONS)
    try:
        twin.up([], Silent())
        api = admin_client(twin.layout)
        for namespace, account in ACCOUNTS.items():
            api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
            for name in (account, "harmless"):
                path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
                api.post(path, {"metadata": {"name": name}})
        for graph in (upstream_stack(), maintained_stack()):
            create_policy(api, graph)
        yield api
    finally:
        twin.down(Silent())


ACCOUNTS = {"everstep-system": "elastic-job-controller", "elastic-job": "elasticjob-controller"}


def create_policy(api: KubernetesClient, graph: Graph) -> None:
    """Create the policy of a stack, and wait until it is effective."""
    for kind, path in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    ):
        for resource in graph.of_type(kind):
            if resource.name.startswith("training-controller-account"):
                api.post(
                    f"{ADMISSION}/{path}",
                    {
                        "kind": kind,
                        "apiVersion": "admissionregistration.k8s.io/v1",
                        **resource.inputs,
                    },
                )
    namespace, pod = own_pod(graph)
    wait_until(
        lambda: refusal(api, namespace, {**pod, "hostNetwork": True}),
        "the policy is effective",
        POLICY_TIMEOUT_SECONDS,
        interval_seconds=0.2,
    )


def own_pod(graph: Graph) -> tuple[str, dict[str, Any]]:
    """Return the namespace and the spec of the controller's own pod."""
    deployment = graph["training-controller-deployment"]
    spec = copy.deepcopy(pod_of(deployment))
    spec.pop("priorityClassName", None)  # the class is not declared here
    return str(deployment.inputs["metadata"]["namespace"]), spec


def refusal(api: KubernetesClient, namespace: str, spec: dict[str, Any]) -> str:
    """Return the message with which a pod is refused; empty if it is admitted."""
    body = {"metadata": {"name": f"pod-{uuid.uuid4().hex[:6]}"}, "spec": spec}
    try:
        api.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    except ApiError as error:
        return error.message
    return ""


def mount_annotation(pod: dict[str, Any], folder: str) -> None:
    """Mount a module whose text is an annotation, which the creator of a pod may write."""
    path = {"path": "__main__.py", "fieldRef": {"fieldPath": "metadata.annotations['code']"}}
    pod["volumes"].append(
        {"name": "x", "projected": {"sources": [{"downwardAPI": {"items": [path]}}]}}
    )
    mounts = pod["containers"][0].setdefault("volumeMounts", [])
    mounts.append({"name": "x", "mountPath": folder})


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another image": lambda pod: pod["containers"][0].update(image="docker.io/library/alpine:3"),
    "another command": lambda pod: pod["containers"][0].update(command=["sh"]),
    "arguments": lambda pod: pod["containers"][0].update(args=["--kubeconfig=/tmp/x"]),
    "a second container": lambda pod: pod["containers"].append({"name": "b", "image": "alpine"}),
    "an init container": lambda pod: pod.update(initContainers=[{"name": "a", "image": "alpine"}]),
    "a hook": lambda pod: pod["containers"][0].update(
        lifecycle={"postStart": {"exec": {"command": ["sh"]}}}
    ),
    "a probe that runs a program": lambda pod: pod["containers"][0].update(
        livenessProbe={"exec": {"command": ["sh"]}}
    ),
    "a variable": lambda pod: pod["containers"][0]["env"].append(
        {"name": "LD_PRELOAD", "value": "/tmp/x.so"}
    ),
    "variables of a ConfigMap": lambda pod: pod["containers"][0].update(
        envFrom=[{"configMapRef": {"name": "x"}}]
    ),
    "a volume with files": lambda pod: pod["volumes"].append(
        {"name": "x", "configMap": {"name": "x"}}
    ),
    "a working folder": lambda pod: pod["containers"][0].update(workingDir="/w"),
    "a mounted folder with files": lambda pod: mount_annotation(pod, "/opt/controller"),
    "the network of the node": lambda pod: pod.update(hostNetwork=True),
    "a shared process namespace": lambda pod: pod.update(shareProcessNamespace=True),
}


@pytest.mark.parametrize(
    "graph", [upstream_stack, maintained_stack], ids=["upstream", "maintained"]
)
def test_the_controllers_own_pod_is_admitted(
    api: KubernetesClient, graph: Callable[[], Graph]
) -> None:
    assert refusal(api, *own_pod(graph())) == ""


@pytest.mark.parametrize(
    "graph", [upstream_stack, maintained_stack], ids=["upstream", "maintained"]
)
def test_a_guarded_pod_asks_aks_for_no_variables_of_a_proxy(graph: Callable[[], Graph]) -> None:
    template = graph()["training-controller-deployment"].inputs["spec"]["template"]

    annotations = template["metadata"]["annotations"]

    assert annotations["kubernetes.azure.com/no-http-proxy-vars"] == "true", (
        "the policy would refuse the pod with HTTP_PROXY"
    )


@pytest.mark.parametrize(
    "graph", [upstream_stack, maintained_stack], ids=["upstream", "maintained"]
)
@pytest.mark.parametrize("change", CHANGES)
def test_a_pod_that_could_run_another_program_may_not_use_the_controllers_account(
    api: KubernetesClient, graph: Callable[[], Graph], change: str
) -> None:
    namespace, pod = own_pod(graph())
    CHANGES[change](pod)

    assert f"service account {ACCOUNTS[namespace]} is reserved" in refusal(api, namespace, pod)


@pytest.mark.parametrize("namespace", ACCOUNTS)
def test_pods_of_other_accounts_are_not_affected(api: KubernetesClient, namespace: str) -> None:
    pod = {"serviceAccountName": "harmless", "containers": [{"name": "a", "image": "alpine"}]}

    assert refusal(api, namespace, pod) == ""


def test_a_job_cannot_name_the_account_of_the_upstream_controller(api: KubernetesClient) -> None:
    pod = {
        "serviceAccountName": ACCOUNTS["everstep-system"],
        "containers": [{"name": "a", "image": "alpine"}],
    }

    assert "not found" in refusal(api, "elastic-job", pod), "accounts belong to their namespace"
