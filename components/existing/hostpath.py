"""A folder that every node mounts at the same path, such as on the twin, on NFS or in a single-node cluster.

The folder must exist (`type: Directory`): Kubernetes would create a folder that is owned by root, into
which no worker can write, and would hide that the share is not mounted on a node.
"""

import pulumi
from pulumi_kubernetes import core

from components.interface import VolumeSource


def host_path(path: str, size: str) -> VolumeSource:
    """Return the volume for a folder of the nodes; `size` is declared but not enforced."""
    return VolumeSource(
        spec={"host_path": core.v1.HostPathVolumeSourceArgs(path=path, type="Directory")},
        location=pulumi.Output.from_input(path),
        size=size,
    )
