"""CSI drivers of the cluster, which an EKS add-on or an AKS option installs.

A driver is a CSIDriver object, a plugin on every machine, and permissions for that plugin. The plugin is part of every
cloud machine's agent and starts when the driver is enabled here.
"""

from typing import Any

from cloudtwin import files
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes.layout import Layout

FSX = "fsx.csi.aws.com"
BLOB = "blob.csi.azure.com"
AUDIENCE = "api://AzureADTokenExchange"
USER = "system:cloudtwin-agent"
GROUP = "cloudtwin:agents"
ROLE = "cloudtwin:storage-drivers"
RBAC = "rbac.authorization.k8s.io"
# From the drivers' own charts (aws-fsx-csi-driver 1.9, blob-csi-driver 1.27).
DRIVERS: dict[str, dict[str, Any]] = {
    FSX: {"attachRequired": False, "fsGroupPolicy": "ReadWriteOnceWithFSType"},
    BLOB: {
        "attachRequired": False,
        "podInfoOnMount": True,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": True,
        "tokenRequests": [{"audience": AUDIENCE, "expirationSeconds": 3600}],
        "volumeLifecycleModes": ["Persistent", "Ephemeral"],
    },
}
# Taints that a driver removes from the Node once it runs; until then, they repel pods that need the driver.
STARTUP_TAINTS = {FSX: "fsx.csi.aws.com/agent-not-ready"}


def enable(layout: Layout, client: KubernetesClient, driver: str) -> None:
    """Install a driver in the cluster; running machines start it within a second.

    Raises:
        ApiError, OSError: the API server refused or did not respond.
    """
    for path, document in documents(driver).items():
        client.apply(path, document)
    files.write_json(layout.drivers, {"drivers": sorted({*enabled_drivers(layout), driver})})


def disable(layout: Layout, client: KubernetesClient, driver: str) -> None:
    """Remove a driver from the cluster; mounted volumes stay mounted until their pods end.

    Raises:
        ApiError, OSError: the API server refused or did not respond.
    """
    files.write_json(layout.drivers, {"drivers": sorted({*enabled_drivers(layout)} - {driver})})
    client.delete(f"/apis/storage.k8s.io/v1/csidrivers/{driver}")


def enabled_drivers(layout: Layout) -> list[str]:
    """Return the enabled drivers of the cluster."""
    document = files.read_json(layout.drivers) or {}
    return [driver for driver in DRIVERS if driver in document.get("drivers", ())]


def documents(driver: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a driver by their API paths."""
    rbac = f"/apis/{RBAC}/v1"
    return {
        f"/apis/storage.k8s.io/v1/csidrivers/{driver}": {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": driver},
            "spec": DRIVERS[driver],
        },
        f"{rbac}/clusterroles/{ROLE}": {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": ROLE},
            # A kubelet may not change the taints of its Node, so the driver has separate permissions.
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}],
        },
        f"{rbac}/clusterrolebindings/{ROLE}": {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ROLE},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": ROLE},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": GROUP}],
        },
    }
