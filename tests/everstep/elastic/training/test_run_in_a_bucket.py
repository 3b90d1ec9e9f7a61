"""A run whose checkpoints are in a bucket of an S3-compatible server."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from everstep import elastic
from everstep.elastic.checkpoint.s3_bucket import bucket_at
from everstep.elastic.training.run_storage import BucketStorage
from everstep.errors import EverstepError
from tests.everstep.elastic.checkpoint.s3_environment import use_server
from tests.everstep.staging.sources import servers
from tests.everstep.staging.sources.servers import client_of
from tests.processes import free_port

URL = "s3://models/runs/example"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a server with an empty bucket, which is deleted after each test."""
    with servers.moto() as address:
        client_of(address).create_bucket(Bucket="models")
        use_server(monkeypatch, address)
        yield
        client = client_of(address)  # moto's state belongs to this process
        for item in client.list_objects_v2(Bucket="models").get("Contents", ()):
            client.delete_object(Bucket="models", Key=item["Key"])
        client.delete_bucket(Bucket="models")


def train(max_steps: int, **options: Any) -> elastic.Run:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    arguments: dict[str, Any] = {
        "dataset_size": 24,
        "global_batch": 4,
        "epochs": 2,
        "checkpoint": URL,
    }
    run = elastic.Run(model, optimizer, max_steps=max_steps, **{**arguments, **options})
    for batch in run:
        for ids in batch.microbatches():
            batch.backward(model(torch.stack([ids, ids + 1], 1) / 24).square().mean())
        batch.step()
    return run


def test_a_run_continues_from_its_bucket() -> None:
    undisturbed_run = train(9, checkpoint=None)
    train(5)

    continued_run = train(9)

    assert continued_run.sha256() == undisturbed_run.sha256()
    storage = BucketStorage(bucket_at(URL))
    assert storage.run_id()
    assert [name[:13] for name in storage.checkpoints.names()] == ["step-00000009", "step-00000005"]
    assert len(bucket_at(URL).keys("ledger/")) == 2


def test_a_changed_number_of_samples_is_recorded_once() -> None:
    storage = BucketStorage(bucket_at(URL))
    storage.open(50, {"seed": 1})
    identity = storage.run_id()
    BucketStorage(bucket_at(URL)).open(60, {"seed": 1})

    storage.note_samples(4, 50, generation=1)
    storage.note_samples(4, 30, generation=2)
    storage.note_samples(9, 30, generation=3)

    record, _ = storage._record()
    [change] = record["data_changes"]
    assert (change["step"], change["samples"], change["generation"]) == (4, 30, 2)
    assert record["id"] == identity, "the second worker has found the record of the first"


def test_a_bucket_that_does_not_exist_ends_the_run_with_a_fix() -> None:
    with pytest.raises(
        EverstepError, match="the bucket of s3://nothing/run does not exist"
    ) as error:
        train(1, checkpoint="s3://nothing/run")
    assert "create it" in error.value.fix


def test_a_bucket_that_cannot_be_reached_ends_this_process_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_server(monkeypatch, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr("everstep.elastic.checkpoint.s3_bucket.ATTEMPTS", 1)
    monkeypatch.setattr("everstep.elastic.training.training_state.end_process", sys.exit)

    with pytest.raises(SystemExit, match=r"cannot be read: .*does not respond"):
        train(1)
