"""What must hold between the volume, the cluster it is mounted in, and etcd's own data."""

from collections.abc import Sequence

from components.config import catalog
from components.faults import Fault
from components.rules import Rule

STORAGE_OF = {"existing": "hostpath", "eks": "fsx", "aks": "blob"}

_STEP_GIB = 2400  # FSx: 1200, then multiples of 2400


def _kinds_fit(cluster: str, storage: str) -> list[Fault]:
    """Check that the cluster's nodes can mount the volume."""
    wanted = STORAGE_OF[cluster]
    if storage == wanted:
        return []
    rule = f"cannot be mounted by a cluster of kind {cluster}"
    return [Fault("storage.kind", storage, rule, f"use {wanted}")]


def _capacity_offered(gib: int) -> list[Fault]:
    """Check the capacity against what FSx sells."""
    if gib in {1200, _STEP_GIB} or gib % _STEP_GIB == 0:
        return []
    lower = gib // _STEP_GIB * _STEP_GIB or 1200
    cure = f"use {lower} or {gib // _STEP_GIB * _STEP_GIB + _STEP_GIB}"
    return [Fault("storage.sizeGib", gib, "is neither 1200 nor a multiple of 2400", cure)]


def _persistent_only(deployment: str, throughput: int | None, backup_days: int) -> list[Fault]:
    """Check that a scratch file system is not asked for what only a persistent one has."""
    if deployment == "PERSISTENT_2":
        return []
    rule, cure = "is for PERSISTENT_2", "remove it or set deploymentType to PERSISTENT_2"
    faults = []
    if throughput is not None:
        faults.append(Fault("storage.throughput", throughput, rule, cure))
    if backup_days:
        faults.append(Fault("storage.backupDays", backup_days, rule, cure))
    return faults


def _same_zone(there: str | None, gpus: str | None, zones: Sequence[str]) -> list[Fault]:
    """Check that the GPU nodes stand beside the file system: traffic across zones costs and waits."""
    zone = gpus or next(iter(zones), None)
    if there is None or there == zone:
        return []
    rule = f"is not the zone of the GPU nodes ({zone})"
    return [Fault("storage.existing.zone", there, rule, f"set cluster.gpuPool.zone to {there}")]


def _bucket_of_own(file_system: str | None, bucket: str | None) -> list[Fault]:
    """Check that no bucket is tied to a file system that is not ours to change."""
    if file_system is None or bucket is None:
        return []
    rule = "cannot be tied to a file system that is there already"
    return [Fault("storage.bucket", bucket, rule, "tie it there yourself and remove this")]


def _account_of_own(account: str | None, group: str | None) -> list[Fault]:
    """Check that a resource group is named only for an account that is there already."""
    if account is not None or group is None:
        return []
    rule = "is for an account of your own, and storage.account is not set"
    return [Fault("storage.accountResourceGroup", group, rule, "add the account or remove this")]


def _copies_there(redundancy: str, location: str) -> list[Fault]:
    """Check that copies in several zones are asked for only where there are some."""
    if not redundancy.endswith("_ZRS") or catalog.AZURE_LOCATIONS[location]:
        return []
    cure = redundancy.replace("_ZRS", "_LRS")
    return [Fault("storage.redundancy", redundancy, f"needs zones, and {location} has none", cure)]


def _etcd_can_persist(persistence: str, storage: str) -> list[Fault]:
    """Check that etcd does not write to a store far away: it waits for each write."""
    if persistence != "volume":
        return []
    rule = f"puts etcd's log on {storage}, where every write would wait for the network"
    return [Fault("etcd.persistence", persistence, rule, "use disk or memory")]


def _disk_has_class(persistence: str, storage_class: str | None, cluster: str) -> list[Fault]:
    """Check that a disk for etcd can be made, and that a class is named only for a disk."""
    if persistence != "disk" and storage_class is not None:
        rule = f"is for disk, and etcd.persistence is {persistence}"
        return [Fault("etcd.storageClass", storage_class, rule, "remove it or use disk")]
    if persistence == "disk" and storage_class is None and cluster == "eks":
        rule = "is missing: EKS brings no StorageClass that works"
        cure = "install the EBS CSI driver and name its class, or set etcd.persistence to memory"
        return [Fault("etcd.storageClass", None, rule, cure)]
    return []


_FSX, _BLOB = {"storage": ("fsx",)}, {"storage": ("blob",)}
_FSX_ON_EKS, _BLOB_ON_AKS = _FSX | {"cluster": ("eks",)}, _BLOB | {"cluster": ("aks",)}

RULES = (
    Rule(("cluster.kind", "storage.kind"), _kinds_fit),
    Rule(("storage.sizeGib",), _capacity_offered, _FSX),
    Rule(
        ("storage.deploymentType", "storage.throughput", "storage.backupDays"),
        _persistent_only,
        _FSX,
    ),
    Rule(
        ("storage.existing.zone", "cluster.gpuPool.zone", "cluster.zones"), _same_zone, _FSX_ON_EKS
    ),
    Rule(("storage.existing.fileSystemId", "storage.bucket"), _bucket_of_own, _FSX),
    Rule(("storage.account", "storage.accountResourceGroup"), _account_of_own, _BLOB),
    Rule(("storage.redundancy", "cluster.location"), _copies_there, _BLOB_ON_AKS),
    Rule(
        ("etcd.persistence", "storage.kind"),
        _etcd_can_persist,
        {"cluster": ("eks", "aks"), "storage": ("fsx", "blob")},
    ),
    Rule(("etcd.persistence", "etcd.storageClass", "cluster.kind"), _disk_has_class),
)
