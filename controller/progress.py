"""The completed share of a job's training, from the metrics of its workers.

A worker exports the number of completed steps and the number of all steps of the run. Both are the same for all
workers of a group. A worker that does not respond costs about a second at most; the newest share in the job's status
remains valid.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controller.objects import Pod
from controller.spending_state import ObservedShare
from controller.worker_metrics import read_values, scrape
from everstep.catalog.metrics import PLANNED_STEPS, STEP, WORKER_STEPS

SCRAPE_INTERVAL = timedelta(seconds=30)
MAX_SCRAPED_WORKERS = 3  # limit for one pass


def read_share(text: str) -> float | None:
    """Return the completed share in the metrics of a worker; None if they do not contain it.

    A worker that has completed no step itself exports step 0 until it has the state of its group.
    """
    values = read_values(text.splitlines(), STEP, PLANNED_STEPS, WORKER_STEPS)
    step, planned_steps = values.get(STEP), values.get(PLANNED_STEPS)
    if step is None or not planned_steps or not 0 <= step <= planned_steps:
        return None
    if values.get(WORKER_STEPS) == 0:
        return None
    return step / planned_steps


@dataclass
class ProgressReader:
    """Reader of the shares of all jobs, each at most twice a minute.

    Passes in between get the last share: most passes do not write the status, so a share that only one pass gets
    could be lost.

    Attributes:
        scrape: function that returns the metrics at the address of a pod.
    """

    scrape: Callable[[str], str] = scrape
    _reads: dict[str, tuple[datetime, ObservedShare | None]] = field(default_factory=dict)

    def share(self, uid: str, pods: Iterable[Pod], now: datetime) -> ObservedShare | None:
        """Return the completed share of a job's training; None if no worker exported it when scraped.

        Args:
            uid: uid of the job.
            pods: its pods.
            now: the current time.
        """
        running = [pod for pod in pods if pod.phase == "Running" and pod.address]
        running.sort(key=lambda pod: pod.started or now)  # the newest ones may not train yet
        addresses = [pod.address for pod in running]
        if not addresses:
            return None
        scraped_at, read = self._reads.get(uid, (None, None))
        if scraped_at is None or now - scraped_at >= SCRAPE_INTERVAL:
            shares = map(self._share_of, addresses[:MAX_SCRAPED_WORKERS])
            read = next(
                (ObservedShare(value=share, read_at=now) for share in shares if share is not None),
                None,
            )
            self._reads[uid] = now, read
        return read

    def forget(self, uid: str) -> None:
        """Forget a deleted job."""
        self._reads.pop(uid, None)

    def _share_of(self, address: str) -> float | None:
        try:
            return read_share(self.scrape(address))
        except (OSError, ValueError):
            return None
