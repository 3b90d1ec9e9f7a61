"""Import a Pulumi program's modules, then wait for the language host to pass the run, and run the program.

Usage: python -u -P -m cloudtwin.pulumi.waiting_program LISTENER ALIVE DIRECTORY MODULE..., with the file
descriptors of the socket on which the host connects, and of a pipe that reaches its end when the command
that started this process ends.
"""

import gc
import importlib
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Sequence

from cloudtwin.pulumi import run_program
from cloudtwin.pulumi.prestart import ACCEPTED


def import_modules(directory: str, modules: Sequence[str]) -> None:
    """Import modules from a program's folder, as in its run."""
    sys.path.insert(0, directory)
    for module in modules:
        importlib.import_module(module)
    sys.path.remove(directory)


def wait_for_run(listener: socket.socket) -> socket.socket:
    """Wait for a run; adopt its output streams, directory, variables and arguments. Return the host's connection."""
    connection, _ = listener.accept()
    listener.close()
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
    with connection.makefile() as lines:
        run = json.loads(lines.readline())
    if run["python"] != sys.executable:
        sys.exit()
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(run["directory"])
    os.environ.clear()
    os.environ.update(run["environment"])
    sys.argv = [sys.argv[0], *run["arguments"]]
    connection.sendall(ACCEPTED)
    return connection


def exit_at_end_of(stream: int | socket.socket) -> None:
    """Start a thread that exits the process when a stream on which nothing is sent reaches its end."""

    def wait() -> None:
        select.select([stream], [], [])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Import the modules, wait, run the program, and report its exit code."""
    gc.set_threshold(run_program.NEW_OBJECTS_PER_COLLECTION)
    _, listener, alive, directory, *modules = sys.argv
    exit_at_end_of(int(alive))
    import_modules(directory, modules)
    host = wait_for_run(socket.socket(fileno=int(listener)))
    exit_at_end_of(host)
    code = run_program.main()
    sys.stdout.flush()
    sys.stderr.flush()
    host.sendall(f"{code}\n".encode())
    run_program.end(code)


if __name__ == "__main__":
    main()
