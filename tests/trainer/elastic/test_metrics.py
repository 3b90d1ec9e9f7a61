"""The metrics of a real worker."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.processes import free_port
from tests.trainer.elastic.nodes import REPOSITORY, small_data
from tests.waiting import wait_until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(300)]


MetricValues = dict[tuple[str, str | None], float]


def scrape(port: int) -> MetricValues:
    """Return the values by metric and activity; empty while the port is closed."""
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response,
    ):
        families = text_string_to_metric_families(response.read().decode())
        return {(s.name, s.labels.get("activity")): s.value for f in families for s in f.samples}
    return {}


def values_after_two_steps(values: MetricValues) -> MetricValues | None:
    return values if values.get(("everstep_step", None), 0) >= 2 else None


def test_a_worker_that_trains_serves_its_steps_samples_and_seconds(tmp_path: Path) -> None:
    port = free_port()
    arguments = ["--model", "resnet18", "--dataset", "fashion-mnist", "--global-batch", "4"]
    arguments += ["--data", str(small_data(tmp_path, 400)), "--run", str(tmp_path / "run")]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "trainer.train", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, "EVERSTEP_METRICS_PORT": str(port)},
            stdout=log,
            stderr=log,
        )
    try:
        values = wait_until(
            lambda: values_after_two_steps(scrape(port)), "two steps are exported", 200
        )
    finally:
        worker.kill()
        worker.wait()

    samples, step = values["everstep_samples", None], values["everstep_step", None]
    assert abs(samples - 4 * step) <= 4, "a scrape may fall between the updates of the two"
    assert values["everstep_group_workers", None] == 1
    assert values["everstep_worker_steps_total", None] >= 2
    assert values["everstep_loss", None] > 0
    assert values["everstep_checkpoint_timestamp_seconds", None] > time.time() - 3600
    assert values["everstep_worker_seconds_total", "compute"] > 0
