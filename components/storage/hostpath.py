"""A folder that every node has mounted under one path: the twin's, NFS, a single-node cluster.

The folder must exist (`type: Directory`): creating it would make one owned by root, into which no
worker can write, and would hide that the share is not mounted on a node.
"""

import pulumi
from pulumi_kubernetes import core

from components.storage import VolumeSource


def host_path(path: str, size: str) -> VolumeSource:
    """Give the volume over a folder of the nodes; `size` is declared, and nobody holds it to that."""
    return VolumeSource(
        spec={"host_path": core.v1.HostPathVolumeSourceArgs(path=path, type="Directory")},
        where=pulumi.Output.from_input(path),
        size=size,
    )
