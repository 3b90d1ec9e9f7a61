"""A container in a storage account as the shared volume: blobfuse2 with workload identity, or NFS.

The account needs a hierarchical namespace, without which a rename is not atomic: a checkpoint is a
folder that is renamed when it is complete. A new account has one, and its keys are disabled: a mount needs
a token of a ServiceAccount, which a federated credential trusts. The account admits only the subnet of the
nodes and, with blobfuse2, the addresses of users. NFS 3.0 has no authentication, so only the subnet
protects the data.

Blob versions would protect more than soft delete, but an account with a hierarchical namespace does
not support them.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_azure_native import storage

from components.azure.identity import Identity, declare_identity, trust_service_account
from components.azure.names import account_name
from components.azure.roles import BuiltInRole, grant
from components.component import Component
from components.config import BlobConfig
from components.interface import VolumeSource
from components.platform.pods import USER
from everstep.catalog.names import JOB_NAMESPACE, TRAINER_SERVICE_ACCOUNT

DRIVER = "blob.csi.azure.com"
MAX_RULE_PREFIX_LENGTH = 30  # limit of Azure Storage for rules of an account

STALE_SECONDS = 5  # maximum time until a worker sees new files of another worker
FILE_CACHE_SECONDS = 120
"""Time for which a node may read its cached copy of a file. Checkpoints and data sets, almost all of the bytes, do not
change once they have their final name, and a restored checkpoint is checked by its digests. Journals and the sample
ledger grow: a node may read another node's file with this delay, which only delays a report."""

CACHE_MIB = 16384  # node disk space for each pod with a mount

BLOBFUSE_OPTIONS = (
    "-o allow_other",
    f"-o uid={USER}",  # blobfuse2 does not apply the fsGroup of a pod
    f"-o gid={USER}",
    "-o umask=007",
    f"-o attr_timeout={STALE_SECONDS}",
    f"-o entry_timeout={STALE_SECONDS}",
    "-o negative_timeout=0",  # a checkpoint that was missing a moment ago may exist now
    "--use-adls=true",  # the account has a hierarchical namespace
    f"--attr-cache-timeout={STALE_SECONDS}",
    f"--file-cache-timeout-in-seconds={FILE_CACHE_SECONDS}",
    f"--cache-size-mb={CACHE_MIB}",
    "--cancel-list-on-mount-seconds=10",  # listing at each mount is billed
    "--log-level=LOG_WARNING",
)
NFS_OPTIONS = ("nolock", "nconnect=4", f"actimeo={STALE_SECONDS}")
"""`nolock`: Azure has no lock manager. Without `actimeo`, a node would not see a committed checkpoint of another node
for up to 60 s, the default of `acdirmax`. Source: nfs(5), "Data and metadata coherence", 2026-11-25."""


@dataclass(frozen=True, kw_only=True)
class BlobArgs:
    """Arguments of a BlobStorage.

    Attributes:
        config: the `storage` section of a stack.
        cluster: name of the cluster, prefix of all names.
        location: Azure region.
        group: name of the resource group of the cluster.
        group_id: id of that group.
        subnet_id: subnet of the nodes, with a service endpoint for storage.
        issuer: OIDC issuer of the cluster, whose ServiceAccount tokens are trusted.
        user_ranges: public CIDR blocks from which users may reach the data with an Entra identity.
        tags: tags of all resources that support them.
        service_accounts: ServiceAccounts of the pods that mount the volume, in the namespace of the job.
        protect: whether Pulumi refuses to delete the account and the container, and retains them.
    """

    config: BlobConfig
    cluster: str
    location: str
    group: pulumi.Input[str]
    group_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    issuer: pulumi.Input[str]
    user_ranges: Sequence[str]
    tags: Mapping[str, str]
    service_accounts: Sequence[str] = (TRAINER_SERVICE_ACCOUNT,)
    protect: bool = False


