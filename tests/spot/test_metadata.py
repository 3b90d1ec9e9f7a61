"""Clients of both metadata services, over HTTP."""

from collections.abc import Iterator

import pytest

from spot import metadata
from spot.http import UnavailableError
from spot.metadata import AwsMetadata, AzureMetadata
from spot.notice import Effect
from tests.processes import free_port
from tests.spot.metadata_server import (
    ACTION,
    EVENTS,
    INSTANCE,
    REBALANCE,
    MetadataServer,
    serving,
)

TERMINATE = {"action": "terminate", "time": "2026-11-21T08:22:00Z"}
PREEMPT = {
    "EventId": "1",
    "EventType": "Preempt",
    "EventStatus": "Scheduled",
    "Resources": ["vm_0"],
    "NotBefore": "Sat, 21 Nov 2026 08:22:00 GMT",
}
INSTANCE_DOCUMENT = {"compute": {"name": "vm_0"}}


@pytest.fixture
def aws() -> Iterator[MetadataServer]:
    with serving("aws") as service:
        yield service


@pytest.fixture
def azure() -> Iterator[MetadataServer]:
    with serving("azure") as service:
        service.documents = {INSTANCE: INSTANCE_DOCUMENT, EVENTS: {"Events": []}}
        yield service


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for the server: its threads may be slow on a busy machine."""
    for name in ("REQUEST_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(metadata, name, 100.0)


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUEST_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(metadata, name, 0.05)


def test_a_token_is_used_until_it_is_refused(aws: MetadataServer) -> None:
    client = AwsMetadata(aws.base_url)

    assert client.poll() == ()
    aws.documents[ACTION] = TERMINATE
    assert [notice.reason for notice in client.poll() or ()] == ["terminate"]
    assert aws.issued_tokens == 1

    aws.token = "token-2"
    assert [notice.effect for notice in client.poll() or ()] == [Effect.STOP]
    assert aws.issued_tokens == 2, "a token expires after six hours, but a node may run for longer"


def test_an_interruption_counts_even_if_the_other_path_is_silent(aws: MetadataServer) -> None:
    client = AwsMetadata(aws.base_url)
    aws.silent_paths = {REBALANCE}
    assert client.poll() is None, "a silent path is not an all-clear"

    aws.documents[ACTION] = TERMINATE

    assert [notice.reason for notice in client.poll() or ()] == ["terminate"]


def test_a_token_that_is_a_page_of_another_service_does_not_crash_the_watcher(
    aws: MetadataServer,
) -> None:
    aws.token = "<html>\n<body>Log in</body>"

    assert AwsMetadata(aws.base_url).poll() is None


def test_the_token_is_not_in_the_repr(aws: MetadataServer) -> None:
    client = AwsMetadata(aws.base_url)
    client.poll()

    assert "token-1" not in repr(client)


def test_events_of_azure_are_polled_and_started(azure: MetadataServer) -> None:
    client = AzureMetadata(azure.base_url)

    assert client.poll() == ()
    azure.documents[EVENTS] = {"Events": [PREEMPT]}
    (notice,) = client.poll() or ()
    client.start(notice.identifier)

    assert notice.reason == "Preempt"
    assert azure.started_events == ["1"]


def test_without_the_name_of_the_machine_events_are_unknown(azure: MetadataServer) -> None:
    del azure.documents[INSTANCE]

    assert AzureMetadata(azure.base_url).poll() is None


@pytest.mark.usefixtures("short_timeouts")
def test_a_stalled_service_times_out(aws: MetadataServer, azure: MetadataServer) -> None:
    for service in (aws, azure):
        service.stalling.set()

    assert AwsMetadata(aws.base_url).poll() is None
    assert AzureMetadata(azure.base_url).poll() is None
    with pytest.raises(UnavailableError, match="timed out"):
        AzureMetadata(azure.base_url).start("1")


def test_a_refused_request_to_start_an_event_raises() -> None:
    with serving("aws") as aws_service, pytest.raises(UnavailableError, match="401"):
        AzureMetadata(aws_service.base_url).start("1")


def test_the_cloud_is_detected_by_its_service(aws: MetadataServer, azure: MetadataServer) -> None:
    assert isinstance(metadata.detect(aws.base_url), AwsMetadata)
    assert isinstance(metadata.detect(azure.base_url), AzureMetadata)


def test_without_a_response_no_cloud_is_detected() -> None:
    assert metadata.detect(f"http://127.0.0.1:{free_port()}") is None
