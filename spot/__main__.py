"""`python3 -m spot`: watches the node that the pod runs on, until it is told to end."""

import argparse
import logging
import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from spot import metadata
from spot.cluster import CREDENTIALS, ApiServer
from spot.metadata import AwsMetadata, AzureMetadata, Metadata
from spot.watcher import Watcher

POLL_SECONDS = 1.0  # as Azure recommends; of its 30 s, a slower poll would waste too many
log = logging.getLogger("spot")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="spot", description=__doc__)
    parser.add_argument("--node", default=os.environ.get("NODE_NAME"), help="name of the node")
    parser.add_argument("--cloud", choices=("auto", "aws", "azure"), default="auto")
    parser.add_argument("--metadata", default=metadata.LINK_LOCAL, help="the metadata service")
    parser.add_argument("--api", default=_in_cluster(), help="address of the API server")
    parser.add_argument(
        "--credentials", type=Path, default=CREDENTIALS, help="folder with token and ca.crt"
    )
    parser.add_argument(
        "--drain",
        choices=("late", "always"),
        default="late",
        help="late: leave a sixth of the notice to a cloud that promises to drain the node itself",
    )
    said = parser.parse_args(words)
    if not said.node or not said.api:
        parser.error("--node and --api are needed outside of a pod")
    return said


def main(words: Sequence[str]) -> None:
    """Watch until SIGTERM."""
    said = parse(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    service = _service(said, ending)
    if service is None:
        return
    cluster = ApiServer(
        base=said.api,
        node_name=said.node,
        token_file=said.credentials / "token",
        tls=ssl.create_default_context(cafile=str(said.credentials / "ca.crt")),
    )
    watcher = Watcher(service, cluster, time.time, cloud_drains=said.drain == "late")
    log.info("watching %s of %s", type(service).__name__, said.node)
    while not ending.is_set():
        watcher.step()
        ending.wait(POLL_SECONDS)


def _service(said: argparse.Namespace, ending: threading.Event) -> Metadata | None:
    """Give the metadata service that was named or that answers; None when told to end first."""
    if said.cloud == "aws":
        return AwsMetadata(said.metadata)
    if said.cloud == "azure":
        return AzureMetadata(said.metadata)
    while not ending.is_set():
        service = metadata.find(said.metadata)
        if service is not None:
            return service
        log.info("no metadata service answers at %s yet", said.metadata)
        ending.wait(POLL_SECONDS)
    return None


def _in_cluster() -> str | None:
    """Give the API server's address as the kubelet tells it to every pod."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{what}") for what in ("HOST", "PORT"))
    if not host or not port:
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


if __name__ == "__main__":
    main(sys.argv[1:])
