"""Join a member to its cluster and write etcd's configuration: `python3 -m etcd --config FILE -- ETCD_FLAGS`."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

from etcd.gateway import Credentials, EtcdError, Peers
from etcd.no_data_server import NoDataServer
from etcd.rejoin import LOST_QUORUM, etcd_configuration, join


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m etcd", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="configuration file to write")
    parser.add_argument(
        "--credentials",
        type=Path,
        help="folder of the Secret etcd-members; without it, etcd has neither TLS nor users",
    )
    parser.add_argument(
        "flags",
        nargs="+",
        help="flags of etcd, after --, written as --NAME=VALUE",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    """Join the cluster, then write etcd's configuration file."""
    args = parse(arguments)
    flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in args.flags)
    initial_cluster = dict(pair.partition("=")[::2] for pair in flags["initial-cluster"].split(","))
    has_data = (Path(flags["data-dir"]) / "member").exists()
    address = urlsplit(flags["listen-client-urls"].partition(",")[0])
    credentials = Credentials(folder=args.credentials) if args.credentials else None

    def serve(name: str) -> AbstractContextManager[NoDataServer]:
        context = credentials.server_context() if credentials else None
        return NoDataServer(name, address.hostname or "", address.port or 0, context).serve()

    peers = _peers(flags, initial_cluster, credentials)
    try:
        start_action = join(flags["name"], initial_cluster, peers, has_data=has_data, serve=serve)
    except EtcdError as error:
        sys.exit(f"the membership cannot be changed: {error}; {LOST_QUORUM}")
    # Renamed into place: etcd must never read half a file.
    temporary = args.config.with_suffix(".new")
    temporary.write_text(
        json.dumps(etcd_configuration(flags, start_action), indent=2), encoding="utf-8"
    )
    temporary.rename(args.config)


def _peers(
    flags: Mapping[str, str], initial_cluster: Mapping[str, str], credentials: Credentials | None
) -> Peers:
    """Return the other members; all members listen for clients on the same port."""
    advertised = urlsplit(flags["advertise-client-urls"])
    hosts = [
        urlsplit(url).hostname for name, url in initial_cluster.items() if name != flags["name"]
    ]
    addresses = [f"{advertised.scheme}://{host}:{advertised.port}" for host in hosts]
    return Peers(addresses=addresses, credentials=credentials)


if __name__ == "__main__":
    main(sys.argv[1:])
