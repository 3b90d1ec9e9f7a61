"""Both metadata services over real HTTP."""

from collections.abc import Iterator

import pytest

from spot import metadata
from spot.metadata import AwsMetadata, AzureMetadata
from spot.notice import Effect
from spot.wire import NoAnswer
from tests.unit.spot.metadata_server import ACTION, EVENTS, INSTANCE, Service, serving

TERMINATE = {"action": "terminate", "time": "2026-11-21T08:22:00Z"}
PREEMPT = {
    "EventId": "1",
    "EventType": "Preempt",
    "EventStatus": "Scheduled",
    "Resources": ["vm_0"],
    "NotBefore": "Sat, 21 Nov 2026 08:22:00 GMT",
}
NAMED = {"compute": {"name": "vm_0"}}


@pytest.fixture
def aws() -> Iterator[Service]:
    with serving("aws") as service:
        yield service


@pytest.fixture
def azure() -> Iterator[Service]:
    with serving("azure") as service:
        service.documents = {INSTANCE: NAMED, EVENTS: {"Events": []}}
        yield service


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(metadata, name, 0.05)


def test_ec2_is_asked_with_one_token_as_long_as_that_is_taken(aws: Service) -> None:
    watched = AwsMetadata(aws.base)

    assert watched.poll() == ()
    aws.documents[ACTION] = TERMINATE
    assert [one.reason for one in watched.poll() or ()] == ["terminate"]
    assert aws.tokens_given == 1

    aws.token = "token-2"
    assert [one.effect for one in watched.poll() or ()] == [Effect.LEAVE]
    assert aws.tokens_given == 2, "a token lasts six hours, a node may last longer"


def test_the_token_stands_in_no_log(aws: Service) -> None:
    watched = AwsMetadata(aws.base)
    watched.poll()

    assert "token-1" not in repr(watched)


def test_azure_is_asked_for_its_events_and_told_when_one_may_start(azure: Service) -> None:
    watched = AzureMetadata(azure.base)

    assert watched.poll() == ()
    azure.documents[EVENTS] = {"Events": [PREEMPT]}
    (notice,) = watched.poll() or ()
    watched.start(notice.identifier)

    assert notice.reason == "Preempt"
    assert azure.started == ["1"]


def test_until_azure_says_who_the_machine_is_no_event_can_be_its_own(azure: Service) -> None:
    del azure.documents[INSTANCE]

    assert AzureMetadata(azure.base).poll() is None


@pytest.mark.usefixtures("in_a_hurry")
def test_a_service_that_takes_requests_and_says_nothing_is_not_waited_for(
    aws: Service, azure: Service
) -> None:
    for service in (aws, azure):
        service.stalling.set()

    assert AwsMetadata(aws.base).poll() is None
    assert AzureMetadata(azure.base).poll() is None
    with pytest.raises(NoAnswer):
        AzureMetadata(azure.base).start("1")


def test_a_service_that_refuses_to_start_an_event_was_not_told() -> None:
    with serving("aws") as other, pytest.raises(NoAnswer, match="401"):
        AzureMetadata(other.base).start("1")


def test_the_cloud_is_known_by_whose_service_answers(aws: Service, azure: Service) -> None:
    assert isinstance(metadata.find(aws.base), AwsMetadata)
    assert isinstance(metadata.find(azure.base), AzureMetadata)


def test_where_nobody_answers_no_cloud_is_guessed(aws: Service) -> None:
    with serving("azure") as gone:
        pass

    assert metadata.find(gone.base) is None
