"""The completed share of a job's training, from the metrics of its workers."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from controller.objects import Pod
from controller.progress import (
    MAX_SCRAPED_WORKERS,
    SCRAPE_INTERVAL,
    ProgressReader,
    read_share,
)
from controller.spending_state import ObservedShare
from controller.worker_metrics import scrape
from everstep.catalog.metrics import PLANNED_STEPS, STEP
from everstep.elastic.accounting.metrics import Reading, serve
from tests.controller.builders import NOW, pod
from tests.http_servers import stopping

METRICS = """# HELP everstep_step Completed steps of the run.
# TYPE everstep_step gauge
everstep_step{elasticjob="job",worker="job-worker-0"} 250.0
everstep_planned_steps{elasticjob="job",worker="job-worker-0"} 1000.0
everstep_worker_steps_total{elasticjob="job",worker="job-worker-0"} 7.0
"""


def share(
    reader: ProgressReader, pods: Sequence[Pod], now: datetime = NOW, uid: str = "u"
) -> float | None:
    """Return the completed share of a job's training, as its workers report it; None if none reports it."""
    read = reader.share(uid, pods, now)
    return read.value if read else None


def test_the_share_is_the_completed_fraction_of_the_planned_steps() -> None:
    assert read_share(METRICS) == 0.25


def test_a_group_that_started_over_has_a_share_of_zero() -> None:
    metrics = METRICS.replace(" 250.0", " 0.0")

    assert share(ProgressReader(lambda _: metrics), [pod(0, address="10.0.0.1")]) == 0.0


def test_a_worker_that_has_not_joined_has_no_share() -> None:
    """Such a worker exports step 0 until it has the state of its group."""
    new_worker = METRICS.replace(" 250.0", " 0.0").replace(" 7.0", " 0.0")
    reader = ProgressReader(lambda address: METRICS if address == "old" else new_worker)
    new = pod(0, address="new", started=NOW - timedelta(hours=1))

    assert read_share(new_worker) is None
    assert share(reader, [new, pod(1, address="old", started=NOW)]) == 0.25


@pytest.mark.parametrize(
    "text",
    [
        "",
        "everstep_step 5",
        "everstep_step 0\neverstep_planned_steps 0",
        "everstep_step 6\neverstep_planned_steps 5",
        "everstep_step NaN\neverstep_planned_steps 5",
        "everstep_step many\neverstep_planned_steps 5",
    ],
)
def test_metrics_without_a_valid_share_yield_none(text: str) -> None:
    assert read_share(text) is None


def test_the_next_worker_is_scraped_if_one_does_not_respond() -> None:
    addresses = []

    def respond(address: str) -> str:
        addresses.append(address)
        if address == "10.0.0.1":
            raise OSError
        return METRICS

    pods = [
        pod(0, address="10.0.0.1"),
        pod(1, "Pending", address="10.0.0.2"),
        pod(2, address=""),
        pod(3, address="10.0.0.3"),
    ]

    assert share(ProgressReader(respond), pods) == 0.25
    assert addresses == ["10.0.0.1", "10.0.0.3"]


def test_the_workers_that_have_run_longest_are_scraped_first() -> None:
    """The new workers do not train yet, and there are as many of them as one pass scrapes."""
    new = [pod(index, address="new", started=NOW) for index in range(MAX_SCRAPED_WORKERS)]
    old = pod(MAX_SCRAPED_WORKERS, address="old", started=NOW - timedelta(hours=1))
    reader = ProgressReader(lambda address: METRICS if address == "old" else "")

    assert share(reader, [*new, old]) == 0.25


def test_the_share_is_read_from_the_metrics_that_a_worker_serves() -> None:
    reading = Reading(
        job="job", worker="job-worker-0", seconds={}, values={STEP: 1, PLANNED_STEPS: 4}
    )
    with stopping(serve(0, lambda: reading)) as port:
        assert read_share(scrape("127.0.0.1", port, 30)) == 0.25


def test_workers_are_scraped_at_most_twice_a_minute_and_their_share_is_kept_in_between() -> None:
    steps = iter((100, 200, 300))
    reader = ProgressReader(lambda _: f"everstep_step {next(steps)}\neverstep_planned_steps 1000")
    pods = [pod(0, address="10.0.0.1")]

    first_read = ObservedShare(value=0.1, read_at=NOW)
    assert reader.share("u", pods, NOW) == first_read
    assert reader.share("u", pods, NOW + SCRAPE_INTERVAL - timedelta(seconds=1)) == first_read
    assert share(reader, pods, NOW + SCRAPE_INTERVAL) == 0.2
    assert share(reader, pods, uid="v") == 0.3, "each job's workers are scraped on their own"


def test_a_job_without_running_workers_has_no_share() -> None:
    reader = ProgressReader(lambda _: METRICS)
    reader.share("u", [pod(0, address="10.0.0.1")], NOW)

    assert reader.share("u", [], NOW) is None
