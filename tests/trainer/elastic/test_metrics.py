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
from tests.trainer.elastic.nodes import REPOSITORY, small_data, wait_until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(300)]


Exported = dict[tuple[str, str | None], float]


def scrape(port: int) -> Exported:
    """Return the values by metric and activity; empty while the port is closed."""
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response,
    ):
        families = text_string_to_metric_families(response.read().decode())
        return {(s.name, s.labels.get("activity")): s.value for f in families for s in f.samples}
    return {}


def after_two_steps(exported: Exported) -> Exported | None:
    return exported if exported.get(("everstep_step", None), 0) >= 2 else None


def test_a_worker_that_trains_serves_its_steps_samples_and_seconds(tmp_path: Path) -> None:
    port = free_port()
    line = ["--model", "resnet18", "--dataset", "fashion-mnist", "--global-batch", "4"]
    line += ["--data", str(small_data(tmp_path, 400)), "--run", str(tmp_path / "run")]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "trainer.train", *line],
            cwd=REPOSITORY,
            env={**os.environ, "EVERSTEP_METRICS_PORT": str(port)},
            stdout=log,
            stderr=log,
        )
    try:
        exported = wait_until(lambda: after_two_steps(scrape(port)), 200, "two steps are exported")
    finally:
        worker.kill()
        worker.wait()

    samples, step = exported["everstep_samples", None], exported["everstep_step", None]
    assert abs(samples - 4 * step) <= 4, "a scrape may fall between the two"
    assert exported["everstep_group_workers", None] == 1
    assert exported["everstep_worker_steps_total", None] >= 2
    assert exported["everstep_loss", None] > 0
    assert exported["everstep_checkpoint_timestamp_seconds", None] > time.time() - 3600
    assert exported["everstep_worker_seconds_total", "compute"] > 0
