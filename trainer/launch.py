r"""The image's entry point: one node's agent.

It takes what the ElasticJob controllers inject and torchrun's flags:

    python3 -m trainer.launch --rdzv_backend=etcd --rdzv_endpoint=HOST:PORT --rdzv_id=JOB \
        --nnodes=MIN:MAX --nproc_per_node=1 -m trainer.train --model resnet18 ...

`--rdzv_backend=etcd` is served by Everstep's own `etcd-v3`. What torchrun alone gets wrong on spot
machines is cured here: it exits with codes that the controllers understand, a drained node leaves
instead of ending the job, and workers are forked from a process that has imported torch already,
which takes seconds off a recovery.

Exit codes: 0 the run is complete (also when it was before this node came), 143 the node was told to
go, 138 try this pod again, 1 another try would fail too.
"""

import contextlib
import functools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everstep.elastic import channel
from everstep.elastic.supervisor import supervise
from everstep.elastic.worker import RESTART
from everstep.errors import EverstepError
from trainer.settings import Settings, parse, result

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousParameters

    from everstep.elastic.rendezvous import EtcdV3Handler

log = logging.getLogger("trainer.launch")

DONE, PERMANENT, AGAIN, NOTICE = 0, 1, 138, 143
"""Exit codes; of the last three the upstream controller takes 138 and 143 as worth a new pod."""

GRACE_SECONDS = 25.0
"""From SIGTERM to the end of this process; Kubernetes kills after terminationGracePeriodSeconds, 30 by default."""

LOOK_AGAIN_SECONDS = 10.0  # how often the main thread looks whether the run is over

HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""Memory in huge pages, where the kernel leaves that to the program: steps are shorter, and a worker that is
killed is gone, to its peers, in half the time. Its sockets close only when its memory has been given back."""

TRAINING_MODULE = "trainer.train"
PRELOADED = ("torch._dynamo", "torchvision", "everstep.elastic.live_worker", "trainer.state")
OURS = ("etcd", "etcd-v2", "etcd-v3")  # the names under which our rendezvous answers


class Launcher:
    """Runs torchrun's agent in a thread, so that the main thread can meet signals."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        self._handler: EtcdV3Handler | None = None
        self._done = threading.Event()
        self._noticed = threading.Event()
        self._wake = threading.Event()
        self._code = AGAIN

    def run(self) -> int:
        """Until the run is complete, this node has left, or nothing helps; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        threading.Thread(target=self._run_agent, name="torchrun-agent", daemon=True).start()
        while not self._wake.wait(LOOK_AGAIN_SECONDS):
            if self._over():
                return DONE
        return self._code if self._done.is_set() else self._leave()

    def _over(self) -> bool:
        """Whether the run was completed without this node's own agent ending by it.

        A peer that dies in torchrun's exit barrier would keep the others there for five minutes,
        and a node that came a moment too late would wait for peers that have all gone home.
        """
        if self._handler is None:
            return False
        if self._handler.ended and self._handler.ended.finished:
            return not self._done.wait(LOOK_AGAIN_SECONDS)
        return not self._handler.in_group and finished_already(self._arguments) is not None

    def _on_signal(self, number: int, frame: object) -> None:
        del number, frame
        self._noticed.set()
        self._wake.set()

    def _leave(self) -> int:
        """The node is told to go: stop after a step that all agree on, depart, and be gone in time."""
        deadline = time.monotonic() + float(os.environ.get("EVERSTEP_GRACE_SECONDS", GRACE_SECONDS))
        log.warning("this node has been told to go: the workers stop after a step, then it leaves")
        if self._handler:
            self._handler.leave()
            departed = self._handler.wait_departed(max(0.0, deadline - time.monotonic()))
            log.warning(
                "left %s", "in order" if departed else "at the deadline: steps are repeated"
            )
        return DONE if self._done.is_set() and self._code == DONE else NOTICE

    def _run_agent(self) -> None:
        from everstep.elastic.etcd import EtcdUnreachableError

        try:
            self._code = self._launch()
        except EtcdUnreachableError as error:
            log.error("%s", error)
            self._code = AGAIN
        except EverstepError as error:
            log.error("%s", error)
            self._code = PERMANENT
        except SystemExit as end:  # argparse has said what is wrong
            self._code = end.code if isinstance(end.code, int) else PERMANENT
        except Exception:
            log.exception("torchrun's agent ended")
            self._code = AGAIN
        finally:
            self._done.set()
            self._wake.set()

    def _launch(self) -> int:
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import elastic_launch

        from everstep.elastic.rendezvous import RunOverError

        config, entry, arguments = self._configure()
        try:
            elastic_launch(config, entry)(*arguments)
        except RunOverError:
            return self._ended()
        except ChildFailedError as error:
            log.error("the workers failed too often: %s", error)
            return PERMANENT
        return self._ended()

    def _ended(self) -> int:
        """What the end of torchrun's agent means."""
        ended = self._handler.ended if self._handler else None
        if ended is None:
            return NOTICE if self._noticed.is_set() else DONE
        if ended.finished:
            log.info("the run is complete: %s", ended.reason)
            return DONE
        log.error("the run has failed: %s", ended.reason)
        return PERMANENT

    def _configure(self) -> tuple[Any, Any, list[str]]:
        from torch.distributed import run as torchrun

        from everstep.elastic import rendezvous
        from everstep.elastic.torchrun import register

        parser = torchrun.get_args_parser()
        parser.allow_abbrev = (
            False  # else the training program's --run is "ambiguous" with torchrun's own
        )
        options = parser.parse_args(self._arguments)
        if options.rdzv_backend in OURS:
            if options.rdzv_backend != rendezvous.BACKEND:
                log.info("--rdzv_backend=%s is served by everstep's etcd-v3", options.rdzv_backend)
            options.rdzv_backend = rendezvous.BACKEND
        if not any(part.replace("_", "-").startswith("--max-restarts") for part in self._arguments):
            options.max_restarts = 1_000_000  # each change of the group costs one
        options.local_addr = options.local_addr or os.environ.get("POD_IP")
        register(self._create_handler)
        quieten_torch()
        config, command, arguments = torchrun.config_from_args(options)
        if chosen := settings_of(self._arguments):
            workers = "restart" if chosen.mode == "restart" else "live"
            config.rdzv_configs.setdefault("workers", workers)
        if options.module and not options.no_python:
            config.start_method = "forkserver"
            lives = config.rdzv_configs.get("workers") == "live"
            entry = run_supervised if lives else run_module
            return config, entry, [options.training_script, *options.training_script_args]
        return config, command, arguments

    def _create_handler(self, parameters: "RendezvousParameters") -> "EtcdV3Handler":
        from everstep.elastic.torchrun import create

        self._handler = create(parameters)
        if self._noticed.is_set():
            self._handler.leave()
        return self._handler


