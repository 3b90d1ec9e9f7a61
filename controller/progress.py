"""The completed share of a job's training, from the metrics of its workers.

A worker exports the number of completed steps and the number of all steps of the run; every worker of a group has the
same. A worker that does not respond costs a fraction of a second, and the newest known share remains valid.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controller.objects import Pod
from controller.worker_metrics import read_values, scrape
from everstep.catalog.metrics import PLANNED_STEPS, STEP

ASK_AGAIN = timedelta(seconds=30)
ATTEMPTS = 3  # workers that are scraped in one pass


def read_share(text: str) -> float | None:
    """Return the completed share in the metrics of a worker; None if they do not have it."""
    values = read_values(text.splitlines(), STEP, PLANNED_STEPS)
    step, planned = values.get(STEP), values.get(PLANNED_STEPS)
    if step is None or planned is None or not 0 <= step <= planned or planned == 0:
        return None
    return step / planned


@dataclass
class ProgressReader:
    """Reader of the shares of all jobs, each at most twice a minute.

    Passes in between get the same share: about one a minute writes the status, and without the share it would count
    machine time in which nothing was completed.

    Attributes:
        scrape: returns the metrics at the address of a pod.
    """

    scrape: Callable[[str], str] = scrape
    _answers: dict[str, tuple[datetime, float | None]] = field(default_factory=dict)

    def share(self, uid: str, pods: Iterable[Pod], now: datetime) -> float | None:
        """Return the completed share of a job's training; None if no worker exported it when asked.

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
        asked_at, share = self._answers.get(uid, (None, None))
        if asked_at is None or now - asked_at >= ASK_AGAIN:
            share = next(filter(None, map(self._share_of, addresses[:ATTEMPTS])), None)
            self._answers[uid] = now, share
        return share

    def forget(self, uid: str) -> None:
        """Forget a job that has ended."""
        self._answers.pop(uid, None)

    def _share_of(self, address: str) -> float | None:
        try:
            return read_share(self.scrape(address))
        except (OSError, ValueError):
            return None
