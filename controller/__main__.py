"""Command line and process of the controller: `python3 -m controller`."""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

from kubernetes import client

from controller.client import KubernetesClient, client_configuration
from controller.leader import REQUEST_SECONDS, Candidate, keep_leading, wait_to_lead
from controller.metrics import Metrics, serve
from controller.operator import Operator
from controller.reconcile import Reconciler
from controller.scaling import Timeouts
from everstep.catalog.names import CONTROLLER_METRICS_PORT, JOB_NAMESPACE

log = logging.getLogger("controller")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m controller",
        description="Run ElasticJobs: create their workers and replace lost ones.",
    )
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--namespace", default=os.environ.get("POD_NAMESPACE", JOB_NAMESPACE),
        help="namespace whose ElasticJobs are run (default: $POD_NAMESPACE, else %(default)s)",
    )  # fmt: skip
    scope.add_argument(
        "--all-namespaces",
        action="store_true",
        help="run the ElasticJobs of every namespace; needs a ClusterRole",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=CONTROLLER_METRICS_PORT,
        help="port of /metrics and /healthz; 0 takes any free port (default: %(default)s)",
    )
    parser.add_argument(
        "--leader-elect",
        action="store_true",
        help="let only one of several controllers act (by a Lease in its namespace)",
    )
    parser.add_argument(
        "--kubeconfig",
        help="kubeconfig of the cluster (default: the pod's service account, else $KUBECONFIG or ~/.kube/config)",
    )
    timeouts = Timeouts()
    for name, seconds, event in (
        (
            "--scale-down-after",
            timeouts.down_seconds,
            "an unscheduled worker is removed",
        ),
        ("--scale-up-after", timeouts.up_seconds, "capacity for another worker is used"),
        (
            "--request-capacity-after",
            timeouts.request_seconds,
            "a job below its maximum requests one more worker",
        ),
    ):
        parser.add_argument(
            name, type=float, default=seconds, metavar="SECONDS",
            help=f"for jobs that follow capacity: seconds until {event} (default: %(default)g)",
        )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="log debug messages")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller; return its exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for logger_name in ("kopf", "urllib3", "kubernetes"):
        logging.getLogger(logger_name).setLevel(
            logging.INFO if options.verbose else logging.WARNING
        )
    return Process(options).run()


class Process:
    """A controller process: its threads and its signals."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.stop = threading.Event()
        self.metrics = Metrics()
        configuration = partial(client_configuration, options.kubeconfig)
        kubernetes_client = KubernetesClient(client.ApiClient(configuration()))
        timeouts = Timeouts(
            down_seconds=options.scale_down_after,
            up_seconds=options.scale_up_after,
            request_seconds=options.request_capacity_after,
        )
        reconciler = Reconciler(
            kubernetes_client, self.metrics, now=kubernetes_client.clock.now, timeouts=timeouts
        )
        namespace = None if options.all_namespaces else options.namespace
        self.operator = Operator(reconciler, namespace, configuration)
        lease_client = KubernetesClient(
            client.ApiClient(configuration()), timeout_seconds=REQUEST_SECONDS
        )
        identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self.candidate = Candidate(lease_client, options.namespace, identity)

    def run(self) -> int:
        """Run until SIGTERM or SIGINT and return 0; exit with 1 if the lease is lost, for a restart."""
        server = serve(self.metrics, self.options.metrics_port, self.operator.alive)
        log.info("metrics and health on port %d", server.server_port)
        for number in SIGNALS:
            signal.signal(number, lambda *_: self.stop.set())
        if self.options.leader_elect and not wait_to_lead(
            self.candidate, self.stop, self.operator.record_heartbeat
        ):
            return 0
        self.metrics.leader.set(1)
        with self._renewed_lease() if self.options.leader_elect else nullcontext():
            asyncio.run(self._lead())
        server.shutdown()
        return 0

    @contextmanager
    def _renewed_lease(self) -> Iterator[None]:
        """Renew the lease during the block, then release it."""
        stop = threading.Event()
        # Immediately, like other controllers: a pass in progress must not act without the lease.
        on_lost = partial(os._exit, 1)
        renewal = threading.Thread(
            target=keep_leading, args=(self.candidate, stop, on_lost), name="lease", daemon=True
        )
        renewal.start()
        try:
            yield
        finally:
            stop.set()
            renewal.join()  # else it could acquire the released lease again
            self.candidate.release()

    async def _lead(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in SIGNALS:  # kopf replaces these handlers, but only once it has started
            loop.add_signal_handler(number, stop.set)
        if self.stop.is_set():
            return
        await self.operator.run(stop)


if __name__ == "__main__":
    sys.exit(main())
