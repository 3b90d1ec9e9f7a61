"""The controller's process: read the flags, stand by for the lease, then make passes until asked to end."""

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

from controller.cluster import Cluster, settings_for
from controller.leader import Candidate, keep_leading, wait_to_lead
from controller.metrics import Metrics, serve
from controller.operator import Operator
from controller.reconcile import Reconciler
from controller.scaling import Patience

log = logging.getLogger("controller")

DEFAULT_NAMESPACE = "elastic-job"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m controller",
        description="Runs ElasticJobs: makes their workers and replaces those that are lost.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--namespace", default=os.environ.get("POD_NAMESPACE", DEFAULT_NAMESPACE),
        help="the namespace whose ElasticJobs are run (default: $POD_NAMESPACE, else %(default)s)",
    )  # fmt: skip
    where.add_argument(
        "--all-namespaces",
        action="store_true",
        help="run the ElasticJobs of every namespace; needs a ClusterRole",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=8080,
        help="port of /metrics and /healthz; 0 takes any (default: %(default)s)",
    )
    parser.add_argument(
        "--leader-elect",
        action="store_true",
        help="of several controllers let one act (by a Lease in its namespace)",
    )
    parser.add_argument(
        "--kubeconfig",
        help="how to reach the cluster (default: the pod's own account, else $KUBECONFIG)",
    )
    patience = Patience()
    for name, seconds, what in (
        (
            "--scale-down-after",
            patience.down_seconds,
            "a worker that waits for a machine is given up",
        ),
        ("--scale-up-after", patience.up_seconds, "room for another worker is believed in"),
        ("--ask-after", patience.ask_seconds, "a job with fewer workers than may be asks for one"),
    ):
        parser.add_argument(
            name, type=float, default=seconds, metavar="SECONDS",
            help=f"for jobs that follow capacity: when {what} (default: %(default)g)",
        )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="log more")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller; return its exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for noisy in ("kopf", "urllib3", "kubernetes"):
        logging.getLogger(noisy).setLevel(logging.INFO if options.verbose else logging.WARNING)
    return Process(options).run()


class Process:
    """One running controller: its threads, its signals and its end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.stop = threading.Event()
        self.lost = False
        self.metrics = Metrics()
        settings = partial(settings_for, options.kubeconfig)
        self.cluster = Cluster(client.ApiClient(settings()))
        patience = Patience(
            down_seconds=options.scale_down_after,
            up_seconds=options.scale_up_after,
            ask_seconds=options.ask_after,
        )
        reconciler = Reconciler(self.cluster, self.metrics, patience=patience)
        namespace = None if options.all_namespaces else options.namespace
        self.operator = Operator(reconciler, namespace, settings)
        identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self.candidate = Candidate(self.cluster, options.namespace, identity)

    def run(self) -> int:
        """Serve, lead, reconcile; 0 when asked to end, 1 when the lease was lost (start anew to stand by)."""
        server = serve(self.metrics, self.options.metrics_port, self.operator.alive)
        log.info("metrics and health on port %d", server.server_port)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        if self.options.leader_elect and not wait_to_lead(
            self.candidate, self.stop, self.operator.still_here
        ):
            return 0
        self.metrics.leads.set(1)
        asyncio.run(self._lead())
        server.shutdown()
        if self.options.leader_elect and not self.lost:
            self.candidate.give_back()
        return 1 if self.lost else 0

    async def _lead(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            self.lost = True
            loop.call_soon_threadsafe(stop.set)

        if self.options.leader_elect:
            threading.Thread(
                target=keep_leading,
                args=(self.candidate, self.stop, end),
                name="lease",
                daemon=True,
            ).start()
        await self.operator.run(stop)
        self.stop.set()


if __name__ == "__main__":
    sys.exit(main())
