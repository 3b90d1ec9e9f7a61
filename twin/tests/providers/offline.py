"""A provider without an engine and without machines: an account in a folder."""

from pathlib import Path

import pytest
from cloudtwin.providers.aws import CLOUD
from cloudtwin.providers.machines import Offline
from cloudtwin.providers.model import ProviderConfig
from cloudtwin.providers.operations import Operations
from cloudtwin.providers.protocol.resource import ResourceKey
from cloudtwin.providers.protocol.values import Object

CONFIG = ProviderConfig(cloud="aws", region="us-east-1", tags={"owner": "me"})


class Provider(Operations):
    """The AWS provider, with methods that fill in the arguments that the engine would send."""

    def create_resource(self, token: str, name: str, /, **inputs: object) -> str:
        """Check and create a resource; return its id."""
        valid_inputs, failures = self.check_inputs(token, name, **inputs)
        assert failures == [], failures
        return self.create(request(token, name), valid_inputs, 5)[0]

    def check_inputs(self, token: str, name: str, /, **inputs: object) -> tuple[Object, list[str]]:
        """Check inputs; return them with generated values, and each failure as a text with its path."""
        valid_inputs, failures = self.check(request(token, name), {}, dict(inputs), b"seed")
        return valid_inputs, [f"{failure.path}: {failure.reason}" for failure in failures]

    def delete_resource(self, token: str, identity: str) -> None:
        """Delete a resource."""
        self.delete(request(token, "gone"), identity, 5)


def request(token: str, name: str) -> ResourceKey:
    return ResourceKey(urn=f"urn:pulumi:s::p::{token}::{name}", token=token)


@pytest.fixture
def provider(tmp_path: Path) -> Provider:
    return Provider(CLOUD, tmp_path, Offline(), CONFIG)
