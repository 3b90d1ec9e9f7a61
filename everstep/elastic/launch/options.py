"""The launcher's command line, parsed without torch, so that a mistake is reported immediately.

There are few options. torchrun's own options are accepted, too, and passed on to it. Their names may have
dashes, or underscores as in the arguments that controllers of elastic jobs inject.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep.elastic.launch.programs import EXECUTABLE, MODULE, SCRIPT
from everstep.errors import EverstepError

OUR_BACKENDS = ("etcd", "etcd-v2", "etcd-v3")
"""Values of torchrun's `--rdzv-backend` for which Everstep's rendezvous on etcd v3 is used."""

TORCHRUN_OPTIONS = (
    "rdzv-conf", "max-restarts", "monitor-interval", "start-method", "event-log-handler", "role",
    "log-dir", "redirects", "tee", "log-line-prefix-template", "local-ranks-filter",
    "duplicate-stdout-filters", "duplicate-stderr-filters", "node-rank", "master-addr", "master-port",
    "local-addr", "logs-specs", "numa-binding", "signals-to-handle", "shutdown-timeout",
)  # fmt: skip
"""torchrun's options with a value that are passed on to it."""

TORCHRUN_FLAGS = ("virtual-local-rank",)
"""torchrun's options without a value that are passed on to it."""

PYTHONS = ("python", "python3")

DESCRIPTION = """\
Start the workers of a training program on this node, and restart them after a crash. Nodes may join,
leave and fail while the program trains; it must use everstep.elastic: see docs/elastic-script.md."""

EPILOG = """\
examples:
  everstep launch train.py --epochs 3                       one worker, here
  everstep launch --nproc-per-node 2 train.py               two workers, here
  everstep launch --nnodes 1:4 --rendezvous-endpoint etcd.example:2379 --run-id mnist train.py
                                                            on each machine: 1 to 4 nodes train
  everstep launch --nnodes 4 ...                            exactly 4: waits for a lost node

On SIGTERM or Ctrl-C the node leaves after a step that all workers agree on.
torchrun's options (--rdzv-endpoint, --rdzv-id, --max-restarts, ...) are accepted, too;
--tee 3 --log-dir logs writes each worker's output to a file and prefixes its lines on the screen.

exit codes:
  0 the run is complete   143 this node had to leave   138 try again   1 or 2 another try would fail"""


@dataclass(frozen=True)
class LaunchOptions:
    """The options of one launcher.

    Attributes:
        nnodes: number of nodes, as torchrun takes it: `N` or `MIN:MAX`.
        workers: number of workers of this node, as torchrun takes it.
        endpoint: `HOST:PORT` of etcd, several separated by commas; None to start one here.
        run_id: name by which the nodes of one run find each other.
        backend: value of torchrun's `--rdzv-backend`.
        preload: modules to import before workers are forked.
        kind: kind of the program, see `programs`.
        program: the module, script or executable.
        arguments: arguments of the program.
        torchrun: other options of torchrun.
    """

    nnodes: str
    workers: str
    endpoint: str | None
    run_id: str
    backend: str
    preload: tuple[str, ...]
    kind: str
    program: str
    arguments: tuple[str, ...]
    torchrun: tuple[str, ...]

    @property
    def supervised(self) -> bool:
        """True if Everstep's rendezvous forms the groups: a crashed worker is then restarted without the others."""
        return self.backend in OUR_BACKENDS

    def torchrun_arguments(self, endpoint: str) -> list[str]:
        """Return torchrun's command line with this endpoint of the rendezvous."""
        flags = {MODULE: ["--module"], EXECUTABLE: ["--no-python"], SCRIPT: []}
        return [
            f"--nnodes={self.nnodes}",
            f"--nproc-per-node={self.workers}",
            f"--rdzv-backend={'etcd-v3' if self.supervised else self.backend}",
            f"--rdzv-endpoint={endpoint}",
            f"--rdzv-id={self.run_id}",
            *self.torchrun,
            *flags[self.kind],
            self.program,
            *self.arguments,
        ]


