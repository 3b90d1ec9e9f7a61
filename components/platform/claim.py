"""The claim on the volume that all workers share: the same objects for any `VolumeSource`.

The stack declares the volume itself, and volume and claim name each other: a volume that a StorageClass provisions
would not be in the state of the stack. Only with `storage.kind: claim`, where the cluster has or provisions the
volume, does the stack declare the claim without a volume.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import core, meta

from components.component import Component
from components.interface import DataAccess, Storage, VolumeSource
from everstep.catalog.names import TRAINER_SERVICE_ACCOUNT, VOLUME_CLAIM


@dataclass(frozen=True, kw_only=True)
class SharedClaimArgs:
    """Arguments of a SharedClaim.

    Attributes:
        source: the volume.
        namespace: namespace of the claim.
        workers_access: identity with which workers read an object store; None if they need none.
        protect: whether Pulumi refuses to delete a claim for which the cluster provisions a volume: by the reclaim
            policy of most classes, the data would be deleted with it.
    """

    source: VolumeSource
    namespace: pulumi.Input[str]
    workers_access: DataAccess | None = None
    protect: bool = False


class SharedClaim(Component):
    """The claim on a volume, the ServiceAccount that may mount it, and the volume itself if the stack declares it.

    Attributes:
        storage: the claimed volume, for pods.
    """

    storage: Storage

    def __init__(
        self, name: str, args: SharedClaimArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("storage:SharedClaim", name, opts)
        volume = self._volume(args) if args.source.spec else None
        claim = self._claim(args, volume)
        account = self._service_account(args)
        self.storage = Storage(
            claim=claim.metadata.apply(lambda metadata: metadata.name or VOLUME_CLAIM),
            location=args.source.location,
            service_account=account.metadata.apply(
                lambda metadata: metadata.name or TRAINER_SERVICE_ACCOUNT
            ),
            pod_labels=args.source.pod_labels,
        )
        self.register_outputs({"claim": self.storage.claim, "location": self.storage.location})

    def _volume(self, args: SharedClaimArgs) -> core.v1.PersistentVolume:
        """Declare the volume, reserved for this claim so that no other claim can bind it."""
        return core.v1.PersistentVolume(
            f"{self.name}-volume",
            metadata=meta.v1.ObjectMetaArgs(
                name=pulumi.Output.concat(args.namespace, "-", VOLUME_CLAIM),
                annotations=args.source.annotations or None,
            ),
            spec=core.v1.PersistentVolumeSpecArgs(
                capacity={"storage": args.source.size},
                access_modes=["ReadWriteMany"],
                persistent_volume_reclaim_policy="Retain",  # checkpoints outlive the stack
                storage_class_name="",
                mount_options=list(args.source.mount_options) or None,
                claim_ref=core.v1.ObjectReferenceArgs(
                    api_version="v1",
                    kind="PersistentVolumeClaim",
                    namespace=args.namespace,
                    name=VOLUME_CLAIM,
                ),
                **args.source.spec,
            ),
            # Kubernetes adds the uid and the resourceVersion of the bound claim to the reference.
            opts=self.child(
                depends_on=args.source.prerequisites,
                delete_before_replace=True,
                replace_on_changes=[f"spec.{_camel(kind)}" for kind in args.source.spec],
                ignore_changes=["spec.claimRef.uid", "spec.claimRef.resourceVersion"],
            ),
        )

    def _claim(
        self, args: SharedClaimArgs, volume: core.v1.PersistentVolume | None
    ) -> core.v1.PersistentVolumeClaim:
        """Declare the claim: on the volume that the stack declares, else as the source describes."""
        volume_name = args.source.volume_name
        is_provisioned = volume is None and volume_name is None
        if volume is not None:
            volume_name = volume.metadata.apply(lambda metadata: metadata.name or "")
        return core.v1.PersistentVolumeClaim(
            f"{self.name}-claim",
            metadata=meta.v1.ObjectMetaArgs(name=VOLUME_CLAIM, namespace=args.namespace),
            spec=core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteMany"],
                # Without a class (""), the claim is bound to the named volume and never provisioned.
                storage_class_name=args.source.storage_class,
                volume_name=volume_name,
                resources=core.v1.VolumeResourceRequirementsArgs(
                    requests={"storage": args.source.size}
                ),
            ),
            opts=self.child(
                delete_before_replace=True,
                protect=args.protect and is_provisioned,
                depends_on=[volume] if volume is not None else list(args.source.prerequisites),
                # Kubernetes refuses to grow a claim without a class. The old request does not limit the grown volume.
                ignore_changes=["spec.resources.requests"]
                if args.source.storage_class == ""
                else [],
            ),
        )

    def _service_account(self, args: SharedClaimArgs) -> core.v1.ServiceAccount:
        """Declare the account of workers and data preparation: an identity for the storage, no RBAC."""
        access = args.workers_access
        annotations = {
            **args.source.service_account_annotations,
            **(access.service_account_annotations if access else {}),
        }
        return core.v1.ServiceAccount(
            f"{self.name}-account",
            metadata=meta.v1.ObjectMetaArgs(
                name=TRAINER_SERVICE_ACCOUNT,
                namespace=args.namespace,
                annotations=annotations or None,
                labels=args.source.service_account_labels or None,
            ),
            automount_service_account_token=False,
            opts=self.child(depends_on=args.source.prerequisites, delete_before_replace=True),
        )


def _camel(snake: str) -> str:
    """Return the property name of an argument: host_path becomes hostPath."""
    head, *words = snake.split("_")
    return head + "".join(word.capitalize() for word in words)
