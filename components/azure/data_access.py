"""The identity that reads data in a container of Blob Storage: one role, for one ServiceAccount.

With `data.source`, it is an identity of the data preparation; workers read the copy on the volume and need no role.
With `data.cache`, workers need the role. Their ServiceAccount can name only one identity: if it already names the
identity that mounts the volume, that identity gets the role.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import storage

from components.azure.identity import (
    USES_IDENTITY,
    Identity,
    declare_identity,
    trust_service_account,
)
from components.azure.roles import BuiltInRole, grant
from components.component import Component
from components.interface import DataAccess
from everstep.catalog.names import JOB_NAMESPACE

RETRIES = 6
"""Retries of the data preparation. Azure refuses the pod until it has applied the role, up to ten minutes after its
assignment. Kubernetes waits 10 s before the first retry, and then twice as long each time: 10.5 minutes for six."""


@dataclass(frozen=True, kw_only=True)
class AksDataAccessArgs:
    """Arguments of an AksDataAccess.

    Attributes:
        cluster: name of the cluster, prefix of the identity's name.
        location: Azure region.
        group: name of the resource group of the cluster.
        issuer: OIDC issuer of the cluster, whose ServiceAccount tokens are trusted.
        account: name of the existing storage account with the data.
        account_group: name of the resource group of that account.
        container: name of the container.
        service_account: name of the ServiceAccount, in the namespace of the job.
        identity: identity that the ServiceAccount already names and that trusts it; None: a new one.
        proxy_port: port of the proxy through which pods request tokens; None without a proxy.
        tags: tags of the identity.
    """

    cluster: str
    location: str
    group: pulumi.Input[str]
    issuer: pulumi.Input[str]
    account: str
    account_group: pulumi.Input[str]
    container: str
    service_account: str
    identity: Identity | None = None
    proxy_port: int | None = None
    tags: Mapping[str, str]


class AksDataAccess(Component):
    """An identity that may list and read one container, and its federated credential for the pods that read.

    Attributes:
        access: the identity, for these pods.
    """

    access: DataAccess

    def __init__(
        self, name: str, args: AksDataAccessArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:AksDataAccess", name, opts)
        self._args = args
        trust: list[pulumi.Resource] = []
        identity = args.identity
        if identity is None:
            identity = self._identity()
            trust = [self._trust(identity)]
        role = grant(
            f"{name}-reader",
            BuiltInRole.STORAGE_BLOB_DATA_READER,
            scope=self._container_id(),
            principal_id=identity.principal_id,
            opts=self.child(delete_before_replace=True),
        )
        self.access = DataAccess(
            service_account_annotations=identity.annotations,
            pod_labels=USES_IDENTITY,
            prerequisites=(role, *trust),
            retries=RETRIES,
            proxy_port=args.proxy_port,
        )
        self.register_outputs({"container": role.scope})

    def _container_id(self) -> pulumi.Output[str]:
        """Look up the container, so that a missing one fails a preview."""
        container = storage.get_blob_container_output(
            account_name=self._args.account,
            container_name=self._args.container,
            resource_group_name=self._args.account_group,
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        return container.id

    def _identity(self) -> Identity:
        """Declare an identity without any other role."""
        return declare_identity(
            f"{self.name}-identity",
            f"{self._args.cluster}-data",
            group=self._args.group,
            location=self._args.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _trust(self, identity: Identity) -> pulumi.Resource:
        """Declare the federated credential, which trusts tokens of the ServiceAccount and no others."""
        return trust_service_account(
            f"{self.name}-trust",
            identity,
            group=self._args.group,
            issuer=self._args.issuer,
            subject=f"system:serviceaccount:{JOB_NAMESPACE}:{self._args.service_account}",
            opts=self.child(delete_before_replace=True),
        )
