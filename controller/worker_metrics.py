"""The metrics of a worker, read from its pod.

The pod is their only source: workers have no access to the API server, and etcd contains only the group.
"""

import socket
import time
from collections.abc import Iterable
from contextlib import suppress

from everstep.catalog.metrics import Metric
from everstep.catalog.names import WORKER_METRICS_PORT

TIMEOUT_SECONDS = 1.0  # timeout of the whole response: a worker must not delay other jobs
MAX_BYTES = 1 << 20


def scrape(address: str, port: int = WORKER_METRICS_PORT, seconds: float = TIMEOUT_SECONDS) -> str:
    """Return the response to a scrape of a pod, with its headers; by default of the process of local rank 0.

    Workers run programs of users. An HTTP client would follow their redirects, and its timeout would begin again with
    each byte.

    Raises:
        OSError: the worker does not respond in time, or its response is too long.
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


def read_values(lines: Iterable[str], *metrics: Metric) -> dict[Metric, float]:
    """Return the values of some metrics in the lines of a response; values that are not numbers are skipped."""
    names, values = {metric.name: metric for metric in metrics}, dict[Metric, float]()
    for line in lines:
        metric = names.get(line.partition("{")[0].partition(" ")[0])
        if metric is not None:
            with suppress(ValueError):
                values[metric] = float(line.rsplit(" ", 1)[-1])
    return values