def parse(arguments: Sequence[str]) -> LaunchOptions:
    """Parse a command line; argparse itself ends the process at an unknown option.

    Raises:
        EverstepError: a value is invalid, an option is missing, or there is no such program.
    """
    parsed = _parser().parse_args(list(arguments))
    backend = "etcd-v3" if parsed.standalone else parsed.backend or "etcd-v3"
    endpoint = None if parsed.standalone else parsed.endpoint
    if backend in OUR_BACKENDS:
        _check_rendezvous(endpoint, parsed.run_id, parsed.nnodes, has_backend=bool(parsed.backend))
    _check_nodes(parsed.nnodes or "1")
    _check_workers(parsed.workers)
    kind, program, arguments = _program(parsed.program, parsed.arguments, parsed)
    return LaunchOptions(
        nnodes=parsed.nnodes or "1",
        workers=parsed.workers,
        endpoint=endpoint,
        run_id=parsed.run_id or ("run" if backend in OUR_BACKENDS else "none"),
        backend=backend,
        preload=tuple(parsed.preload),
        kind=kind,
        program=program,
        arguments=tuple(arguments),
        torchrun=tuple(_torchrun_options(parsed)),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep launch",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="everstep launch [OPTIONS] SCRIPT.py|-m MODULE [ARGUMENT ...]",
    )
    add = parser.add_argument
    add(
        "--nnodes",
        default=os.environ.get("PET_NNODES"),
        metavar="N|MIN:MAX",
        help="nodes that train together: exactly N, or MIN to MAX (default: 1)",
    )
    add(
        *_spellings("nproc-per-node"),
        dest="workers",
        default=os.environ.get("PET_NPROC_PER_NODE", "1"),
        metavar="P",
        help="workers on this node; `gpu`: one for each GPU (default: 1)",
    )
    add(
        "--rendezvous-endpoint",
        *_spellings("rdzv-endpoint"),
        dest="endpoint",
        default=os.environ.get("PET_RDZV_ENDPOINT"),
        metavar="HOST:PORT",
        help="address of the etcd through which the nodes find each other; "
        "without it, this launcher starts one on 127.0.0.1",
    )
    add(
        "--run-id",
        *_spellings("rdzv-id"),
        dest="run_id",
        default=os.environ.get("PET_RDZV_ID"),
        metavar="ID",
        help="name of the run, the same on all of its nodes; required with an endpoint",
    )
    add(
        "--preload",
        action="append",
        default=[],
        metavar="MODULE",
        help="import a module before workers are forked, which shortens each start; repeatable",
    )
    _add_hidden(parser)
    _add_program(parser)
    return parser


