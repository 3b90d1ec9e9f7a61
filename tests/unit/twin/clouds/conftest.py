"""A provider without an engine: an account in a folder, and nobody who makes machines."""

import pytest

from twin.clouds.acting import Paper
from twin.clouds.aws import CLOUD
from twin.clouds.model import Settings
from twin.clouds.operations import Operations, Request

HERE = Settings(cloud="aws", region="us-east-1", tags={"owner": "me"})


class Provider(Operations):
    """The AWS provider, with the engine's part of each call filled in."""

    def make(self, token: str, name: str, **inputs: object) -> str:
        """Check and create a resource; return its id."""
        checked, mistakes = self.checked(token, name, **inputs)
        assert mistakes == [], mistakes
        return self.create(request(token, name), checked, 5)[0]

    def checked(self, token: str, name: str, **inputs: object) -> tuple[dict, list[str]]:
        checked, mistakes = self.check(request(token, name), {}, dict(inputs), b"seed")
        return checked, [f"{each.path}: {each.reason}" for each in mistakes]

    def drop(self, token: str, identity: str) -> None:
        self.delete(request(token, "gone"), identity, 5)


def request(token: str, name: str) -> Request:
    return Request(urn=f"urn:pulumi:s::p::{token}::{name}", token=token)


@pytest.fixture
def provider(tmp_path) -> Provider:
    return Provider(CLOUD, tmp_path, Paper(), HERE)
