"""The command `python3 -m controller`."""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Sequence
from functools import partial

from kubernetes import client

from controller.client import KubernetesClient, client_configuration
from controller.leader import Candidate, keep_leading, wait_to_lead
from controller.metrics import Metrics, serve
from controller.operator import Operator
from controller.reconcile import Reconciler
from controller.scaling import Timeouts
from everstep.catalog.names import CONTROLLER_METRICS_PORT, JOB_NAMESPACE

log = logging.getLogger("controller")


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
        help="kubeconfig of the cluster (default: the pod's service account, else $KUBECONFIG)",
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
        self.lease_lost = False
        self.metrics = Metrics()
        configuration = partial(client_configuration, options.kubeconfig)
        self.client = KubernetesClient(client.ApiClient(configuration()))
        timeouts = Timeouts(
            down_seconds=options.scale_down_after,
            up_seconds=options.scale_up_after,
            request_seconds=options.request_capacity_after,
        )
        reconciler = Reconciler(self.client, self.metrics, timeouts=timeouts)
        namespace = None if options.all_namespaces else options.namespace
        self.operator = Operator(reconciler, namespace, configuration)
        identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self.candidate = Candidate(self.client, options.namespace, identity)

    def run(self) -> int:
        """Run until SIGTERM (return 0) or until the lease is lost (return 1, for a restart)."""
        server = serve(self.metrics, self.options.metrics_port, self.operator.alive)
        log.info("metrics and health on port %d", server.server_port)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        if self.options.leader_elect and not wait_to_lead(
            self.candidate, self.stop, self.operator.record_heartbeat
        ):
            return 0
        self.metrics.leader.set(1)
        asyncio.run(self._lead())
        server.shutdown()
        if self.options.leader_elect and not self.lease_lost:
            self.candidate.release()
        return 1 if self.lease_lost else 0

    async def _lead(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def on_lost() -> None:
            self.lease_lost = True
            loop.call_soon_threadsafe(stop.set)

        if self.options.leader_elect:
            threading.Thread(
                target=keep_leading,
                args=(self.candidate, self.stop, on_lost),
                name="lease",
                daemon=True,
            ).start()
        await self.operator.run(stop)
        self.stop.set()


if __name__ == "__main__":
    sys.exit(main())
