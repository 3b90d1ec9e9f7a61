"""Responses of the metadata services, from direct calls and from one real server."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from cloudtwin import files
from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.nodes.metadata import aws, azure, instance, server
from cloudtwin.nodes.metadata.aws import Tokens
from cloudtwin.nodes.metadata.http import MetadataRequest, MetadataResponse
from cloudtwin.nodes.metadata.notices import Notice
from cloudtwin.nodes.model import MachineSpec, Role

from twin.tests.nodes.conftest import wait_until

SPOT = MachineSpec(
    "gpu-3", Role.GPU, 2, instance_type="g5.xlarge", zone="us-east-1b", region="us-east-1",
    cloud="aws", spot=True, group="gpu",
)  # fmt: skip
NOTICE = Notice("ID-1", announced_at=1_700_000_000.0, not_before=1_700_000_120.0, terminate=True)
METADATA = {"metadata": "true"}


def call_aws(
    path: str, notice: Notice | None = None, method: str = "GET", **headers: Any
) -> MetadataResponse:
    tokens = Tokens({"good": 100.0})
    all_headers = {"x-aws-ec2-metadata-token": "good", **headers}
    request = MetadataRequest(method, f"/latest/{path}", headers=all_headers)
    return aws.respond(request, instance.facts(SPOT, "10.0.0.1"), notice, tokens, now=0.0)


def call_azure(
    path: str = "scheduledevents",
    notice: Notice | None = None,
    version: str = "2020-07-01",
    started: bool = False,
    **fields: Any,
) -> MetadataResponse:
    values: dict[str, Any] = {
        "method": "GET",
        "headers": METADATA,
        "query": {"api-version": version},
        **fields,
    }
    request = MetadataRequest(path=f"/metadata/{path}", **values)
    return azure.respond(request, instance.facts(SPOT, "10.0.0.1"), notice, started=started)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("instance-type", "g5.xlarge"),
        ("placement/availability-zone", "us-east-1b"),
        ("placement/region", "us-east-1"),
        ("instance-life-cycle", "spot"),
        ("local-ipv4", "10.0.0.1"),
        ("placement", "availability-zone\nregion"),
    ],
)
def test_aws_returns_the_value_or_the_listing_at_a_path(path: str, value: str) -> None:
    assert call_aws(f"meta-data/{path}").body == value


def test_aws_lists_entries_with_a_slash_after_folders() -> None:
    assert {"instance-id", "placement/", "services/"} <= set(
        call_aws("meta-data/").body.split("\n")
    )
    assert "spot/" not in call_aws("meta-data/").body
    assert "spot/" in call_aws("meta-data/", NOTICE).body


def test_aws_announces_a_termination_only_after_the_notice() -> None:
    assert call_aws("meta-data/spot/instance-action").status == HTTPStatus.NOT_FOUND

    action = json.loads(call_aws("meta-data/spot/instance-action", NOTICE).body)
    advice = json.loads(call_aws("meta-data/events/recommendations/rebalance", NOTICE).body)

    assert action == {"action": "terminate", "time": "2023-11-14T22:15:20Z"}
    assert advice == {"noticeTime": "2023-11-14T22:13:20Z"}
    assert call_aws("meta-data/spot/termination-time", NOTICE).body == action["time"]


def test_the_identity_document_names_the_account_and_the_instance() -> None:
    document = json.loads(call_aws("dynamic/instance-identity/document").body)

    assert document["accountId"] == AWS_ACCOUNT
    assert document["instanceId"] == call_aws("meta-data/instance-id").body


@pytest.mark.parametrize(
    "headers", [{"x-aws-ec2-metadata-token": ""}, {"x-aws-ec2-metadata-token": "bad"}]
)
def test_aws_refuses_requests_without_a_valid_token(headers: dict[str, Any]) -> None:
    assert call_aws("meta-data/instance-id", **headers).status == HTTPStatus.UNAUTHORIZED


def test_an_aws_token_expires() -> None:
    tokens = Tokens()
    token = tokens.new(60, now=1000.0)

    assert tokens.is_valid(token, 1059.0)
    assert not tokens.is_valid(token, 1060.0)


@pytest.mark.parametrize(
    ("ttl", "status"),
    [("1", 200), ("60", 200), ("21600", 200), ("21601", 400), ("0", 400), ("", 400), ("x", 400)],
)
def test_a_token_lasts_six_hours_at_most(ttl: str, status: int) -> None:
    headers: dict[str, Any] = {"x-aws-ec2-metadata-token-ttl-seconds": ttl}

    assert call_aws("api/token", method="PUT", **headers).status == status


def test_a_token_needs_put_and_a_direct_request() -> None:
    assert call_aws("api/token").status == HTTPStatus.METHOD_NOT_ALLOWED
    headers: dict[str, Any] = {
        "x-forwarded-for": "1.2.3.4",
        "x-aws-ec2-metadata-token-ttl-seconds": "60",
    }
    assert call_aws("api/token", method="PUT", **headers).status == HTTPStatus.FORBIDDEN


def test_aws_refuses_to_change_metadata() -> None:
    response = call_aws("meta-data/instance-id", method="PUT")

    assert response.status == HTTPStatus.METHOD_NOT_ALLOWED


def test_azure_schedules_a_preemption_only_after_the_notice() -> None:
    assert json.loads(call_azure().body) == {"DocumentIncarnation": 1, "Events": []}

    document = json.loads(call_azure(notice=NOTICE).body)
    (event,) = document["Events"]

    assert document["DocumentIncarnation"] == 2, "clients skip a document with a known number"
    assert event["EventType"] == "Preempt"
    assert event["Resources"] == ["gpu-3"]
    assert event["EventStatus"] == "Scheduled"
    assert event["NotBefore"] == "Tue, 14 Nov 2023 22:15:20 GMT"


def test_an_acknowledged_azure_event_is_started() -> None:
    body = json.dumps({"StartRequests": [{"EventId": "ID-1"}]}).encode()

    assert call_azure(notice=NOTICE, method="POST", body=body).acknowledged_event == "ID-1"

    document = json.loads(call_azure(notice=NOTICE, started=True).body)
    (event,) = document["Events"]
    assert document["DocumentIncarnation"] == 3
    assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {}},
        {"headers": METADATA | {"x-forwarded-for": "1.2.3.4"}},
        {"version": "1999-01-01"},
        {"query": {}},
        {"method": "POST", "body": b"{"},
        {"method": "POST", "body": b'{"StartRequests": [{"EventId": "other"}]}'},
    ],
)
def test_azure_refuses_invalid_requests(fields: dict[str, Any]) -> None:
    response = call_azure(notice=NOTICE, **fields)

    assert response.status == HTTPStatus.BAD_REQUEST
    assert not response.acknowledged_event


def test_azure_describes_the_machine() -> None:
    compute = json.loads(call_azure("instance", version="2021-02-01").body)["compute"]

    assert (compute["vmSize"], compute["priority"], compute["location"]) == (
        "g5.xlarge", "Spot", "us-east-1",
    )  # fmt: skip
    assert compute["vmScaleSetName"] == "aks-gpu-00000000-vmss"


@pytest.fixture
def metadata_server(tmp_path: Path) -> Iterator[tuple[server.MetadataService, str]]:
    """Yield a server with files for a notice and an acknowledgement, and its URL."""
    facts = instance.facts(SPOT, "10.0.0.1") | {"cloud": "azure"}
    service = server.MetadataService(
        facts, tmp_path / "notice.json", tmp_path / "acknowledged.json"
    )
    http_server = server.server_of(service, "127.0.0.1", 0)
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service, f"http://127.0.0.1:{http_server.server_address[1]}"
    http_server.shutdown()
    thread.join()
    http_server.server_close()


def test_an_acknowledgement_over_http_is_written_to_disk(
    metadata_server: tuple[server.MetadataService, str],
) -> None:
    service, url = metadata_server
    files.write_json(
        service.notice, {"event": "ID-9", "announced_at": 1, "not_before": 2, "terminate": True}
    )
    body = json.dumps({"StartRequests": [{"EventId": "ID-9"}]}).encode()
    events = f"{url}/metadata/scheduledevents?api-version=2020-07-01"

    urllib.request.urlopen(urllib.request.Request(events, body, METADATA), timeout=100).close()

    assert files.read_json(service.acknowledgement) == {"event": "ID-9"}


def test_a_damaged_notice_is_a_server_error_and_not_a_missing_notice(
    metadata_server: tuple[server.MetadataService, str],
) -> None:
    service, url = metadata_server
    service.notice.write_text("{")
    events = f"{url}/metadata/scheduledevents?api-version=2020-07-01"

    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(urllib.request.Request(events, headers=METADATA), timeout=100)

    with error.value:
        assert error.value.code == HTTPStatus.INTERNAL_SERVER_ERROR
        assert f"{service.notice} is damaged" in error.value.read().decode()


def test_a_device_plugin_is_counted_while_it_is_connected(
    metadata_server: tuple[server.MetadataService, str],
) -> None:
    service, url = metadata_server

    with urllib.request.urlopen(f"{url}{server.DEVICES}", timeout=100) as response:
        assert response.readline() == b"2\n"
        assert service.plugins.any_open.wait(100)

    wait_until(
        lambda: not service.plugins.any_open.is_set(), 100, "the plugin is no longer counted"
    )


def test_the_load_is_served_without_the_metadata_header(
    metadata_server: tuple[server.MetadataService, str],
) -> None:
    _, url = metadata_server

    with urllib.request.urlopen(f"{url}{server.LOAD}", timeout=100) as response:
        assert b'DCGM_FI_DEV_GPU_UTIL{gpu="1"' in response.read()


def test_an_unknown_path_is_not_found(metadata_server: tuple[server.MetadataService, str]) -> None:
    _, url = metadata_server
    request = urllib.request.Request(f"{url}/nothing", headers=METADATA)

    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=100)

    with error.value:
        assert error.value.code == HTTPStatus.NOT_FOUND