class BlobStorage(Component):
    """A storage account with a container, and the identity that may mount it.

    Attributes:
        volume: the volume, for the cluster.
        account: name of the account.
        identity: identity of the pods that mount the volume; None for NFS.
    """

    volume: VolumeSource
    account: pulumi.Output[str]
    identity: Identity | None = None

    def __init__(
        self, name: str, args: BlobArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("storage:BlobStorage", name, opts)
        self._args, self._config = args, args.config
        self._nfs = args.config.protocol == "nfs"
        self._declare_account()
        container = self._container()
        self.volume = self._over_nfs(container) if self._nfs else self._over_fuse(container)
        self.register_outputs({"account": self.account, "location": self.volume.location})

    def _declare_account(self) -> None:
        """Declare the account, or look up an existing one."""
        if self._config.account is not None:
            self._use_account(self._config.account)
            return
        account = self._create_account()
        self.account, self._account_id = account.name, account.id
        self._group = pulumi.Output.from_input(self._args.group)
        self._retention(account)

    def _use_account(self, name: str) -> None:
        """Look up an existing account, whose settings are not managed here."""
        group = pulumi.Output.from_input(self._config.account_resource_group or self._args.group)
        account = storage.get_storage_account_output(
            account_name=name,
            resource_group_name=group,
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        self.account, self._account_id, self._group = account.name, account.id, group

    def _create_account(self) -> storage.StorageAccount:
        """Declare a new account."""
        premium = self._config.premium
        return storage.StorageAccount(
            f"{self.name}-account",
            account_name=pulumi.Output.from_input(self._args.group_id).apply(
                lambda group_id: account_name(self._args.cluster, group_id)
            ),
            resource_group_name=self._args.group,
            location=self._args.location,
            kind="BlockBlobStorage" if premium else "StorageV2",
            sku=storage.SkuArgs(name=self._config.redundancy),
            access_tier=None if premium else storage.AccessTier.HOT,
            is_hns_enabled=True,
            enable_nfs_v3=self._nfs,
            minimum_tls_version="TLS1_2",
            enable_https_traffic_only=True,  # applies to REST; NFS 3.0 has no TLS
            allow_shared_key_access=False,
            allow_blob_public_access=False,
            allow_cross_tenant_replication=False,
            default_to_o_auth_authentication=True,
            public_network_access="Enabled",  # required by the service endpoint; restricted by the rules
            network_rule_set=self._network_rules(),
            tags=self._args.tags,
            opts=self._data_options(),
        )

    def _data_options(self) -> pulumi.ResourceOptions:
        """Return the options of the account, its settings and its container."""
        keep = self._args.protect or self._config.keep
        return self.child(delete_before_replace=True, protect=keep, retain_on_delete=keep)

    def _network_rules(self) -> storage.NetworkRuleSetArgs:
        """Return the networks that may reach the account: the subnet of the nodes, and users."""
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
                for block in ([] if self._nfs else self._args.user_ranges)
                for address in address_rule(block)
            ]
            or None,
        )

    def _retention(self, account: storage.StorageAccount) -> None:
        """Declare the retention of deleted data, which can be restored during this time."""
        days = self._config.retain_days
        policy = storage.DeleteRetentionPolicyArgs(enabled=bool(days), days=days or None)
        storage.BlobServiceProperties(
            f"{self.name}-retention",
            blob_services_name="default",  # the only valid name
            account_name=account.name,
            resource_group_name=self._args.group,
            delete_retention_policy=policy,
            container_delete_retention_policy=policy,
            opts=self._data_options(),
        )

    def _container(self) -> storage.BlobContainer:
        """Declare the container, in an existing account too: the provider refuses an existing container."""
        return storage.BlobContainer(
            f"{self.name}-container",
            container_name=self._config.container,
            account_name=self.account,
            resource_group_name=self._group,
            public_access=storage.PublicAccess.NONE,
            opts=self._data_options(),
        )

    def _over_nfs(self, container: storage.BlobContainer) -> VolumeSource:
        """Return the volume for NFS 3.0, which has no authentication."""
        return self._source(container, {"protocol": "nfs"}, NFS_OPTIONS, [container])

    def _over_fuse(self, container: storage.BlobContainer) -> VolumeSource:
        """Return the volume for blobfuse2, with the identity that may mount it."""
        self.identity = identity = declare_identity(
            f"{self.name}-identity",
            f"{self._args.cluster}-{TRAINER_SERVICE_ACCOUNT}",
            group=self._args.group,
            location=self._args.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
        role = grant(
            f"{self.name}-data-contributor",
            BuiltInRole.STORAGE_BLOB_DATA_CONTRIBUTOR,
            scope=container.id,  # not the account, which may have other data
            principal_id=identity.principal_id,
            opts=self.child(delete_before_replace=True),
        )
        attributes: dict[str, pulumi.Input[str]] = {
            "protocol": "fuse2",
            "clientID": identity.client_id,
            "mountWithWorkloadIdentityToken": "true",  # otherwise the driver requests the account key
        }
        prerequisites = [container, role, *self._credentials(identity)]
        return self._source(container, attributes, BLOBFUSE_OPTIONS, prerequisites, identity)

    def _credentials(self, identity: Identity) -> list[pulumi.Resource]:
        """Declare the federated credentials, which exchange tokens of ServiceAccounts for tokens of the identity.

        Each credential waits for the previous one: Azure refuses concurrent changes of one identity.
        """
        credentials: list[pulumi.Resource] = []
        for account in self._args.service_accounts:
            credential = trust_service_account(
                f"{self.name}-trust-{account}",
                identity,
                group=self._args.group,
                issuer=self._args.issuer,
                subject=f"system:serviceaccount:{JOB_NAMESPACE}:{account}",
                opts=self.child(depends_on=credentials[-1:], delete_before_replace=True),
            )
            credentials.append(credential)
        return credentials

    def _source(
        self,
        container: storage.BlobContainer,
        attributes: dict[str, pulumi.Input[str]],
        options: Sequence[str],
        prerequisites: Sequence[pulumi.Resource],
        identity: Identity | None = None,
    ) -> VolumeSource:
        """Return the volume, in the form that the CSI driver expects."""
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
            location=pulumi.Output.concat(
                "https://", self.account, ".blob.core.windows.net/", container.name
            ),
            service_account_annotations=identity.annotations if identity else {},
            prerequisites=prerequisites,
        )


def address_rule(block: str) -> list[str]:
    """Return the network rules of a storage account for a CIDR block: a /31 or /32 becomes single addresses."""
    network = ipaddress.IPv4Network(block)
    if network.prefixlen <= MAX_RULE_PREFIX_LENGTH:
        return [block]
    return [str(address) for address in network]
