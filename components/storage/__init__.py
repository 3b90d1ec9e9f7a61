"""Where data, checkpoints and journals live.

Each kind of storage ends in a `VolumeSource`: what a PersistentVolume is made of and what its users
must carry. `claim.SharedClaim` makes the same volume and claim of all of them, so that the rules
about both stand in one place, and the rest of a stack sees only a `Storage`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes import core

MOUNT = "/everstep"
_VOLUME = "everstep"


@dataclass(frozen=True, kw_only=True)
class VolumeSource:
    """A volume that is there or will be, before any cluster knows of it.

    Whatever mounts it works on the node: the kubelet or a CSI driver. Pods themselves never speak
    to the storage, and no network policy lets them.

    Attributes:
        spec: the PersistentVolume's source and nothing else, as an argument of
            `core.v1.PersistentVolumeSpecArgs`: `{"csi": core.v1.CSIPersistentVolumeSourceArgs(...)}`.
            One that changes makes a new PersistentVolume: Kubernetes holds it immutable.
        where: where a person finds the files: a folder of the nodes, a share, a bucket.
        size: capacity to declare and to claim, as a Kubernetes quantity.
        annotations: of the PersistentVolume.
        mount_options: of the PersistentVolume.
        service_account_annotations: of the ServiceAccount whose pods mount it.
        service_account_labels: the same, labels.
        pod_labels: labels of the pods that mount it.
        ready: what must be there before the volume can be mounted, and outlive its last mount: a
            CSI driver, a role, a federated credential.
    """

    spec: Mapping[str, Any]
    where: pulumi.Output[str]
    size: str
    annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    mount_options: Sequence[str] = ()
    service_account_annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    service_account_labels: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    ready: Sequence[pulumi.Resource] = ()


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The volume that all workers share, as pods see it.

    Attributes:
        claim: name of the PersistentVolumeClaim.
        where: where a person finds the files: a folder of the nodes, a share, a bucket.
        service_account: name of the ServiceAccount whose pods may mount it.
        pod_labels: labels that pods need to be let in.
    """

    claim: pulumi.Output[str]
    where: pulumi.Output[str]
    service_account: pulumi.Output[str]
    pod_labels: Mapping[str, str] = field(default_factory=dict)

    def volume(self) -> core.v1.VolumeArgs:
        """Give the pod's volume."""
        source = core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=self.claim)
        return core.v1.VolumeArgs(name=_VOLUME, persistent_volume_claim=source)

    def mount(self) -> core.v1.VolumeMountArgs:
        """Give the container's mount of the whole volume."""
        return core.v1.VolumeMountArgs(name=_VOLUME, mount_path=MOUNT)

    def mount_part(self, sub_path_expr: str, mount_path: str) -> core.v1.VolumeMountArgs:
        """Give the mount of one folder, made where it is missing; `$(NAME)` is expanded."""
        return core.v1.VolumeMountArgs(
            name=_VOLUME, mount_path=mount_path, sub_path_expr=sub_path_expr
        )


def data_folder(dataset: str) -> str:
    """Give the folder of a prepared data set, relative to the volume."""
    return f"data/{dataset}"


def run_folder(job: str) -> str:
    """Give the folder of a job's checkpoints, journal and result, relative to the volume."""
    return f"runs/{job}"
