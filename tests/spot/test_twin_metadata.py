"""The watcher's clients against the metadata services of the twin."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cloudtwin import files
from cloudtwin.nodes.metadata import instance, server
from cloudtwin.nodes.model import MachineSpec, Role

from spot import metadata
from spot.notice import Effect
from tests.http_servers import serving

SPOT = MachineSpec(
    "gpu-3", Role.GPU, 2, instance_type="g5.xlarge", zone="us-east-1b", region="us-east-1",
    cloud="aws", spot=True, group="gpu",
)  # fmt: skip


@pytest.fixture
def notice_file(tmp_path: Path) -> Path:
    return tmp_path / "notice.json"


@pytest.fixture
def service_url(tmp_path: Path, notice_file: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a machine's metadata service in the given cloud."""
    facts = instance.facts(SPOT, "10.0.0.1") | {"cloud": request.param}
    service = server.MetadataService(facts, notice_file, tmp_path / "acknowledged.json")
    with serving(server.server_of(service, "127.0.0.1", 0)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("service_url", "reasons"),
    [("aws", {"terminate", "rebalance"}), ("azure", {"Preempt"})],
    indirect=["service_url"],
)
def test_the_watcher_parses_the_notices_of_the_twin(
    service_url: str, notice_file: Path, reasons: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "REQUEST_SECONDS", 100.0)
    cloud = metadata.detect(service_url)
    assert cloud is not None
    assert cloud.poll() == (), "it found the service, and nothing is announced"

    notice = {"event": "ID-9", "announced_at": 1000.0, "not_before": 2000.0, "terminate": True}
    files.write_json(notice_file, notice)

    notices = cloud.poll()
    assert notices is not None
    assert {notice.reason for notice in notices} == reasons
    assert notices[0].deadline == 2000.0
    assert notices[0].effect is Effect.STOP
