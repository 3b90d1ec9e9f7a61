"""torchrun's rendezvous on etcd v3: `--rdzv_backend=etcd-v3`.

torch's own etcd backends use the v2 API, which etcd 3.6 no longer has. Its `etcd` backend waits ten seconds for
a lost node's key to expire and thirty for late joiners, has no operation for leaving, and ends the job when
one node is drained. This rendezvous forms groups with `everstep.elastic.membership.state_machine`;
`everstep.elastic.membership.torchrun` registers it. For torchrun, it returns immediately with a group of this node
only: the workers join the other nodes' workers later, when they have warmed up (`node_workers`).

`--rdzv_conf` takes: etcd_prefix, protocol, cacert, cert, key (as torch's `etcd`), user,
password_file, join_window_seconds, lease_seconds and retry_seconds. With etcd_prefix, the keys of the
run are under `/everstep/<etcd_prefix>/<run>/`.
"""

import math
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from everstep.catalog.addresses import etcd_endpoints, split_address
from everstep.catalog.names import (
    AGENT_VARIABLE,
    BOUNDS_VARIABLE,
    POD_IP_VARIABLE,
    POD_NAME_VARIABLE,
)
from everstep.elastic.membership.address import local_address_to
from everstep.elastic.membership.agent import Agent
from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.events import RunEnded
from everstep.elastic.membership.generations import GroupLimits
from everstep.elastic.membership.node_workers import NodeWorkers
from everstep.elastic.membership.own_key import AgentIdentity
from everstep.elastic.transport import channel
from everstep.errors import EverstepError

BACKEND = "etcd-v3"
STORE_TIMEOUT_SECONDS = 60.0
FILE_OPTIONS = ("cacert", "cert", "key", "password_file")
"""Options of `--rdzv_conf` that are paths of files."""


class RunOverError(RendezvousClosedError):
    """There is no next generation for this node: the run is over."""


class EtcdV3Handler(RendezvousHandler):
    """One node's agent behind torchrun's rendezvous interface."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        # Before `NodeWorkers`, whose socket would stay open after an error in the options.
        etcd, limits = Etcd(_options(parameters)), _limits(parameters)
        lease_seconds = int(_seconds(parameters, "lease_seconds", 0, int)) or None
        self._address = (
            parameters.local_addr
            or os.environ.get(POD_IP_VARIABLE)
            or local_address_to(parameters.endpoint)
            or socket.gethostname()
        )
        name = os.environ.get(POD_NAME_VARIABLE) or socket.gethostname()
        self._run_id = parameters.run_id
        self._stores: dict[str, TCPStore] = {}
        self._starts = 0
        path = os.environ.setdefault(AGENT_VARIABLE, str(channel.default_socket_path()))
        self._workers = NodeWorkers(Path(path), name)
        self._agent = Agent(
            etcd,
            _keys_name(parameters),
            AgentIdentity(name, self._address),
            limits,
            open_store=self._open_store,
            on_stop=self._workers.stop,
            on_regroup=self._workers.regroup,
            on_ended=self._workers.end,
            on_commit=self._workers.note_commit,
            ttl_seconds=lease_seconds,
            bounds_file=os.environ.get(BOUNDS_VARIABLE),
        )

    # --- torchrun's interface ---

    def get_backend(self) -> str:
        """Return the name that `--rdzv_backend` takes."""
        return BACKEND

    def get_run_id(self) -> str:
        """Return the name of the run."""
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        """Always True: workers meet at the store of rank 0's agent, so no port is chosen twice."""
        return True

    def is_closed(self) -> bool:
        """Return True if the run is over."""
        return self.outcome is not None

    def set_closed(self) -> None:
        """Do nothing: an agent that gives up must not end the others' run."""

    def num_nodes_waiting(self) -> int:
        """Return 0: torchrun would kill healthy workers for any other number."""
        return 0

    def next_rendezvous(self) -> RendezvousInfo:
        """Let torchrun start the workers; when they have warmed up, they join the other nodes' workers.

        Raises:
            RunOverError: the run is over.
            EverstepError: etcd does not respond or refuses a request, or this node has failed.
        """
        if self._starts:
            self._workers.begin_start()
        else:
            self._workers.start(self._agent)
            self._agent.start()
        if self.outcome:
            raise RunOverError(self.outcome.reason)
        if self._workers.failure:
            raise self._workers.failure
        self._starts += 1
        address = self._open_store()
        host, port = split_address(address)
        store = PrefixStore(f"start/{self._starts}", self._stores[address])
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(host, port))

    def shutdown(self) -> bool:
        """Deregister; the run continues without this node."""
        self._agent.close()
        self._workers.close()
        return True

    # --- the launcher's interface ---

    @property
    def outcome(self) -> RunEnded | None:
        """Outcome of the run; None while it continues."""
        return self._workers.outcome

    @property
    def failure(self) -> Exception | None:
        """The exception that ended this node's part in the run, if any."""
        return self._workers.failure

    @property
    def has_been_assigned(self) -> bool:
        """True if this node has been assigned to a generation, current or not."""
        return self._workers.assignment is not None

    @property
    def has_running_workers(self) -> bool:
        """True if a worker process of this node has not ended."""
        return self._workers.are_running

    @property
    def has_late_failure(self) -> bool:
        """True if a worker of this node failed after the run was complete, in the code after its loop."""
        return self._workers.has_late_failure

    def leave(self) -> None:
        """Make the workers stop after a step that all agree on, then deregister this agent."""
        self._workers.prepare_to_leave()
        self._agent.leave()

    def wait_departed(self, seconds: float) -> bool:
        """Wait at most `seconds` until this node has departed and its checkpoints are written; else return False.

        Return early if it will not depart: the run is over, or its agent has ended. An agent that does not follow etcd
        yet has no workers and nothing to leave.
        """
        if not self._agent.has_started:
            return True
        deadline = time.monotonic() + seconds
        departed = self._agent.wait_departed(seconds)
        return self._workers.flush(deadline) and departed

    def _open_store(self) -> str:
        """Open a store, for torchrun or for a generation that this node proposes; return its `host:port`."""
        store = TCPStore(
            self._address,
            0,
            is_master=True,
            wait_for_workers=False,
            use_libuv=False,  # Debian's torch is built without it
            timeout=timedelta(seconds=STORE_TIMEOUT_SECONDS),
        )
        address = f"{self._address}:{store.port}"
        self._stores = {address: store}  # no client uses the previous store
        return address


