"""Where data, checkpoints and journals live: each kind of storage ends in one claim to mount."""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import core

MOUNT = "/everstep"
_VOLUME = "everstep"


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The volume that all workers share, as pods see it.

    Attributes:
        claim: name of the PersistentVolumeClaim.
        where: where a person finds the files: a folder of the nodes, a share, a bucket.
    """

    claim: pulumi.Output[str]
    where: pulumi.Output[str]

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
