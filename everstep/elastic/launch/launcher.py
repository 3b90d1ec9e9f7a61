"""One node's agent: torchrun's agent with Everstep's rendezvous, supervision and orderly departure.

Differences from torchrun on spot machines: it exits with the codes that the controllers expect, a
drained node leaves instead of ending the job, and workers are forked from a process that has imported
torch already, which shortens a recovery by seconds.

Exit codes: 0 the run is complete (even if it was complete before this node joined) or the program ended without
joining it, 143 the node had to leave, 138 retry this pod, 1 or 2 a retry would fail, too. 1 as well if the program
leaves its training loop before the run is complete, or fails after it.

torch is imported inside functions, not at module level, so that a mistake in the command line is reported immediately.
"""

import contextlib
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everstep.catalog.names import (
    AGENT_VARIABLE,
    POD_IP_VARIABLE,
    POD_NAME_VARIABLE,
)
from everstep.elastic.launch import fork_server
from everstep.elastic.launch.deadline import (
    read_grace_seconds,
    read_node_deadline,
    seconds_to_leave,
)
from everstep.elastic.launch.local_etcd import LocalEtcd
from everstep.elastic.launch.options import (
    LaunchOptions,
    error_text,
    parse,
    print_help,
    requests_help,
)
from everstep.elastic.launch.programs import run_program, run_supervised
from everstep.elastic.membership.address import local_address_to
from everstep.elastic.recovery.worker_process import RESTART
from everstep.elastic.transport import channel
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousParameters

    from everstep.elastic.launch.rendezvous import LauncherRendezvous

log = logging.getLogger(__name__)

DONE, PERMANENT, RETRY, NOTICE = 0, 1, 138, 143
"""Exit codes; the upstream controller replaces pods that exit with 138 or 143."""

USAGE = 2
"""Exit code after an error before the agent starts, such as a mistake in the command line."""

RUN_CHECK_SECONDS = 10.0  # interval at which the main thread checks whether the run is over

MALLOC_VARIABLE, HUGE_PAGES = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"
"""Memory in huge pages, if the kernel leaves that choice to the program.

Steps are shorter, and the peers of a killed worker notice the loss in half the time, because its sockets close only
once its memory is released.
"""

PRELOADED_MODULES = ("torch._dynamo", "everstep.elastic.recovery.live_worker")
"""Modules that every worker needs, imported before workers are forked."""

TORCH_LOGGER = "torch.distributed.elastic.multiprocessing.api"  # reports how workers end

NO_LEAK_WARNING = "ignore:resource_tracker:UserWarning"
"""Filter for Python's resource tracker, which warns when it removes the semaphores of a node that left."""

FindResult = Callable[[], str | None]
"""Function that returns the result of a run that was complete before this node joined, or None."""


