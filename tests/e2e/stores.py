"""Object stores in the network of a twin, each with the permissions that a stack declares for its data.

MinIO stands in for S3 and Azurite for Blob Storage. In the clouds, pods get credentials by admission webhooks; here
they get variables that give the same access.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import boto3
from cloudtwin.nodes.network import addressing
from cloudtwin.providers.account import Account
from cloudtwin.providers.azure.common import ROOT
from cloudtwin.providers.azure.storage import ACCOUNT, CONTAINER
from cloudtwin.providers.inventory import Resource

from components.aws.data_access import read_statements
from tests.everstep.staging.sources import servers

PORT, REGION = 9000, "us-east-1"
BUCKET, PREFIX, SHARDS = "photographs", "imagenet", "shards"
FORBIDDEN = "of-another-account"


class Store(ABC):
    """A store with the same photographs in two buckets, of which the stack may read one; that bucket has shards, too.

    Attributes:
        stack: stack of the repository that reads from it.
        cloud: provider of this stack.
        program: program of the server.
        retry_seconds: time for which the Job of the stack retries a copy that is refused.
        refusal: parts of the error for the other bucket.
    """

    stack: str
    cloud: str
    program: Path
    retry_seconds: int
    refusal: tuple[str, ...]
    earlier_resources: tuple[str, ...] = ()
    """Types and names of the account's resources that exist before the stack and outlast it."""

    @abstractmethod
    def serve_locally(self, folder: Path) -> AbstractContextManager[str]:
        """Run the server for clients in this process; yield its address."""

    @abstractmethod
    def fill(self, address: str, photographs: Path, shards: Path) -> None:
        """Upload photographs to both buckets, and shards to the bucket of the stack."""

    @abstractmethod
    def access(self, address: str, prefix: str) -> Mapping[str, str]:
        """Return variables that give the access of the stack to a prefix of its bucket."""

    @abstractmethod
    def command(self, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return the command of the server in the network of the twin, and its environment."""

    @abstractmethod
    def source(self, bucket: str, prefix: str = PREFIX) -> dict[str, str]:
        """Return the keys of `data` and `data.cache` that name a bucket."""

    def register(self, twin: Path) -> None:  # noqa: B027  not needed by every cloud
        """Add the buckets to the account of a twin, as resources that existed before the stack."""


class MinioStore(Store):
    """MinIO, which enforces the policy of the stack's role."""

    stack, cloud = "eks-dev", "aws"
    program = servers.MINIO
    retry_seconds = 0
    refusal = (
        f"the bucket '{FORBIDDEN}' cannot be accessed: AccessDenied",
        f"Allow s3:ListBucket on arn:aws:s3:::{FORBIDDEN}",
    )

    def serve_locally(self, folder: Path) -> AbstractContextManager[str]:
        """Run the server for clients in this process; yield its address."""
        return servers.minio(folder)

    def fill(self, address: str, photographs: Path, shards: Path) -> None:
        """Upload photographs to both buckets, and shards to the bucket of the stack."""
        client = self._client("s3", address)
        for bucket, objects in contents(photographs, shards).items():
            client.create_bucket(Bucket=bucket)
            for key, path in objects.items():
                client.upload_file(str(path), bucket, key)

    def _client(self, service: str, address: str) -> Any:
        """Return a client with all permissions."""
        return boto3.client(
            service, endpoint_url=address, region_name=REGION,
            aws_access_key_id=servers.KEY_ID, aws_secret_access_key=servers.SECRET,
        )  # fmt: skip

    def access(self, address: str, prefix: str) -> Mapping[str, str]:
        """Return credentials of a role with the stack's policy."""
        statements = [item.as_document() for item in read_statements(BUCKET, prefix)]
        session = self._client("sts", address).assume_role(
            RoleArn="arn:aws:iam::111122223333:role/everstep-dev-data",
            RoleSessionName="test",
            Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}),
        )["Credentials"]
        return {
            "AWS_ACCESS_KEY_ID": session["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": session["SecretAccessKey"],
            "AWS_SESSION_TOKEN": session["SessionToken"],
            "AWS_ENDPOINT_URL_S3": f"http://{addressing.CONTROL_PLANE}:{PORT}",
        }

    def command(self, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return the command of the server in the network of the twin, and its environment."""
        address = f"{addressing.CONTROL_PLANE}:{PORT}"
        return (
            [str(self.program), "server", "--quiet", "--address", address, str(folder)],
            servers.minio_environment(folder),
        )

    def source(self, bucket: str, prefix: str = PREFIX) -> dict[str, str]:
        """Return the keys of `data` and `data.cache` that name a bucket."""
        return {"source": f"s3://{bucket}/{prefix}"}


class AzuriteStore(Store):
    """Azurite, with a token that lists and reads one container, like the role of the stack's identity."""

    stack, cloud = "aks-dev", "azure-native"
    program = servers.AZURITE
    retry_seconds = 900  # 10.5 minutes of back-off, and the starts of seven pods
    refusal = (
        f"the container '{FORBIDDEN}' of the account '{servers.AZURITE_ACCOUNT}' cannot be accessed",
        "Assign this identity the role Storage Blob Data Reader",
    )
    group = "data"
    earlier_resources = (
        f"{ACCOUNT} {servers.AZURITE_ACCOUNT}",
        f"{CONTAINER} {BUCKET}",
        f"{CONTAINER} {FORBIDDEN}",
    )

    def serve_locally(self, folder: Path) -> AbstractContextManager[str]:
        """Run the server for clients in this process; yield its address."""
        return servers.azurite(folder)

    def fill(self, address: str, photographs: Path, shards: Path) -> None:
        """Upload photographs to both containers, and shards to the container of the stack."""
        from azure.storage.blob import ContainerClient

        for container, objects in contents(photographs, shards).items():
            client = ContainerClient(
                f"{address}/{servers.AZURITE_ACCOUNT}", container, credential=servers.AZURITE_KEY
            )
            with client:
                client.create_container()
                for name, path in objects.items():
                    client.upload_blob(name, path.read_bytes())

    def access(self, address: str, prefix: str) -> Mapping[str, str]:
        """Return a connection with a token for the whole container of the stack, like its role."""
        endpoint = f"http://{addressing.CONTROL_PLANE}:{PORT}/{servers.AZURITE_ACCOUNT}"
        token = servers.container_token(BUCKET)
        settings = f"BlobEndpoint={endpoint};SharedAccessSignature={token}"
        return {"AZURE_STORAGE_CONNECTION_STRING": settings}

    def command(self, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return the command of the server in the network of the twin, and its environment."""
        return servers.azurite_command(folder, str(addressing.CONTROL_PLANE), PORT)

    def source(self, bucket: str, prefix: str = PREFIX) -> dict[str, str]:
        """Return the keys of `data` and `data.cache` that name a container."""
        location = f"az://{servers.AZURITE_ACCOUNT}/{bucket}/{prefix}"
        return {"source": location, "sourceResourceGroup": self.group}

    def register(self, twin: Path) -> None:
        """Add the storage account with both containers to the subscription of a twin."""
        name = servers.AZURITE_ACCOUNT
        account = (
            f"{ROOT}/resourceGroups/{self.group}/providers/Microsoft.Storage/storageAccounts/{name}"
        )
        ids = {account: ACCOUNT} | {
            f"{account}/blobServices/default/containers/{container}": CONTAINER
            for container in (BUCKET, FORBIDDEN)
        }
        with Account(twin, self.cloud).transaction() as transaction:
            for path, token in ids.items():
                inputs = {"resourceGroupName": self.group, "accountName": name}
                if token == CONTAINER:
                    inputs["containerName"] = path.rpartition("/")[2]
                outputs = {"name": path.rpartition("/")[2]}
                resource = Resource(
                    token=token, id=path, urn="", inputs=inputs, outputs=outputs,
                    acknowledged=True, ready=True,
                )  # fmt: skip
                transaction.put(resource)


def contents(photographs: Path, shards: Path) -> dict[str, dict[str, Path]]:
    """Return the files of each bucket by their names in the store."""
    objects = {
        f"{PREFIX}/{path.relative_to(photographs)}": path for path in photographs.rglob("*.jpg")
    }
    shard_objects = {f"{SHARDS}/{path.name}": path for path in shards.iterdir()}
    return {BUCKET: objects | shard_objects, FORBIDDEN: objects}
