"""A worker's figures for Prometheus: the text format, served by the worker itself.

Off unless EVERSTEP_METRICS_PORT names a port; the worker of local rank r listens on that port plus r.

Why an endpoint and not files beside the journal for node_exporter: the volume is an object store or a
network file system, on which a small file renamed every few seconds by each worker is dear, and a
scrape that fails is itself the news that a worker is gone. Why the worker and not its agent: the
worker has the figures, and what a new process says begins at 0, which is what Prometheus takes a
counter's fall for. No client library: the trainer's image has none, and the format is a page long.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

log = logging.getLogger(__name__)

PORT_VARIABLE = "EVERSTEP_METRICS_PORT"
PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a worker shows at one moment.

    Attributes:
        labels: on every sample: the job and the worker.
        seconds: since the process began, by `accounting.Name`; none of them ever falls.
        step: completed steps of the run.
        samples: that made the state, counted by the ledger.
        generation: that the worker is in, or was in last.
        members: workers of that generation.
        last_recovery: seconds; see `Accounting.last_recovery`.
    """

    labels: Mapping[str, str]
    seconds: Mapping[str, float]
    step: int
    samples: int
    generation: int
    members: int
    last_recovery: float | None


def render(reading: Reading) -> str:
    """The text that Prometheus scrapes."""
    return "".join(f"{line}\n" for line in _lines(reading))


def _lines(reading: Reading) -> Iterator[str]:
    name = "everstep_worker_seconds_total"
    yield f"# HELP {name} Seconds since this worker process began, by what they went into."
    yield f"# TYPE {name} counter"
    for activity, seconds in sorted(reading.seconds.items()):
        yield _sample(name, {**reading.labels, "activity": activity}, seconds)
    for name, said, value in (
        ("everstep_step", "Completed steps of the run.", reading.step),
        ("everstep_samples", "Samples that the completed steps were made of.", reading.samples),
        ("everstep_generation", "Number of the group that this worker is in.", reading.generation),
        ("everstep_group_workers", "Workers of that group.", reading.members),
        (
            "everstep_last_recovery_seconds",
            "From a group's end to the next one's first step, the last time.",
            reading.last_recovery,
        ),
    ):
        if value is not None:
            yield f"# HELP {name} {said}"
            yield f"# TYPE {name} gauge"
            yield _sample(name, reading.labels, value)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    written = ",".join(f'{label}="{_escape(words)}"' for label, words in labels.items())
    return f"{name}{{{written}}} {value:.10g}"


def _escape(words: str) -> str:
    return words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def serve(port: int, read: Callable[[], Reading]) -> ThreadingHTTPServer:
    """Answer scrapes on all addresses from a thread of its own; port 0 takes any that is free.

    Raises:
        OSError: the port is taken.
    """

    class Scrape(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
                return
            body = render(read()).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing: a scrape every few seconds is no news."""

    server = ThreadingHTTPServer(("", port), Scrape)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="everstep-metrics", daemon=True).start()
    return server


def offer(read: Callable[[], Reading]) -> ThreadingHTTPServer | None:
    """Serve where the environment asks for it; training goes on without, should that fail."""
    if not (wanted := os.environ.get(PORT_VARIABLE)):
        return None
    try:
        return serve(int(wanted) + int(os.environ.get("LOCAL_RANK", "0")), read)
    except (OSError, ValueError, OverflowError) as error:
        log.warning("no metrics: %s=%s: %s", PORT_VARIABLE, wanted, error)
        return None
