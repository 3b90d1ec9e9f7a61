"""What metadata services say: pure answers, and one real server."""

import json
import threading
import urllib.error
import urllib.request
from http import HTTPStatus

import pytest

from spot import metadata as watched
from spot.notice import Effect
from twin.nodes import files, instance, metadata, metadata_aws, metadata_azure
from twin.nodes.metadata_answer import Request
from twin.nodes.metadata_aws import Tokens
from twin.nodes.model import MachineSpec, Role
from twin.nodes.notices import Notice

SPOT = MachineSpec(
    "gpu-3", Role.GPU, 2, instance_type="g5.xlarge", zone="us-east-1b", region="us-east-1",
    cloud="aws", spot=True, group="gpu",
)  # fmt: skip
NOTICE = Notice("ID-1", at=1_700_000_000.0, not_before=1_700_000_120.0, take=True)
METADATA = {"metadata": "true"}


def aws(path, notice=None, spec=SPOT, method="GET", now=0.0, **headers):
    tokens = Tokens({"good": 100.0})
    asked = {"x-aws-ec2-metadata-token": "good", **headers}
    request = Request(method, f"/latest/{path}", headers=asked)
    return metadata_aws.answer(request, instance.facts(spec, "10.0.0.1"), notice, tokens, now)


def azure(path="scheduledevents", notice=None, version="2020-07-01", started=False, **fields):
    asked = {"method": "GET", "headers": METADATA, "query": {"api-version": version}, **fields}
    request = Request(path=f"/metadata/{path}", **asked)
    return metadata_azure.answer(request, instance.facts(SPOT, "10.0.0.1"), notice, started=started)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("instance-type", "g5.xlarge"),
        ("placement/availability-zone", "us-east-1b"),
        ("placement/region", "us-east-1"),
        ("instance-life-cycle", "spot"),
        ("local-ipv4", "10.0.0.1"),
        ("placement", "availability-zone\nregion"),
    ],
)
def test_aws_tells_one_value_at_a_path(path, said):
    assert aws(f"meta-data/{path}").body == said


def test_aws_lists_what_there_is_with_a_slash_behind_folders():
    assert {"instance-id", "placement/", "services/"} <= set(aws("meta-data/").body.split("\n"))
    assert "spot/" not in aws("meta-data/").body
    assert "spot/" in aws("meta-data/", NOTICE).body


def test_aws_announces_the_end_of_a_spot_machine_and_before_that_nothing():
    assert aws("meta-data/spot/instance-action").status == HTTPStatus.NOT_FOUND

    action = json.loads(aws("meta-data/spot/instance-action", NOTICE).body)
    advice = json.loads(aws("meta-data/events/recommendations/rebalance", NOTICE).body)

    assert action == {"action": "terminate", "time": "2023-11-14T22:15:20Z"}
    assert advice == {"noticeTime": "2023-11-14T22:13:20Z"}
    assert aws("meta-data/spot/termination-time", NOTICE).body == action["time"]


def test_the_identity_of_an_instance_is_the_accounts():
    document = json.loads(aws("dynamic/instance-identity/document").body)

    assert document["accountId"] == instance.AWS_ACCOUNT
    assert document["instanceId"] == aws("meta-data/instance-id").body


@pytest.mark.parametrize(
    "headers", [{"x-aws-ec2-metadata-token": ""}, {"x-aws-ec2-metadata-token": "bad"}]
)
def test_aws_says_nothing_without_a_token(headers):
    assert aws("meta-data/instance-id", **headers).status == HTTPStatus.UNAUTHORIZED


def test_a_token_of_aws_ends():
    tokens = Tokens()
    token = tokens.new(60, now=1000.0)

    assert tokens.valid(token, 1059.0)
    assert not tokens.valid(token, 1060.0)


@pytest.mark.parametrize(
    ("ttl", "status"),
    [("60", 200), ("21600", 200), ("21601", 400), ("0", 400), ("", 400), ("x", 400)],
)
def test_a_token_is_had_for_up_to_six_hours(ttl, status):
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": ttl}

    assert aws("api/token", method="PUT", **headers).status == status


