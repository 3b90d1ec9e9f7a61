"""The completed share of a job's training, from the metrics of its workers.

A worker exports the steps that the run has completed and those that it has in all; every worker of a group has the
same. Nothing else that the controller can read has them: workers have no access to the API server, and etcd has
only the group. A worker that does not respond costs a fraction of a second, and the newest known share counts on.
"""

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controller.objects import Pod
from everstep.catalog.metrics import PLANNED_STEPS, STEP, Metric
from everstep.catalog.names import WORKER_METRICS_PORT

ASK_AGAIN = timedelta(seconds=30)
TIMEOUT_SECONDS = 1.0  # timeout of the whole response: a worker must not delay other jobs
MAX_BYTES = 1 << 20
ATTEMPTS = 3  # workers that are asked in one pass


def scrape(address: str, port: int = WORKER_METRICS_PORT, seconds: float = TIMEOUT_SECONDS) -> str:
    """Return the response of the first process of a worker to a scrape, with its headers.

    Workers run programs of users. A client of HTTP would follow their redirects, and its timeout begins again with
    each byte.

    Raises:
        OSError: it does not respond in time, or without end.
    """
    end = time.monotonic() + seconds
    with socket.create_connection((address, port), timeout=seconds) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        response = bytearray()
        while len(response) <= MAX_BYTES:
            connection.settimeout(max(end - time.monotonic(), 1e-3))
            if not (received := connection.recv(65536)):
                return response.decode(errors="replace")
            response += received
            if time.monotonic() > end:
                raise TimeoutError
    raise OSError(f"the metrics of {address} are longer than {MAX_BYTES} bytes")


def read_share(text: str) -> float | None:
    """Return the completed share in the metrics of a worker; None if they do not have it."""
    values = read_values(text.splitlines(), STEP, PLANNED_STEPS)
    step, planned = values.get(STEP), values.get(PLANNED_STEPS)
    if step is None or planned is None or not 0 <= step <= planned or planned == 0:
        return None
    return step / planned


def read_values(lines: Iterable[str], *metrics: Metric) -> dict[Metric, float]:
    """Return the values of some metrics in the lines of an answer, without those that are not numbers."""
    names, values = {metric.name: metric for metric in metrics}, dict[Metric, float]()
    for line in lines:
        metric = names.get(line.partition("{")[0].partition(" ")[0])
        if metric is not None:
            with suppress(ValueError):
                values[metric] = float(line.rsplit(" ", 1)[-1])
    return values


@dataclass
class ProgressReader:
    """Reader of the shares of all jobs, each at most twice a minute.

    Attributes:
        scrape: returns the metrics at the address of a pod.
    """

    scrape: Callable[[str], str] = scrape
    _asked_at: dict[str, datetime] = field(default_factory=dict)

    def share(self, uid: str, pods: Iterable[Pod], now: datetime) -> float | None:
        """Return the completed share of a job's training; None if no worker tells it now.

        Args:
            uid: uid of the job.
            pods: its pods.
            now: the current time.
        """
        addresses = [pod.address for pod in pods if pod.phase == "Running" and pod.address]
        asked_at = self._asked_at.get(uid)
        if not addresses or (asked_at and now - asked_at < ASK_AGAIN):
            return None
        self._asked_at[uid] = now
        return next(filter(None, map(self._share_of, addresses[:ATTEMPTS])), None)

    def forget(self, uid: str) -> None:
        """Forget a job that has ended."""
        self._asked_at.pop(uid, None)

    def _share_of(self, address: str) -> float | None:
        try:
            return read_share(self.scrape(address))
        except (OSError, ValueError):
            return None