class Launcher:
    """Runner of torchrun's agent in a separate thread, so that the main thread can handle signals.

    Args:
        options: the command line.
        endpoint: `HOST:PORT` of etcd.
        find_result: function that returns the result of a complete run, for a program that records it.

    Raises:
        EverstepError: a variable of the environment is not valid.
    """

    def __init__(
        self, options: LaunchOptions, endpoint: str, find_result: FindResult = lambda: None
    ) -> None:
        self._options, self._endpoint, self._find_result = options, endpoint, find_result
        self._grace_seconds = read_grace_seconds()
        self._handler: LauncherRendezvous | None = None
        self._agent_ended = threading.Event()
        # Set by signal handlers, which may interrupt each other and a wait: an Event could deadlock.
        self._leave_requested = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._code = RETRY

    def run(self) -> int:
        """Run until the run is complete, this node has left, or an error is final; return the exit code."""
        threading.Thread(target=self._run_agent, name="torchrun-agent", daemon=True).start()
        while not self._is_woken():
            if self._is_run_over():
                return DONE
        return self._code if self._agent_ended.is_set() else self._leave()

    def _is_woken(self) -> bool:
        """Wait for a signal or the end of the agent; return False after `RUN_CHECK_SECONDS`."""
        try:
            self._wake.get(timeout=RUN_CHECK_SECONDS)
        except queue.Empty:
            return False
        return True

    def _is_run_over(self) -> bool:
        """Return True if the run is complete although this node's own agent has not ended.

        A peer that dies in torchrun's exit barrier would keep the others there for five minutes,
        and a node that joined too late would wait for peers that have all ended. Workers that still
        run, such as in the program's code after its loop, keep the node until they end.
        """
        if self._handler is None:
            return False
        if self._handler.outcome and self._handler.outcome.finished:
            return not self._handler.has_running_workers and not self._agent_ended.wait(
                RUN_CHECK_SECONDS
            )
        return not self._handler.has_been_assigned and self._find_result() is not None

    def handle_signals(self) -> None:
        """Leave the group when this process gets SIGTERM or SIGINT, even before `run`."""
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, self._on_signal)

    def _on_signal(self, signal_number: int, frame: object) -> None:
        del signal_number, frame
        self._leave_requested = True
        self._wake.put(None)

    def _leave(self) -> int:
        """Stop the workers after a step that all agree on, deregister, and end in time."""
        seconds = seconds_to_leave(self._grace_seconds, read_node_deadline(), time.time())
        deadline = time.monotonic() + seconds
        log.warning("this node must leave: the workers stop after a step, then it leaves")
        logging.getLogger(TORCH_LOGGER).setLevel(logging.CRITICAL)  # the end is expected
        if self._handler:
            self._handler.leave()
            log.warning("%s", self._await_departure(self._handler, deadline))
        return DONE if self._agent_ended.is_set() and self._code == DONE else NOTICE

    def _await_departure(self, handler: "LauncherRendezvous", deadline: float) -> str:
        """Wait until this node has left or there is nothing to leave; return a message with the result.

        Args:
            handler: the rendezvous.
            deadline: a monotonic time in seconds.
        """
        if not self._agent_ended.is_set() and handler.wait_departed(_seconds_until(deadline)):
            return "left gracefully"
        if handler.outcome and handler.outcome.finished:
            if self._agent_ended.wait(_seconds_until(deadline)):
                return "the run is complete: there was no group to leave"
            return (
                "the run is complete, but the program's code after it had not ended at the deadline"
            )
        if self._agent_ended.is_set() or handler.outcome or handler.failure:
            return "this node had no part in the run any longer: there was no group to leave"
        return "left at the deadline: steps are repeated"

    def _run_agent(self) -> None:
        from everstep.elastic.launch.rendezvous import NodeFailedError
        from everstep.elastic.membership.etcd_client import EtcdUnreachableError

        try:
            self._code = self._launch()
        except (EtcdUnreachableError, NodeFailedError) as error:
            log.error("%s", error_text(error))
            self._code = RETRY
        except EverstepError as error:
            log.error("%s", error_text(error))
            self._code = PERMANENT
        except SystemExit as end:  # argparse has printed the error
            self._code = end.code if isinstance(end.code, int) else PERMANENT
        except Exception:
            log.exception("torchrun's agent ended")
            self._code = RETRY
        finally:
            self._agent_ended.set()
            self._wake.put(None)

    def _launch(self) -> int:
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import elastic_launch

        from everstep.elastic.membership.rendezvous import RunOverError

        config, entry, arguments = self._configure()
        try:
            elastic_launch(config, entry)(*arguments)
        except RunOverError:
            return self._exit_code()
        except ChildFailedError as error:
            log.error("the workers failed too often: %s", error)
            return PERMANENT
        return self._exit_code()

    def _exit_code(self) -> int:
        """Return the exit code after the end of torchrun's agent."""
        outcome = self._handler.outcome if self._handler else None
        if self._handler and self._handler.has_late_failure:
            log.error(
                "the run is complete, but the program failed after it; see its output above for the reason"
            )
            return PERMANENT
        if outcome is None:
            return self._exit_code_without_outcome()
        if outcome.finished:
            log.info("the run is complete: %s", outcome.reason)
            return DONE
        log.error("the run has failed: %s", outcome.reason)
        return PERMANENT

    def _exit_code_without_outcome(self) -> int:
        """Return the exit code if all workers have ended without an error and the run has no outcome.

        Raises:
            Exception: the failure of this node, such as a worker that left its loop early.
        """
        if self._leave_requested:
            return NOTICE
        if not self._handler or not self._handler.has_been_assigned:
            self._warn_of_single_workers()
            return DONE
        if self._handler.failure:
            raise self._handler.failure
        log.error("the workers have ended, but etcd has not confirmed that the run is complete")
        return RETRY

    def _warn_of_single_workers(self) -> None:
        """Warn if a program ended without a group although there are several workers."""
        has_several_workers = self._options.nnodes != "1" or self._options.workers != "1"
        if has_several_workers and self._handler:
            log.warning(
                "the program ended without joining the run, so each worker ran on its own: "
                "it does not use everstep.elastic.Run"
            )

    def _configure(self) -> tuple[Any, Any, list[str]]:
        from torch.distributed import run as torchrun

        from everstep.elastic.membership.torchrun import register

        options = self._options
        parser = torchrun.get_args_parser()
        parser.allow_abbrev = False  # a program's --run would be "ambiguous" with torchrun's own
        parsed = parser.parse_args(options.torchrun_arguments(self._endpoint))
        if not any(option.startswith("--max-restarts") for option in options.torchrun):
            parsed.max_restarts = 1_000_000  # each change of the group counts as one
        parsed.local_addr = parsed.local_addr or os.environ.get(POD_IP_VARIABLE)
        register(self._create_handler)
        quiet_torch()
        config, _, _ = torchrun.config_from_args(parsed)
        config.start_method = "forkserver"
        entry = run_supervised if options.supervised else run_program
        return config, entry, [options.kind, options.program, *options.arguments]

    def _create_handler(self, parameters: "RendezvousParameters") -> "LauncherRendezvous":
        from everstep.elastic.launch.rendezvous import LauncherRendezvous

        self._handler = LauncherRendezvous(parameters)
        if self._leave_requested:
            self._handler.leave()
        return self._handler