def _add_program(parser: argparse.ArgumentParser) -> None:
    """Add the training program and its arguments."""
    add = parser.add_argument
    add("-m", "--module", action="store_true", help="the program is a module, as in python3 -m")
    add("program", metavar="SCRIPT.py", help="the training program: a script, or an executable")
    add("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="its arguments")


def _add_hidden(parser: argparse.ArgumentParser) -> None:
    """Add torchrun's other options, which the help only mentions."""
    backend = os.environ.get("PET_RDZV_BACKEND")
    hidden = argparse.SUPPRESS
    parser.add_argument(*_spellings("rdzv-backend"), dest="backend", default=backend, help=hidden)
    for name in ("no-python", "standalone", "run-path", *TORCHRUN_FLAGS):
        parser.add_argument(*_spellings(name), action="store_true", help=hidden)
    for name in TORCHRUN_OPTIONS:
        short = {"redirects": ["-r"], "tee": ["-t"]}.get(name, [])
        parser.add_argument(*short, *_spellings(name), help=hidden)


def _spellings(name: str) -> list[str]:
    """Return an option's spellings with dashes and with underscores."""
    return sorted({f"--{name}", f"--{name.replace('-', '_')}"})


def _torchrun_options(parsed: argparse.Namespace) -> list[str]:
    """Return torchrun's own options in the command line."""
    values = vars(parsed)
    with_value = {name: values[name.replace("-", "_")] for name in TORCHRUN_OPTIONS}
    flags = [f"--{name}" for name in TORCHRUN_FLAGS if values[name.replace("-", "_")]]
    return [f"--{name}={value}" for name, value in with_value.items() if value is not None] + flags


def _check_rendezvous(
    endpoint: str | None, run_id: str | None, nnodes: str | None, *, has_backend: bool
) -> None:
    """Check that a node with a shared etcd specifies the run and its size."""
    if endpoint is None:
        if has_backend:
            raise EverstepError(
                "--rdzv-backend is given without --rendezvous-endpoint",
                "Add --rendezvous-endpoint HOST:PORT, or leave the backend out to start an etcd here.",
            )
        return
    if not endpoint:  # such as "$ETCD" of an unset variable: each node would train a run of its own
        raise EverstepError(
            "--rendezvous-endpoint is empty",
            "Write HOST:PORT of etcd, or leave the option out to start an etcd here.",
        )
    missing = [name for name, value in (("--run-id", run_id), ("--nnodes", nnodes)) if not value]
    if missing:
        raise EverstepError(
            f"with --rendezvous-endpoint {endpoint}, {' and '.join(missing)} must be given",
            "Pass the same values on all nodes of a run, such as --run-id mnist --nnodes 1:4.",
        )


def _check_nodes(nnodes: str) -> None:
    minimum, colon, maximum = nnodes.partition(":")
    numbers = [minimum, maximum if colon else minimum]
    if not all(number.isdecimal() for number in numbers) or not (
        1 <= int(numbers[0]) <= int(numbers[1])
    ):
        raise EverstepError(
            f"--nnodes {nnodes} is not a number of nodes",
            "Write --nnodes 4 for exactly 4, or --nnodes 1:4 for 1 to 4.",
        )


def _check_workers(workers: str) -> None:
    if workers not in ("auto", "cpu", "gpu", "xpu") and not (
        workers.isdecimal() and int(workers) > 0
    ):
        raise EverstepError(
            f"--nproc-per-node {workers} is not a number of workers",
            "Write a number, such as 2, or `gpu` for one worker for each GPU.",
        )


def _program(
    name: str, arguments: list[str], parsed: argparse.Namespace
) -> tuple[str, str, list[str]]:
    """Return the kind of the program, its name and its arguments."""
    if parsed.no_python:
        return EXECUTABLE, name, arguments
    if parsed.module:
        return MODULE, name, arguments
    if name in PYTHONS and arguments[:1] == ["-m"] and len(arguments) > 1:
        return MODULE, arguments[1], arguments[2:]
    if name in PYTHONS and arguments and arguments[0].endswith(".py"):
        name, arguments = arguments[0], arguments[1:]
    path = Path(name)
    if path.is_file() and (name.endswith(".py") or not os.access(path, os.X_OK)):
        return SCRIPT, name, arguments
    if not name.endswith(".py") and shutil.which(name):
        return EXECUTABLE, name, arguments
    raise EverstepError(
        f"there is no program {name} in {Path.cwd()}",
        "Write the path of a script, or `-m` and the name of a module.",
    )


def error_text(error: EverstepError) -> str:
    """Return an error as the command line prints it: the problem, and the fix indented below it."""
    return "\n".join([f"error: {error.problem}", *(f"  {line}" for line in error.fix.splitlines())])


def requests_help(arguments: Sequence[str]) -> bool:
    """Return True if a command line is empty or begins with the option for help."""
    return not arguments or arguments[0] in ("-h", "--help")


def documented_options() -> list[argparse.Action]:
    """Return the options and arguments that the help describes."""
    return [action for action in _parser()._actions if action.help is not argparse.SUPPRESS]


def print_help() -> None:
    """Print the help on stdout."""
    _parser().print_help(sys.stdout)
