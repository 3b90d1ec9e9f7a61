"""Run Pulumi programs on the twin: `python -m cloudtwin pulumi up`, then `python -m cloudtwin down`."""

import argparse
import os
import subprocess
import sys
from contextlib import suppress

import yaml

from cloudtwin.errors import TwinError
from cloudtwin.nodes import Twin, leftovers
from cloudtwin.paths import cache_directory
from cloudtwin.progress import Lines
from cloudtwin.providers import install
from cloudtwin.providers.install import CLOUDS
from cloudtwin.pulumi import install_plugins
from cloudtwin.toolchain import ensure_tools


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudtwin", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    pulumi = commands.add_parser("pulumi", help="run Pulumi with the twin's clouds")
    pulumi.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of pulumi")
    commands.add_parser("status", help="show the twin and its machines")
    commands.add_parser("down", help="remove the twin and all of its machines")
    commands.add_parser("doctor", help="show what stopped twins have left on this host")
    arguments = parser.parse_args()
    try:
        if arguments.command == "pulumi":
            return run_pulumi(arguments.arguments)
        if arguments.command == "down":
            Twin.open().down(Lines())
        elif arguments.command == "doctor":
            print(yaml.safe_dump([leftover.as_value() for leftover in leftovers()]))
        else:
            print(yaml.safe_dump(_status(), sort_keys=False))
    except TwinError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def run_pulumi(arguments: list[str]) -> int:
    """Run Pulumi with the twin's providers for every cloud whose SDK is installed; return its exit code."""
    program = ensure_tools(["pulumi"], Lines())["pulumi"]
    home = cache_directory() / "pulumi-home"
    variables = install_plugins(home, program)
    for cloud in CLOUDS:
        with suppress(TwinError):  # its SDK is not installed
            install(home, cloud)
    return subprocess.run([program, *arguments], env=os.environ | variables, check=False).returncode


def _status() -> dict[str, object]:
    status = Twin.open().status()
    machines = {
        machine.spec.name: {
            "power": str(machine.power),
            "connected": machine.connected,
            "ready": machine.ready,
        }
        for machine in status.machines
    }
    return {"name": status.name, "api_ready": status.api_ready, "machines": machines}


if __name__ == "__main__":
    sys.exit(main())