def test_a_token_is_put_not_got_and_not_for_proxies():
    assert aws("api/token").status == HTTPStatus.METHOD_NOT_ALLOWED
    forwarded = {"x-forwarded-for": "1.2.3.4", "x-aws-ec2-metadata-token-ttl-seconds": "60"}
    assert aws("api/token", method="PUT", **forwarded).status == HTTPStatus.FORBIDDEN


def test_azure_schedules_a_preemption_and_before_that_nothing():
    assert json.loads(azure().body) == {"DocumentIncarnation": 1, "Events": []}

    (event,) = json.loads(azure(notice=NOTICE).body)["Events"]

    assert event["EventType"] == "Preempt"
    assert event["Resources"] == ["gpu-3"]
    assert event["EventStatus"] == "Scheduled"
    assert event["NotBefore"] == "Tue, 14 Nov 2023 22:15:20 GMT"


def test_an_event_of_azure_that_is_acknowledged_starts():
    body = json.dumps({"StartRequests": [{"EventId": "ID-1"}]}).encode()

    assert azure(notice=NOTICE, method="POST", body=body).acknowledged == "ID-1"

    (event,) = json.loads(azure(notice=NOTICE, started=True).body)["Events"]
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
def test_azure_refuses_what_it_must(fields):
    answer = azure(notice=NOTICE, **fields)

    assert answer.status == HTTPStatus.BAD_REQUEST
    assert not answer.acknowledged


def test_azure_tells_what_a_machine_is():
    compute = json.loads(azure("instance", version="2021-02-01").body)["compute"]

    assert (compute["vmSize"], compute["priority"], compute["location"]) == (
        "g5.xlarge", "Spot", "us-east-1",
    )  # fmt: skip
    assert compute["vmScaleSetName"] == "aks-gpu-00000000-vmss"


@pytest.fixture(params=["azure"])
def served(tmp_path, request):
    """A server with a notice file and a place for acknowledgements, as a machine has them."""
    facts = instance.facts(SPOT, "10.0.0.1") | {"cloud": request.param}
    service = metadata.Service(facts, tmp_path / "notice.json", tmp_path / "acknowledged.json")
    server = metadata.server_of(service, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_acknowledgement_over_the_wire_is_noted_on_disk(served):
    service, url = served
    files.write_json(service.notice, {"event": "ID-9", "at": 1, "not_before": 2, "take": True})
    body = json.dumps({"StartRequests": [{"EventId": "ID-9"}]}).encode()
    events = f"{url}/metadata/scheduledevents?api-version=2020-07-01"

    urllib.request.urlopen(urllib.request.Request(events, body, METADATA), timeout=5).close()

    assert files.read_json(service.acknowledgement) == {"event": "ID-9"}


@pytest.mark.parametrize(
    ("served", "reasons"),
    [("aws", {"terminate", "rebalance"}), ("azure", {"Preempt"})],
    indirect=["served"],
)
def test_the_watcher_that_runs_in_a_cloud_understands_what_is_said_here(served, reasons):
    service, url = served
    cloud = watched.find(url)
    assert cloud.poll() == (), "it found the service, and nothing is announced"

    notice = {"event": "ID-9", "at": 1000.0, "not_before": 2000.0, "take": True}
    files.write_json(service.notice, notice)

    notices = cloud.poll()
    assert {one.reason for one in notices} == reasons
    assert notices[0].deadline == 2000.0
    assert notices[0].effect is Effect.LEAVE


def test_a_device_plugin_is_there_for_as_long_as_its_connection_is(served):
    service, url = served

    with urllib.request.urlopen(f"{url}{metadata.DEVICES}", timeout=5) as answer:
        assert answer.readline() == b"2\n"
        assert service.plugins.some.wait(5)
    gone = threading.Event()
    for _ in range(500):
        if not service.plugins.some.is_set():
            gone.set()
            break
        gone.wait(0.01)

    assert gone.is_set()


def test_the_load_is_shown_without_any_header(served):
    _, url = served

    with urllib.request.urlopen(f"{url}{metadata.LOAD}", timeout=5) as answer:
        assert b'DCGM_FI_DEV_GPU_UTIL{gpu="1"' in answer.read()


def test_what_is_not_there_is_not_found(served):
    _, url = served
    asked = urllib.request.Request(f"{url}/nothing", headers=METADATA)

    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=5)

    assert refused.value.code == HTTPStatus.NOT_FOUND
    refused.value.close()
