"""A worker on its node: GPUs that are billed and idle. The refusals are among the bad stacks."""

import pytest

from components.config import from_mapping, warnings
from tests.components.config.bad_stacks import AKS, EKS, with_changes


@pytest.mark.parametrize(
    ("types", "per_worker", "warned"),
    [(["g5.12xlarge"], 1, True), (["g5.12xlarge"], 4, False), (["g5.xlarge"], 1, False)],
)
def test_idle_gpus_of_a_node_are_a_warning(types: list[str], per_worker: int, warned: bool) -> None:
    changes = {"cluster.gpuPool.instanceTypes": types, "job.gpusPerWorker": per_worker}

    messages = warnings(from_mapping(with_changes(EKS, changes)))

    expected = ["job.gpusPerWorker: a worker uses 1 GPU of the 4 of its node, g5.12xlarge"]
    assert [text in message for text, message in zip(expected, messages, strict=False)] == (
        [True] if warned else []
    )


def test_the_default_sizes_of_azure_have_no_idle_gpus() -> None:
    assert warnings(from_mapping(AKS)) == []
