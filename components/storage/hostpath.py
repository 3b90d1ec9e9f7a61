"""A folder that every node has mounted under one path: the twin's, NFS, a single-node cluster.

The folder must exist (`type: Directory`): creating it would make one owned by root, into which no
worker can write, and would hide that the share is not mounted on a node.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import core, meta

from components.config import StorageConfig
from components.part import Part
from components.storage import Storage

CLAIM = "everstep"


@dataclass(frozen=True, kw_only=True)
class HostPathStorageArgs:
    """What to claim.

    Attributes:
        config: the stack's `storage` section.
        namespace: where the claim is made.
    """

    config: StorageConfig
    namespace: pulumi.Input[str]


class HostPathStorage(Part):
    """One PersistentVolume over a folder and the one claim that is bound to it."""

    storage: Storage

    def __init__(
        self, name: str, args: HostPathStorageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("storage:HostPathStorage", name, opts)
        volume = self._volume(args)
        claim = self._claim(args, volume)
        self.storage = Storage(
            claim=claim.metadata.apply(lambda metadata: metadata.name or CLAIM),
            where=pulumi.Output.from_input(args.config.path),
        )
        self.register_outputs({"claim": self.storage.claim, "where": self.storage.where})

    def _volume(self, args: HostPathStorageArgs) -> core.v1.PersistentVolume:
        """Declare the volume, reserved for our claim so that no other can take it."""
        return core.v1.PersistentVolume(
            f"{self.name}-volume",
            metadata=meta.v1.ObjectMetaArgs(name=pulumi.Output.concat(args.namespace, "-", CLAIM)),
            spec=core.v1.PersistentVolumeSpecArgs(
                capacity={"storage": args.config.size},
                access_modes=["ReadWriteMany"],
                persistent_volume_reclaim_policy="Retain",  # checkpoints outlive the stack
                storage_class_name="",
                claim_ref=core.v1.ObjectReferenceArgs(
                    api_version="v1",
                    kind="PersistentVolumeClaim",
                    namespace=args.namespace,
                    name=CLAIM,
                ),
                host_path=core.v1.HostPathVolumeSourceArgs(path=args.config.path, type="Directory"),
            ),
            # The server writes uid and resourceVersion of the bound claim into the reference.
            opts=self.child(
                delete_before_replace=True,
                replace_on_changes=["spec.hostPath"],
                ignore_changes=["spec.claimRef.uid", "spec.claimRef.resourceVersion"],
            ),
        )

    def _claim(
        self, args: HostPathStorageArgs, volume: core.v1.PersistentVolume
    ) -> core.v1.PersistentVolumeClaim:
        """Declare the claim on exactly that volume."""
        return core.v1.PersistentVolumeClaim(
            f"{self.name}-claim",
            metadata=meta.v1.ObjectMetaArgs(name=CLAIM, namespace=args.namespace),
            spec=core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteMany"],
                storage_class_name="",  # no class: never provisioned, only bound
                volume_name=volume.metadata.apply(lambda metadata: metadata.name or ""),
                resources=core.v1.VolumeResourceRequirementsArgs(
                    requests={"storage": args.config.size}
                ),
            ),
            opts=self.child(delete_before_replace=True, after=[volume]),
        )
