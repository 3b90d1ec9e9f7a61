"""What every cluster has before anybody's program runs in it: a DNS service."""

from typing import Any

from twin.nodes import addressing, lock
from twin.nodes.api import Api
from twin.nodes.layout import Layout

IMAGE = "localhost/everstep/coredns:local"
NAMESPACE = "kube-system"
LOCK_SECONDS = 60.0  # whoever holds it makes six small requests
NAME = "coredns"
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


def apply(layout: Layout, api: Api) -> None:
    """Make the add-ons as they should be; changes nothing where they are.

    One at a time: of two that create the DNS service at once, the API server refuses one, since the service's
    address is already given to the other.

    Raises:
        EverstepError: somebody else is at it for too long.
        ApiError, OSError: the API server refuses, or is not there.
    """
    with lock.held(layout.addons_lock, "DNS", "launch", patience_seconds=LOCK_SECONDS):
        for path, document in documents().items():
            api.apply(path, document)


def documents() -> dict[str, dict[str, Any]]:
    """Return the objects by the paths they are applied to, each after those it needs."""
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
        # Spot machines keep it off by their taints; a cloud's system pool may let add-ons in only.
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            # Port 53 without a capability: in this pod's network no port is privileged.
            "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
        },
        "containers": [_container()],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
    return {
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        # One replica: the new one must be ready before the old one goes.
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
