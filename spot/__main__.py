"""The command `python3 -m spot`, which watches the node of its pod until SIGTERM or SIGINT."""

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
from spot.client import CREDENTIALS, ApiServer
from spot.metadata import AwsMetadata, AzureMetadata, Metadata
from spot.watcher import Watcher

POLL_SECONDS = 1.0  # Azure's recommendation; a slower poll would waste too much of its 30 s
log = logging.getLogger("spot")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m spot", description=__doc__)
    parser.add_argument("--node", default=os.environ.get("NODE_NAME"), help="name of the node")
    parser.add_argument(
        "--cloud", choices=("auto", "aws", "azure"), default="auto", help="cloud of the node"
    )
    parser.add_argument(
        "--metadata", default=metadata.LINK_LOCAL, help="address of the metadata service"
    )
    parser.add_argument("--api", default=_api_address(), help="address of the API server")
    parser.add_argument(
        "--credentials", type=Path, default=CREDENTIALS, help="folder with token and ca.crt"
    )
    parser.add_argument(
        "--drain",
        choices=("late", "always"),
        default="late",
        help="late: first leave a sixth of the notice to a cloud that promises to drain the node; "
        "always: drain immediately",
    )
    args = parser.parse_args(arguments)
    if not args.node or not args.api:
        parser.error("--node and --api are required outside a pod")
    return args


def main(arguments: Sequence[str]) -> None:
    """Watch until SIGTERM or SIGINT."""
    args = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: stop.set())
    service = _metadata_service(args, stop)
    if service is None:
        return
    client = ApiServer(
        base_url=args.api,
        node_name=args.node,
        token_file=args.credentials / "token",
        tls=ssl.create_default_context(cafile=str(args.credentials / "ca.crt")),
    )
    watcher = Watcher(service, client, time.time, cloud_drains=args.drain == "late")
    log.info("watching %s of %s", type(service).__name__, args.node)
    while not stop.is_set():
        watcher.step()
        stop.wait(POLL_SECONDS)


def _metadata_service(args: argparse.Namespace, stop: threading.Event) -> Metadata | None:
    """Return the selected or the detected metadata service; None if a signal stops the watcher first."""
    if args.cloud == "aws":
        return AwsMetadata(args.metadata)
    if args.cloud == "azure":
        return AzureMetadata(args.metadata)
    while not stop.is_set():
        service = metadata.detect(args.metadata)
        if service is not None:
            return service
        log.info("no metadata service responds at %s yet", args.metadata)
        stop.wait(POLL_SECONDS)
    return None


def _api_address() -> str | None:
    """Return the API server's address from the environment that the kubelet sets in every pod."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
    if not host or not port:
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


if __name__ == "__main__":
    main(sys.argv[1:])
