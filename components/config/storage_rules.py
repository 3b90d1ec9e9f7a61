"""Rules across the keys of the volume, the cluster that mounts it, and etcd."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from components.config.faults import ConfigFault
from components.config.newer_names import lacks_zones
from components.config.pool_rules import SEVERAL_POOLS
from components.config.rules import ConfigRule

STORAGE_KINDS = {"existing": ("hostpath", "claim"), "eks": ("fsx",), "aks": ("blob",)}
"""Kind of cluster -> kinds of storage that its nodes can mount."""


SYSTEM_FOLDERS = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys"),
    *("/usr", "/var/lib/containerd", "/var/lib/docker", "/var/lib/etcd", "/var/lib/kubelet"),
    "/var/run",
)
"""Folders that may not contain a volume."""

SHARED_FOLDERS = ("/", "/home", "/mnt", "/opt", "/srv", "/tmp", "/var", "/var/lib")  # noqa: S108
"""Folders that other programs share: a volume may be inside such a folder, but may not be the folder itself."""

_MIN_GIB, _STEP_GIB = 1200, 2400  # FSx offers 1200 GiB and multiples of 2400 GiB


def _cluster_mounts_storage(cluster: str, storage: str) -> list[ConfigFault]:
    """Check that the cluster's nodes can mount the volume."""
    kinds = STORAGE_KINDS[cluster]
    if storage in kinds:
        return []
    rule = f"cannot be mounted by a cluster of kind {cluster}"
    fix = f"use {' or '.join(kinds)}"
    if cluster == "existing":
        fix += "; a PersistentVolume of FSx, Blob or any other driver is a claim with storage.volumeName"
    return [ConfigFault("storage.kind", storage, rule, fix)]


def _capacity_offered(gib: int) -> list[ConfigFault]:
    """Check that FSx offers the capacity."""
    if gib == _MIN_GIB or gib % _STEP_GIB == 0:
        return []
    multiple = gib // _STEP_GIB * _STEP_GIB
    fix = f"use {multiple or _MIN_GIB} or {multiple + _STEP_GIB}"
    rule = f"is neither {_MIN_GIB} nor a multiple of {_STEP_GIB}"
    return [ConfigFault("storage.sizeGib", gib, rule, fix)]


def _throughput_is_persistent(deployment: str, throughput: int | None) -> list[ConfigFault]:
    """Check that a scratch file system has no throughput: FSx derives it from the size."""
    if deployment == "PERSISTENT_2" or throughput is None:
        return []
    rule, fix = "applies only to PERSISTENT_2", "remove it or set deploymentType to PERSISTENT_2"
    return [ConfigFault("storage.throughput", throughput, rule, fix)]


def _path_outside_system(path: str) -> list[ConfigFault]:
    """Check that the folder is not part of the operating system: pods write to it on every node."""
    folder = PurePosixPath("/" + path.lstrip("/"))  # pathlib distinguishes //etc, Linux does not
    if ".." in folder.parts:
        return [
            ConfigFault("storage.path", path, "contains ..", "write the folder's path without it")
        ]
    system = [PurePosixPath(system_folder) for system_folder in SYSTEM_FOLDERS]
    is_system = any(folder.is_relative_to(system_folder) for system_folder in system)
    if is_system or str(folder) in SHARED_FOLDERS:
        rule = "is a folder of the operating system, to which pods would write on every node"
        return [ConfigFault("storage.path", path, rule, "use one such as /mnt/everstep")]
    return []


def _same_zone(
    storage_zone: str | None, gpu_zone: str | None, zones: Sequence[str]
) -> list[ConfigFault]:
    """Check that the GPU nodes are in the zone of the file system."""
    zone = gpu_zone or next(iter(zones), None)
    if storage_zone is None or storage_zone == zone:
        return []
    rule = f"is not the zone of the GPU nodes ({zone})"
    return [
        ConfigFault(
            "storage.existing.zone",
            storage_zone,
            rule,
            f"set cluster.gpuPool.zone to {storage_zone}",
        )
    ]


def _bucket_needs_new_file_system(file_system: str | None, bucket: str | None) -> list[ConfigFault]:
    """Check that no bucket is set for an existing file system, which the stack does not change."""
    if file_system is None or bucket is None:
        return []
    rule = "cannot be linked to an existing file system by the stack"
    return [ConfigFault("storage.bucket", bucket, rule, "link it yourself and remove this key")]