def _seconds_until(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def quiet_torch() -> None:
    """Keep torchrun's agent from reporting an ordinary change of the group as a failure.

    This also saves time: torch's formatter imports torch._dynamo to print a traceback, and an
    agent that restarts its workers would spend seconds on that.
    """
    logger = logging.getLogger(TORCH_LOGGER)
    logger.addFilter(_without_traceback)
    logger.addFilter(lambda record: f"exitcode: {RESTART}" not in record.getMessage())
    logger.addFilter(lambda record: "signal handlers" not in record.getMessage())


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = record.exc_text = None
    return True


def set_variables(endpoint: str) -> None:
    """Set the environment variables of this process and its workers that are not set yet."""
    os.environ.setdefault(AGENT_VARIABLE, str(channel.default_socket_path()))
    # Outside Kubernetes, each launcher on a machine counts as a node.
    os.environ.setdefault(POD_NAME_VARIABLE, f"{socket.gethostname()}-{os.getpid()}")
    if endpoint and POD_IP_VARIABLE not in os.environ and (address := local_address_to(endpoint)):
        os.environ[POD_IP_VARIABLE] = address
    # A worker raises this number once it knows the number of its local peers.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("USE_LIBUV", "0")  # Debian's torch is built without it
    os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
    # torch's watchdog would otherwise end the survivors, too, when NCCL reports a lost peer.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")


def warm_up(preload: Sequence[str]) -> None:
    """Import torch, and fork the process that workers are forked from, which imports the other modules meanwhile."""
    sys.warnoptions.append(NO_LEAK_WARNING)
    import torch  # noqa: F401

    fork_server.start([*PRELOADED_MODULES, *preload])


def use_huge_pages() -> None:
    """Start this program again with huge pages, unless it has them: malloc reads the variable when a process begins."""
    if MALLOC_VARIABLE not in os.environ:
        os.environ[MALLOC_VARIABLE] = HUGE_PAGES
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606  no shell needed


def launch(
    arguments: Sequence[str],
    *,
    preload: Sequence[str] = (),
    find_result: Callable[[LaunchOptions], str | None] = lambda _: None,
) -> None:
    """Run a launcher and end this process with its exit code.

    Args:
        arguments: the command line.
        preload: modules to import before workers are forked, in addition to the library's own.
        find_result: function that returns the result of a run that was complete before this node joined.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if requests_help(arguments):
        print_help()
        sys.exit(DONE if arguments else USAGE)
    try:
        options = parse(arguments)
        use_huge_pages()
        if result := find_result(options):
            log.info("nothing to do: %s", result)
            sys.exit(DONE)
        with contextlib.ExitStack() as stack:
            endpoint = options.endpoint or _start_etcd(options, stack)
            set_variables(endpoint)
            launcher = Launcher(options, endpoint, lambda: find_result(options))
            launcher.handle_signals()
            warm_up([*preload, *options.preload])
            code = launcher.run()
    except EverstepError as error:
        sys.exit(_usage_error(error))
    _end(code)


def _start_etcd(options: LaunchOptions, stack: contextlib.ExitStack) -> str:
    """Start an etcd that ends with this process; return its endpoint, empty if another rendezvous is used."""
    if not options.supervised:
        return ""
    endpoint = stack.enter_context(LocalEtcd())
    log.info(
        "started etcd; more nodes on this machine: "
        "--rendezvous-endpoint %s --run-id %s --nnodes %s",
        endpoint,
        options.run_id,
        options.nnodes,
    )
    return endpoint


def _usage_error(error: EverstepError) -> int:
    print(error_text(error), file=sys.stderr)
    return USAGE


def _end(code: int) -> None:
    """Exit immediately: daemon threads may wait for etcd or for peers that are gone."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    channel.remove_socket(Path(os.environ[AGENT_VARIABLE]))
    os._exit(code)
