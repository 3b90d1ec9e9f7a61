"""A container in a storage account as the shared volume: blobfuse2 with workload identity, or NFS.

The account has a hierarchical namespace in both cases: only there is a rename one step, and a
checkpoint is a folder that is renamed when it is whole. It has no keys: whoever mounts it shows a
token of the `trainer` ServiceAccount, which the account's identity trusts, and comes from the
nodes' subnet. NFS 3.0 knows no users, so there the subnet alone is the lock.

Versions of blobs would protect more than deleted ones kept for some days, but an account with a
hierarchical namespace has none.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_azure_native import managedidentity, storage

from components.cluster.aks_identity import Identity, declare_identity
from components.cluster.aks_names import account_name
from components.cluster.aks_roles import Role, grant
from components.config import BlobConfig
from components.part import Part
from components.storage import VolumeSource
from components.storage.claim import SERVICE_ACCOUNT

DRIVER = "blob.csi.azure.com"
NAMESPACE = "elastic-job"
USERS = (f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}",)
AUDIENCE = "api://AzureADTokenExchange"
SMALLEST_BLOCK = 30  # that an account's rules take
UID = 10001  # of our images' user; blobfuse2 cannot look into a pod's fsGroup

STALE_SECONDS = 5  # how long a worker may miss what another wrote: the time between checkpoints
FILE_CACHE_SECONDS = 120  # a file's content does not change once it has its name
CACHE_MIB = (
    16384  # of a node's disk, for each pod that mounts; the driver gives each its own folder
)

BLOBFUSE_OPTIONS = (
    "-o allow_other",
    f"-o uid={UID}",
    f"-o gid={UID}",
    "-o umask=007",
    f"-o attr_timeout={STALE_SECONDS}",
    f"-o entry_timeout={STALE_SECONDS}",
    "-o negative_timeout=0",  # a checkpoint that was not there a moment ago may be now
    "--use-adls=true",  # the account has a hierarchical namespace
    f"--attr-cache-timeout={STALE_SECONDS}",
    f"--file-cache-timeout-in-seconds={FILE_CACHE_SECONDS}",
    f"--cache-size-mb={CACHE_MIB}",
    "--cancel-list-on-mount-seconds=10",  # listing at each mount is paid for
    "--log-level=LOG_WARNING",
)
NFS_OPTIONS = ("nolock", "nconnect=4")  # Azure has no lock manager


@dataclass(frozen=True, kw_only=True)
class BlobArgs:
    """What to make, and for whom.

    Attributes:
        config: the stack's `storage` section.
        cluster_name: what names begin with.
        location: where.
        group: name of the cluster's resource group.
        group_id: its id.
        subnet_id: the nodes' subnet; it has the service endpoint of storage.
        issuer: whose tokens of ServiceAccounts are trusted.
        visitors: public networks whose people may reach the data with their own Entra identity.
        tags: of all that takes tags.
        protect: whether account and container refuse to be deleted, and outlive the stack.
    """

    config: BlobConfig
    cluster_name: str
    location: str
    group: pulumi.Output[str]
    group_id: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    issuer: pulumi.Output[str]
    visitors: Sequence[str]
    tags: dict[str, str]
    protect: bool = False


class BlobStorage(Part):
    """An account with a container, and who may mount it.

    Attributes:
        volume: what a PersistentVolume over it is made of.
        account: name of the account.
    """

    volume: VolumeSource
    account: pulumi.Output[str]

    def __init__(
        self, name: str, args: BlobArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("storage:BlobStorage", name, opts)
        self._args, self._config = args, args.config
        self._nfs = args.config.protocol == "nfs"
        self._account()
        container = self._container()
        self.volume = self._over_nfs(container) if self._nfs else self._over_fuse(container)
        self.register_outputs({"account": self.account, "where": self.volume.where})

    def _account(self) -> None:
        """Declare the account, or look the user's up."""
        if self._config.account is not None:
            self._find(self._config.account)
            return
        made = self._make()
        self.account, self._account_id, self._group = made.name, made.id, self._args.group
        self._retention(made)

    def _find(self, named: str) -> None:
        """Look up the user's account, whose settings stay the user's."""
        group = pulumi.Output.from_input(self._config.account_resource_group or self._args.group)
        found = storage.get_storage_account_output(
            account_name=named,
            resource_group_name=group,
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        self.account, self._account_id, self._group = found.name, found.id, group

    def _make(self) -> storage.StorageAccount:
        """Declare the account."""
        premium = self._config.premium
        return storage.StorageAccount(
            f"{self.name}-account",
            account_name=self._args.group_id.apply(
                lambda group: account_name(self._args.cluster_name, group)
            ),
            resource_group_name=self._args.group,
            location=self._args.location,
            kind="BlockBlobStorage" if premium else "StorageV2",
            sku=storage.SkuArgs(name=self._config.redundancy),
            access_tier=None if premium else storage.AccessTier.HOT,
            is_hns_enabled=True,
            enable_nfs_v3=self._nfs,
            minimum_tls_version="TLS1_2",
            enable_https_traffic_only=True,  # of REST; NFS 3.0 has no TLS to be held to
            allow_shared_key_access=False,
            allow_blob_public_access=False,
            allow_cross_tenant_replication=False,
            default_to_o_auth_authentication=True,
            public_network_access="Enabled",  # the service endpoint's door; the rules guard it
            network_rule_set=self._lock(),
            tags=self._args.tags,
            opts=self._kept(),
        )

    def _kept(self) -> pulumi.ResourceOptions:
        """Give the options of what holds the data."""
        return self.child(
            delete_before_replace=True,
            protect=self._args.protect,
            retain_on_delete=self._args.protect,
        )

    def _lock(self) -> storage.NetworkRuleSetArgs:
        """Give from where the account can be reached: the nodes' subnet, and known people."""
        return storage.NetworkRuleSetArgs(
            default_action=storage.DefaultAction.DENY,
            bypass="AzureServices",
            virtual_network_rules=[
                storage.VirtualNetworkRuleArgs(
                    virtual_network_resource_id=self._args.subnet_id,
                    action=storage.Action.ALLOW,
                )
            ],
            ip_rules=[
                storage.IPRuleArgs(i_p_address_or_range=address, action=storage.Action.ALLOW)
                for block in ([] if self._nfs else self._args.visitors)
                for address in address_rule(block)
            ]
            or None,
        )

    def _retention(self, account: storage.StorageAccount) -> None:
        """Declare for how long what was deleted can be had back."""
        days = self._config.retain_days
        policy = storage.DeleteRetentionPolicyArgs(enabled=bool(days), days=days or None)
        storage.BlobServiceProperties(
            f"{self.name}-retention",
            blob_services_name="default",  # the only name there is
            account_name=account.name,
            resource_group_name=self._args.group,
            delete_retention_policy=policy,
            container_delete_retention_policy=policy,
            opts=self.child(delete_before_replace=True),
        )

    def _container(self) -> storage.BlobContainer:
        """Declare the container; in an account of the user's too, where it may not be there yet."""
        return storage.BlobContainer(
            f"{self.name}-container",
            container_name=self._config.container,
            account_name=self.account,
            resource_group_name=self._group,
            public_access=storage.PublicAccess.NONE,
            opts=self._kept(),
        )

    def _over_nfs(self, container: storage.BlobContainer) -> VolumeSource:
        """Give the volume over NFS 3.0: no identity, for it knows none."""
        return self._source(container, {"protocol": "nfs"}, NFS_OPTIONS, [container])

    def _over_fuse(self, container: storage.BlobContainer) -> VolumeSource:
        """Give the volume over blobfuse2, and the identity that may mount it."""
        identity = declare_identity(
            f"{self.name}-identity",
            f"{self._args.cluster_name}-{SERVICE_ACCOUNT}",
            group=self._args.group,
            location=self._args.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
        role = grant(
            f"{self.name}-data-contributor",
            Role.STORAGE_BLOB_DATA_CONTRIBUTOR,
            scope=self._account_id,
            principal_id=identity.principal_id,
            opts=self.child(delete_before_replace=True),
        )
        attributes: dict[str, pulumi.Input[str]] = {
            "protocol": "fuse2",
            "clientID": identity.client_id,
            "mountWithWorkloadIdentityToken": "true",  # else the driver asks for the account's key
        }
        ready = [container, role, *self._trust(identity)]
        return self._source(container, attributes, BLOBFUSE_OPTIONS, ready, identity)

    def _trust(self, identity: Identity) -> list[pulumi.Resource]:
        """Declare whose tokens stand for the identity, one after the other.

        Azure refuses two written at once for one identity.
        """
        chain: list[pulumi.Resource] = []
        for subject in USERS:
            account = subject.rpartition(":")[2]
            credential = managedidentity.FederatedIdentityCredential(
                f"{self.name}-trust-{account}",
                federated_identity_credential_resource_name=account,
                resource_name_=identity.resource.name,
                resource_group_name=self._args.group,
                issuer=self._args.issuer,
                subject=subject,
                audiences=[AUDIENCE],
                opts=self.child(after=chain[-1:], delete_before_replace=True),
            )
            chain.append(credential)
        return chain

    def _source(
        self,
        container: storage.BlobContainer,
        attributes: dict[str, pulumi.Input[str]],
        options: Sequence[str],
        ready: Sequence[pulumi.Resource],
        identity: Identity | None = None,
    ) -> VolumeSource:
        """Give the volume over the container."""
        handle = pulumi.Output.concat(self._group, "#", self.account, "#", container.name)
        return VolumeSource(
            spec={
                "csi": kubernetes.core.v1.CSIPersistentVolumeSourceArgs(
                    driver=DRIVER,
                    volume_handle=handle,
                    volume_attributes={
                        "resourcegroup": self._group,
                        "storageaccount": self.account,
                        "containerName": container.name,
                        **attributes,
                    },
                )
            },
            annotations={"pv.kubernetes.io/provisioned-by": DRIVER},
            mount_options=options,
            size=self._config.size,
            where=pulumi.Output.concat(
                "https://", self.account, ".blob.core.windows.net/", container.name
            ),
            service_account_annotations=(
                {"azure.workload.identity/client-id": identity.client_id} if identity else {}
            ),
            ready=ready,
        )


def address_rule(block: str) -> list[str]:
    """Write a block of addresses as a storage account takes it: one of two or less one by one."""
    network = ipaddress.IPv4Network(block)
    if network.prefixlen <= SMALLEST_BLOCK:
        return [block]
    return [str(address) for address in network]
