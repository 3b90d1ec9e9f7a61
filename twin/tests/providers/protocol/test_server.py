"""Errors of a provider's operations as the engine receives them."""

from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
from cloudtwin.providers import azure
from cloudtwin.providers.errors import CloudError, IncompleteError
from cloudtwin.providers.protocol.values import Secret, to_struct
from cloudtwin.providers.schema.store import SDKS
from cloudtwin.providers.server import Provider
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import status_pb2

TYPE = "azure-native:network:Subnet"
URN = f"urn:pulumi:s::p::{TYPE}::s"


class AbortedError(Exception):
    """End of a call with a status."""


class Context:
    """The context of a call, with the methods that the provider uses."""

    details: bytes = b""

    def abort(self, code: grpc.StatusCode, message: str) -> NoReturn:
        raise AbortedError(f"{code.name}: {message}")

    def set_trailing_metadata(self, metadata: Any) -> None:
        ((_, self.details),) = metadata


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Provider:
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path))
    monkeypatch.setenv("CLOUDTWIN_OFFLINE", "1")
    return Provider(azure.CLOUD, "")


def fail_with(error: Exception) -> Any:
    def operation(*_arguments: object) -> NoReturn:
        raise error

    return operation


def detail_of(context: Context) -> pb.ErrorResourceInitFailed:
    """Return the incomplete resource in the details of a status."""
    result = pb.ErrorResourceInitFailed()
    status_pb2.Status.FromString(context.details).details[0].Unpack(result)
    return result


@pytest.mark.parametrize("inputs", [{"subnetName": "s"}, {}])
def test_a_refresh_of_an_incomplete_resource_returns_its_state(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, inputs: dict[str, str]
) -> None:
    monkeypatch.setattr(provider, "read", fail_with(IncompleteError("s", ["no machine is Ready"])))
    request = pb.ReadRequest(id="s", inputs=to_struct(inputs), urn=URN, type=TYPE)
    context = Context()

    with pytest.raises(AbortedError, match="UNKNOWN: no machine is Ready"):
        provider.Read(request, context)

    assert detail_of(context).reasons == ["no machine is Ready"]
    assert dict(detail_of(context).inputs) == inputs


def test_an_error_shows_no_secret(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = to_struct({"names": [Secret({"a": "hunter2"})]})
    for error in (
        CloudError("NotFound", "there is no 'hunter2'"),
        IncompleteError("s", ["hunter2 is not ready"]),
        KeyError("hunter2"),
    ):
        monkeypatch.setattr(provider, "create", fail_with(error))
        context = Context()
        with pytest.raises(AbortedError) as refusal:
            provider.Create(pb.CreateRequest(properties=properties, urn=URN, type=TYPE), context)
        assert "hunter2" not in str(refusal.value)
        assert "[secret]" in str(refusal.value)
        if isinstance(error, IncompleteError):
            assert detail_of(context).reasons == ["[secret] is not ready"]


def test_an_argument_that_only_begins_like_json_is_text(provider: Provider) -> None:
    arguments = to_struct({"clientSecret": "[hunter2", "location": "eastus"})

    response = provider.CheckConfig(pb.CheckRequest(news=arguments), Context())

    assert not response.failures


def test_a_missing_sdk_is_named_with_its_fix(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SDKS, "azure-native", "pulumi_absent")

    with pytest.raises(AbortedError, match="pip install pulumi-absent"):
        provider.GetPluginInfo(Empty(), Context())