def _group_needs_account(account: str | None, group: str | None) -> list[ConfigFault]:
    """Check that accountResourceGroup is set only with an existing account."""
    if account is not None or group is None:
        return []
    rule = "applies only to an existing account, but storage.account is not set"
    return [
        ConfigFault(
            "storage.accountResourceGroup", group, rule, "set storage.account or remove this key"
        )
    ]


def _redundancy_available(redundancy: str, location: str) -> list[ConfigFault]:
    """Check that zone-redundant storage is in a location with availability zones."""
    if not redundancy.endswith("_ZRS") or not lacks_zones(location):
        return []
    fix = f"use {redundancy.replace('_ZRS', '_LRS')}, or choose another location"
    return [
        ConfigFault(
            "storage.redundancy",
            redundancy,
            f"needs availability zones, but {location} has none",
            fix,
        )
    ]


def _etcd_log_is_local(persistence: str, storage: str) -> list[ConfigFault]:
    """Check that etcd does not keep its write-ahead log on network storage, where every write is slow."""
    if persistence != "volume":
        return []
    rule = f"puts etcd's write-ahead log on {storage}, where every write would wait for the network"
    return [ConfigFault("etcd.persistence", persistence, rule, "use disk or memory")]


def _etcd_disk_has_class(
    persistence: str, storage_class: str | None, cluster: str
) -> list[ConfigFault]:
    """Check that a disk for etcd can be created, and that a class is set only for a disk."""
    if persistence != "disk" and storage_class is not None:
        rule = f"applies only to disk, but etcd.persistence is {persistence}"
        return [ConfigFault("etcd.storageClass", storage_class, rule, "remove it or use disk")]
    if persistence == "disk" and storage_class is None and cluster == "eks":
        rule = "is missing: EKS has no working default StorageClass"
        fix = "install the EBS CSI driver and set its class, or set etcd.persistence to memory"
        return [ConfigFault("etcd.storageClass", None, rule, fix)]
    return []


def _etcd_passwords_outlive_data(authentication: str, persistence: str) -> list[ConfigFault]:
    """Check that etcd's data does not outlive the Secrets with its passwords, as a shared volume does."""
    if authentication != "users" or persistence != "volume":
        return []
    rule = "does not work with volume: the data would outlive the passwords, and the next stack could not log in"
    fix = "set etcd.persistence to memory or disk"
    return [ConfigFault("etcd.authentication", authentication, rule, fix)]


_FSX, _BLOB = {"storage": ("fsx",)}, {"storage": ("blob",)}
_FSX_ON_EKS, _BLOB_ON_AKS = _FSX | {"cluster": ("eks",)}, _BLOB | {"cluster": ("aks",)}

RULES = (
    ConfigRule(("storage.path",), _path_outside_system, {"storage": ("hostpath",)}),
    ConfigRule(("cluster.kind", "storage.kind"), _cluster_mounts_storage),
    ConfigRule(("storage.sizeGib",), _capacity_offered, _FSX),
    ConfigRule(("storage.deploymentType", "storage.throughput"), _throughput_is_persistent, _FSX),
    ConfigRule(
        ("storage.existing.zone", "cluster.gpuPool.zone", "cluster.zones"),
        _same_zone,
        _FSX_ON_EKS,
        unless=SEVERAL_POOLS,
    ),
    ConfigRule(
        ("storage.existing.fileSystemId", "storage.bucket"), _bucket_needs_new_file_system, _FSX
    ),
    ConfigRule(("storage.account", "storage.accountResourceGroup"), _group_needs_account, _BLOB),
    ConfigRule(("storage.redundancy", "cluster.location"), _redundancy_available, _BLOB_ON_AKS),
    ConfigRule(
        ("etcd.persistence", "storage.kind"),
        _etcd_log_is_local,
        {"cluster": ("eks", "aks"), "storage": ("fsx", "blob")},
    ),
    ConfigRule(("etcd.persistence", "storage.kind"), _etcd_log_is_local, {"storage": ("claim",)}),
    ConfigRule(("etcd.persistence", "etcd.storageClass", "cluster.kind"), _etcd_disk_has_class),
    ConfigRule(("etcd.authentication", "etcd.persistence"), _etcd_passwords_outlive_data),
)
