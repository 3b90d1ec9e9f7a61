"""Automatic approval of kubelets' requests for client certificates, which the controller manager signs.

As in a kubeadm or AKS cluster, a kubelet replaces the certificate that it starts with, and later replaces each
certificate before it expires.
"""

from typing import Any

from cloudtwin.kubernetes_api import KubernetesClient

RBAC = "rbac.authorization.k8s.io"
NAME = "cloudtwin:kubelets-renew-client-certificates"
ROLE = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"  # exists in every cluster


def allow(client: KubernetesClient) -> None:
    """Let the controller manager approve kubelets' requests for client certificates.

    Raises:
        ApiError, OSError: the API server refuses, or does not respond.
    """
    client.apply(f"/apis/{RBAC}/v1/clusterrolebindings/{NAME}", binding())


def binding() -> dict[str, Any]:
    """Return the binding of all kubelets to the role that the controller manager's approver checks."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:nodes"}],
    }
