"""Tests marked `gpu` fail on a machine without a GPU, and are skipped with a reason if it has too few."""

import pytest

from tests.gpu.machine import NO_GPU, gpu_count, skip_reason


@pytest.fixture(autouse=True)
def required_gpus(request: pytest.FixtureRequest) -> None:
    """Check that the machine has the GPUs that the marker names: `gpu(count, purpose)`."""
    marker = request.node.get_closest_marker("gpu")
    if marker is None:
        return
    count = gpu_count()
    if not count:
        pytest.fail(NO_GPU, pytrace=False)
    needed, purpose = marker.kwargs.get("count", 1), marker.kwargs.get("purpose", "")
    if reason := skip_reason(needed, count, purpose):
        pytest.skip(reason)