def _keys_name(parameters: RendezvousParameters) -> str:
    """Return the name under which etcd has the keys of the run: below `etcd_prefix`, if it is set."""
    prefix = str(parameters.config.get("etcd_prefix", "")).strip("/")
    return f"{prefix}/{parameters.run_id}" if prefix else str(parameters.run_id)


def _limits(parameters: RendezvousParameters) -> GroupLimits:
    return GroupLimits(
        min_members=parameters.min_nodes,
        max_members=parameters.max_nodes,
        join_window_seconds=_seconds(
            parameters, "join_window_seconds", GroupLimits.join_window_seconds
        ),
    )


def _options(parameters: RendezvousParameters) -> EtcdOptions:
    conf = parameters.config
    for name in FILE_OPTIONS:
        if (path := conf.get(name)) and not Path(path).is_file():
            raise EverstepError(
                f"{name} in --rdzv_conf is {path}, but there is no such file",
                "Correct the path, or mount the file there.",
            )
    return EtcdOptions(
        endpoints=etcd_endpoints(parameters.endpoint),
        tls=conf.get("protocol") == "https",
        certificate_authority=conf.get("cacert"),
        certificate=conf.get("cert"),
        key=conf.get("key"),
        user=conf.get("user"),
        password_file=conf.get("password_file"),
        retry_seconds=_seconds(parameters, "retry_seconds", EtcdOptions.retry_seconds),
    )


def _seconds(
    parameters: RendezvousParameters,
    name: str,
    default: float,
    parse: Callable[[str], float] = float,
) -> float:
    """Return an option of `--rdzv_conf` that is a time in seconds.

    Raises:
        EverstepError: the value is not a number, or negative.
    """
    value = str(parameters.config.get(name, default))
    try:
        seconds = parse(value)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        kind = "a whole" if parse is int else "a"
        raise EverstepError(
            f"{name} in --rdzv_conf is {value}, which is not {kind} number of seconds from 0",
            f"Write a number that is not negative, without a unit, such as {name}=8.",
        )
    return seconds
