"""Training from an object store through the caches of two nodes, with a real server and a real etcd."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.progress import Silent
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.servers import client_of
from tests.trainer.data.photographs import write_photographs
from tests.trainer.elastic.nodes import REPOSITORY, Nodes, running_etcd
from tests.trainer.verification import run_verify
from trainer.data import convert
from trainer.data.shard import Resizing
from trainer.settings import RESULT_FILE

pytestmark = pytest.mark.twin

OPTIONS = ["--model", "resnet18", "--dataset", "imagefolder", "--image-size=16"]
# --shard-size is the number of samples in a shard of mode `exact`, not in a shard of the data.
OPTIONS += ["--global-batch=8", "--mode=exact", "--shard-size=4", "--epochs=5"]


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with shards of 80 training images."""
    monkeypatch.setattr(convert, "MIN_SAMPLES", 16)
    write_photographs(tmp_path / "photographs", per_class=40)
    convert.convert(
        tmp_path / "photographs", tmp_path / "shards", Resizing(short_side=32), 1, Silent()
    )
    return tmp_path / "shards"


@pytest.mark.timeout(1800)
def test_a_run_from_caches_survives_a_lost_node_and_ends_in_the_state_of_a_run_from_the_folder(
    shards: Path, tmp_path: Path
) -> None:
    (tmp_path / "s3").mkdir()
    with servers.minio(tmp_path / "s3") as address, running_etcd(tmp_path) as etcd:
        client = client_of(address)
        client.create_bucket(Bucket="photographs")
        for path in shards.iterdir():
            client.upload_file(str(path), "photographs", f"shards/{path.name}")
        bounds = tmp_path / "nnodes"
        bounds.write_text("2:3")  # no step is taken before both nodes have joined
        options = [*OPTIONS, "--data-store=s3://photographs/shards"]
        nodes = Nodes(tmp_path, etcd, options, bounds_file=bounds, preloaded=True)
        try:
            for name in ("w0", "w1"):
                nodes.start(name, f"--data={tmp_path / name}", environment=credentials(address))
            nodes.next_step(0, world_size=2, seconds=600)

            nodes.signal_all("w1", signal.SIGKILL)
            bounds.write_text("1:3")

            assert nodes.exit_code("w0", 600) == 0, nodes.logs()
        finally:
            nodes.close()

    verification = run_verify(nodes.run)
    assert verification.returncode == 0, verification.stdout + verification.stderr
    assert digest(nodes.run) == digest(train_from(shards, tmp_path / "runs" / "folder")), (
        "the bytes of an image differ between the cache and the folder"
    )


def credentials(address: str) -> dict[str, str]:
    """Return the variables with which boto3 uses a server."""
    return {
        "AWS_ENDPOINT_URL_S3": address,
        "AWS_ACCESS_KEY_ID": servers.KEY_ID,
        "AWS_SECRET_ACCESS_KEY": servers.SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def train_from(folder: Path, run: Path) -> Path:
    """Train the same run in one process from a folder; return the folder of the run."""
    command = [sys.executable, "-m", "trainer.train", *OPTIONS, f"--data={folder}", f"--run={run}"]
    result = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return run


def digest(run: Path) -> str:
    """Return the digest of a run's final state."""
    return str(json.loads((run / RESULT_FILE).read_text())["sha256"])
