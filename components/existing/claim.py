"""A volume that an existing cluster has or provisions, with any driver: FSx, Blob, EFS, Azure Files, NFS.

An existing PersistentVolume is read before anything that depends on it is declared: a claim that can never be
bound would wait until its timeout, and a volume with the reclaim policy Delete would be deleted with the claim.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import core

from components.config import ClaimConfig, quantity_value
from components.config.faults import ConfigFault, ConfigurationError
from components.interface import Cluster, VolumeSource
from everstep.catalog.names import JOB_NAMESPACE, VOLUME_CLAIM

SHARED_ACCESS = "ReadWriteMany"
_OWN_CLAIM = (JOB_NAMESPACE, VOLUME_CLAIM)


@dataclass(frozen=True, kw_only=True)
class ExistingVolume:
    """The part of a PersistentVolume that decides whether the claim can use it.

    Attributes:
        name: its name.
        access_modes: access modes that it supports.
        reclaim_policy: what happens to it when its claim is deleted.
        storage_class: its class; empty for none.
        capacity: its size, as a Kubernetes quantity.
        phase: phase, such as Available, Bound or Released.
        claim: namespace and name of the claim that it is bound to or reserved for; None if there is none.
    """

    name: str
    access_modes: tuple[str, ...]
    reclaim_policy: str
    storage_class: str
    capacity: str
    phase: str
    claim: tuple[str, str] | None


def claim(config: ClaimConfig, cluster: Cluster) -> VolumeSource:
    """Return the volume for a claim; an existing PersistentVolume is read and checked."""
    if config.volume_name is None:
        location = f"the claim {VOLUME_CLAIM} in the namespace {JOB_NAMESPACE}"
        return VolumeSource(
            spec={},
            location=pulumi.Output.from_input(location),
            size=config.size,
            storage_class=config.storage_class,
        )
    volume = core.v1.PersistentVolume.get(
        "existing-volume",
        config.volume_name,
        opts=pulumi.ResourceOptions(provider=cluster.provider),
    )
    name = _usable_name(config, config.volume_name, volume)
    return VolumeSource(
        spec={},
        location=pulumi.Output.concat("the PersistentVolume ", name),
        size=config.size,
        volume_name=name,
        storage_class=config.storage_class or "",
    )


def volume_faults(config: ClaimConfig, volume: ExistingVolume) -> list[ConfigFault]:
    """Return the reasons why the stack's claim cannot use an existing volume."""
    return [
        *_access_faults(volume),
        *_reclaim_faults(volume),
        *_class_faults(config, volume),
        *_size_faults(config, volume),
        *_binding_faults(volume),
    ]


def _usable_name(
    config: ClaimConfig, name: str, volume: core.v1.PersistentVolume
) -> pulumi.Output[str]:
    """Return the name of an existing volume, as an output that fails if the stack cannot use the volume."""

    def checked(
        spec: core.v1.outputs.PersistentVolumeSpec,
        status: core.v1.outputs.PersistentVolumeStatus | None,
    ) -> str:
        if faults := volume_faults(config, _existing_volume(name, spec, status)):
            raise pulumi.RunError(
                str(ConfigurationError(faults))
            )  # for the user to fix: no traceback
        return name

    def with_status(spec: core.v1.outputs.PersistentVolumeSpec) -> pulumi.Output[str]:
        return volume.status.apply(lambda status: checked(spec, status))

    return volume.spec.apply(with_status)  # `Output.all` would turn both into plain dictionaries


def _existing_volume(
    name: str,
    spec: core.v1.outputs.PersistentVolumeSpec,
    status: core.v1.outputs.PersistentVolumeStatus | None,
) -> ExistingVolume:
    """Return the part of a PersistentVolume that is checked."""
    reference = spec.claim_ref
    return ExistingVolume(
        name=name,
        access_modes=tuple(spec.access_modes or ()),
        reclaim_policy=spec.persistent_volume_reclaim_policy or "Retain",
        storage_class=spec.storage_class_name or "",
        capacity=(spec.capacity or {}).get("storage", "0"),
        phase=(status.phase if status else None) or "Pending",
        claim=(reference.namespace or "", reference.name or "") if reference else None,
    )


def _access_faults(volume: ExistingVolume) -> list[ConfigFault]:
    """Check that the workers of several nodes can mount the volume at the same time."""
    if SHARED_ACCESS in volume.access_modes:
        return []
    modes = ", ".join(volume.access_modes) or "no access mode"
    rule = f"supports {modes}, but workers on several nodes write to it: {SHARED_ACCESS} is needed"
    return [_fault(volume, rule, "name a volume of a shared file system")]


def _reclaim_faults(volume: ExistingVolume) -> list[ConfigFault]:
    """Check that the volume is not deleted with the claim of the stack."""
    if volume.reclaim_policy == "Retain":
        return []
    rule = f"has the reclaim policy {volume.reclaim_policy}: `down` would delete its data"
    patch = '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
    return [_fault(volume, rule, f"run: kubectl patch pv {volume.name} -p '{patch}'")]


def _class_faults(config: ClaimConfig, volume: ExistingVolume) -> list[ConfigFault]:
    """Check that claim and volume have the same class; Kubernetes binds no others."""
    if (config.storage_class or "") == volume.storage_class:
        return []
    rule = (
        f"is not the class of the volume {volume.name}, {volume.storage_class or 'which has none'}"
    )
    fix = f"set it to {volume.storage_class}" if volume.storage_class else "remove it"
    return [ConfigFault("storage.storageClass", config.storage_class, rule, fix)]


def _size_faults(config: ClaimConfig, volume: ExistingVolume) -> list[ConfigFault]:
    """Check that the volume is not smaller than the claim."""
    if quantity_value(config.size) <= quantity_value(volume.capacity):
        return []
    rule = f"is larger than the volume {volume.name}, which has {volume.capacity}"
    return [ConfigFault("storage.size", config.size, rule, f"set it to {volume.capacity}")]


def _binding_faults(volume: ExistingVolume) -> list[ConfigFault]:
    """Check that the volume is free, or bound to or reserved for the claim of this stack."""
    if volume.claim is None or (volume.claim == _OWN_CLAIM and volume.phase != "Released"):
        return []
    namespace, name = volume.claim
    if volume.phase != "Released":
        rule = f"is bound to or reserved for the claim {name} in the namespace {namespace}"
        return [_fault(volume, rule, "name another volume, or delete that claim")]
    rule = f"is still reserved for the deleted claim {name} in the namespace {namespace}"
    patch = '{"spec":{"claimRef":null}}'
    return [_fault(volume, rule, f"run: kubectl patch pv {volume.name} -p '{patch}'")]


def _fault(volume: ExistingVolume, rule: str, fix: str) -> ConfigFault:
    return ConfigFault("storage.volumeName", volume.name, rule, fix)
