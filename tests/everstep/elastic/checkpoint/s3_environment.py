"""Environment variables with which boto3 uses a test server."""

import pytest

from tests.everstep.staging.sources import servers


def use_server(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Set endpoint, credentials and region."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", servers.KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", servers.SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
