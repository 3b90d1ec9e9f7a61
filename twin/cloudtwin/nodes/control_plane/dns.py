"""The cluster's DNS service: CoreDNS as a Deployment."""

from typing import Any

from cloudtwin.images.recipes import all_recipes
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import lock
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.network import addressing

NAMESPACE = "kube-system"
ADDONS_LOCK_SECONDS = 60.0  # the holder sends six small requests
NAME = "coredns"
IMAGE = all_recipes(())[NAME].reference
LABELS = {"k8s-app": "kube-dns"}
RBAC = "rbac.authorization.k8s.io"
COREFILE = """\
.:53 {
    errors
    health {
        lameduck 2s
    }
    ready
    kubernetes cluster.local in-addr.arpa {
        pods insecure
        ttl 5
    }
    cache 5
}
"""


def apply(layout: Layout, client: KubernetesClient) -> None:
    """Create or update the DNS service.

    One process at a time: if two create the service at the same time, the API server refuses one of them, since the
    service's address is already allocated.

    Raises:
        TwinError: another process holds the lock for too long.
        ApiError, OSError: the API server refuses, or does not respond.
    """
    with lock.held(layout.addons_lock, "DNS", "launch", timeout_seconds=ADDONS_LOCK_SECONDS):
        for path, document in documents().items():
            client.apply(path, document)


def documents() -> dict[str, dict[str, Any]]:
    """Return the objects by their API paths, each after the objects that it needs."""
    core, apps = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/apps/v1/namespaces/{NAMESPACE}"
    role = f"system:{NAME}"
    return {
        f"{core}/serviceaccounts/{NAME}": _document("v1", "ServiceAccount", NAME),
        f"/apis/{RBAC}/v1/clusterroles/{role}": _document(f"{RBAC}/v1", "ClusterRole", role)
        | {"rules": _rules()},
        f"/apis/{RBAC}/v1/clusterrolebindings/{role}": _document(
            f"{RBAC}/v1", "ClusterRoleBinding", role
        )
        | {
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
        f"{core}/configmaps/{NAME}": _document("v1", "ConfigMap", NAME)
        | {"data": {"Corefile": COREFILE}},
        f"{core}/services/kube-dns": _document("v1", "Service", "kube-dns") | {"spec": _service()},
        f"{apps}/deployments/{NAME}": _document("apps/v1", "Deployment", NAME)
        | {"spec": _deployment()},
    }


def _document(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": LABELS}}


def _rules() -> list[dict[str, Any]]:
    verbs = ["list", "watch"]
    return [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
    ]


def _service() -> dict[str, Any]:
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    return {"clusterIP": str(addressing.DNS_SERVICE), "selector": LABELS, "ports": ports}


def _deployment() -> dict[str, Any]:
    pod = {
        "serviceAccountName": NAME,
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        # Taints keep it off spot machines; a cloud's system pool may accept only add-ons.
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            # Port 53 without a capability: no port is privileged in this pod's network.
            "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
        },
        "containers": [_container()],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
    return {
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        # With one replica the new pod must be ready before the old one ends.
        "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }


def _container() -> dict[str, Any]:
    return {
        "name": NAME,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"requests": {"cpu": "20m", "memory": "40Mi"}, "limits": {"memory": "128Mi"}},
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