def quieten_torch() -> None:
    """Keep torchrun's agent from reporting an ordinary change of the group as a disaster.

    Not only for the reader: torch's formatter imports torch._dynamo to print a traceback, and an
    agent that is to start its workers again would spend seconds on that.
    """
    logger = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
    logger.addFilter(_without_traceback)
    logger.addFilter(lambda record: f"exitcode: {RESTART}" not in record.getMessage())
    logger.addFilter(lambda record: "signal handlers" not in record.getMessage())


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = record.exc_text = None
    return True


def run_module(name: str, *arguments: str) -> None:
    """A worker process's whole life: run a module as `python3 -m` would, forked from a warm process."""
    import runpy

    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_supervised(name: str, *arguments: str) -> None:
    """As `run_module`, and again where that crashes: the node's other workers live on."""
    supervise(functools.partial(run_module, name, *arguments))


def finished_already(arguments: Sequence[str]) -> str | None:
    """The accuracy of a run that was complete before this node came, as words; None where it was not."""
    settings = settings_of(arguments)
    if settings and (found := result(settings)):
        return f"{settings.run} holds its result, accuracy {found.get('accuracy'):.4f}"
    return None


def settings_of(arguments: Sequence[str]) -> Settings | None:
    """The training program's settings, where it is ours and they are right; it will complain itself."""
    if TRAINING_MODULE in arguments:
        with contextlib.suppress(EverstepError, SystemExit):
            return parse(list(arguments[arguments.index(TRAINING_MODULE) + 1 :]))
    return None


def warm_up() -> None:
    """Start the process that workers are forked from; it imports while this one looks for its peers."""
    os.environ.setdefault(channel.SOCKET_VARIABLE, str(channel.default_socket_path()))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a worker raises it when it knows its neighbours
    os.environ.setdefault("USE_LIBUV", "0")  # Debian's torch is built without it
    os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
    os.environ.setdefault("GLIBC_TUNABLES", HUGE_PAGES)  # read when a process begins
    multiprocessing.set_forkserver_preload(list(PRELOADED))
    forkserver.ensure_running()


def main() -> None:
    """Run, and end with the code that says how."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    arguments = sys.argv[1:]
    if why := finished_already(arguments):
        log.info("nothing to do: %s", why)
        sys.exit(DONE)
    warm_up()
    code = Launcher(arguments).run()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(KeyError):
        Path(os.environ[channel.SOCKET_VARIABLE]).unlink(missing_ok=True)
    os._exit(code)  # daemon threads may wait for etcd or for peers that are gone


if __name__ == "__main__":
    main()
