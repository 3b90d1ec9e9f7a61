"""Start of the benchmark's processes on one node: `python3 -m everstep.interconnect.launch`.

torchrun is not used: its store at a fixed address needs libuv, which Debian's PyTorch lacks, and the group never
changes here. A process that fails ends the others on its node; their peers then fail too.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

PROGRAM = "everstep.interconnect.benchmark"
POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0


def main(arguments: "list[str] | None" = None) -> int:
    """Start the processes, wait for them, and return the first exit code that is not 0."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(prog="everstep.interconnect.launch")
    parser.add_argument("--nodes", type=int, required=True, help="number of nodes")
    parser.add_argument("--processes", type=int, required=True, help="processes of this node")
    parser.add_argument("--node-rank", type=int, required=True, help="rank of this node")
    parser.add_argument("--address", required=True, help="host of the first node")
    parser.add_argument("--port", type=int, required=True, help="free port on the first node")
    options, program = parser.parse_known_args(arguments)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for local_rank in range(options.processes):
            variables = {**os.environ, **group_variables(options, local_rank)}
            command = [sys.executable, "-m", PROGRAM, *program]
            processes.append(subprocess.Popen(command, env=variables))
        return wait(processes)
    finally:
        stop(processes)


def group_variables(options: argparse.Namespace, local_rank: int) -> "dict[str, str]":
    """Return the environment variables from which torch.distributed forms the group."""
    values = {
        "RANK": options.node_rank * options.processes + local_rank,
        "WORLD_SIZE": options.nodes * options.processes,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": options.processes,
        "MASTER_ADDR": options.address,
        "MASTER_PORT": options.port,
    }
    return {name: str(value) for name, value in values.items()}


def wait(processes: "Sequence[subprocess.Popen[bytes]]") -> int:
    """Wait until all processes have ended or one has failed; return its exit code, or 0.

    For a signal, the code is 128 plus its number, as in a shell: 137 if memory ran out.
    """
    while True:
        codes = [process.poll() for process in processes]
        failure_codes = [code for code in codes if code]
        if failure_codes or None not in codes:
            code = failure_codes[0] if failure_codes else 0
            return code if code >= 0 else 128 - code
        time.sleep(POLL_SECONDS)


def stop(processes: "Sequence[subprocess.Popen[bytes]]") -> None:
    """Stop the processes that are still running."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
