"""Which storage drivers the cluster has: what an add-on, or a flag of the cluster, brings.

A driver is three things: an object that tells Kubernetes how the driver wants to be asked, a plugin on every
machine, and rights for that plugin. The plugin is in every cloud machine's agent and stays silent until the driver
is named here.
"""

from typing import Any

from twin.nodes import files
from twin.nodes.api import Api
from twin.nodes.layout import Layout

FSX = "fsx.csi.aws.com"
BLOB = "blob.csi.azure.com"
AUDIENCE = "api://AzureADTokenExchange"
USER = "system:everstep-agent"
GROUP = "everstep:agents"
ROLE = "everstep:storage-drivers"
RBAC = "rbac.authorization.k8s.io"
# As the drivers' own charts have them (aws-fsx-csi-driver 1.9, blob-csi-driver 1.27).
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
# A driver that takes its taint off the Node once it is there; pods that need it do not come earlier.
STARTUP_TAINTS = {FSX: "fsx.csi.aws.com/agent-not-ready"}


def enable(layout: Layout, api: Api, driver: str) -> None:
    """Bring a driver to the cluster; machines that run notice within a second.

    Raises:
        ApiError, OSError: the API server refused or did not answer.
    """
    for path, document in documents(driver).items():
        api.apply(path, document)
    files.write_json(layout.drivers, {"drivers": sorted({*named(layout), driver})})


def disable(layout: Layout, api: Api, driver: str) -> None:
    """Take a driver from the cluster; volumes that are mounted stay so until their pods end.

    Raises:
        ApiError, OSError: the API server refused or did not answer.
    """
    files.write_json(layout.drivers, {"drivers": sorted({*named(layout)} - {driver})})
    api.delete(f"/apis/storage.k8s.io/v1/csidrivers/{driver}")


def named(layout: Layout) -> list[str]:
    """Return the drivers that the cluster has."""
    stored = files.read_json(layout.drivers) or {}
    return [driver for driver in DRIVERS if driver in stored.get("drivers", ())]


def documents(driver: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a driver by the paths they are applied to."""
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
            # A kubelet may not change the taints of its own Node, so the driver has rights of its own.
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
