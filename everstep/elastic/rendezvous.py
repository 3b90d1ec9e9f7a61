"""torchrun's rendezvous on etcd v3: `--rdzv_backend=etcd-v3`.

torch's own etcd backends speak the v2 API, which etcd 3.6 no longer has; they wait ten seconds for
a lost node's lease, thirty for latecomers, have no word for leaving, and one drained node ends the
job for good. This one forms groups by `everstep.elastic.membership`. `everstep.elastic.torchrun`
makes it known.

`--rdzv_conf` takes: etcd_prefix, protocol, cacert, cert, key (as torch's `etcd`), user,
password_file, settle_seconds, lease_seconds, patience_seconds, and workers (`live`: they live through
changes of the group, see `live_agent`; otherwise they are started anew).
"""

import contextlib
import functools
import logging
import os
import signal
import socket
import threading
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

from everstep.elastic import channel
from everstep.elastic.agent import TTL_SECONDS, Agent, LeftError, Node, Place, RunEndedError
from everstep.elastic.bounds import BOUNDS_VARIABLE
from everstep.elastic.crashes import CRASHES
from everstep.elastic.etcd import Etcd, EtcdOptions
from everstep.elastic.generations import Rules
from everstep.elastic.membership_events import Ended

log = logging.getLogger(__name__)

BACKEND = "etcd-v3"
STORE_SECONDS = 60.0
OBEY_SECONDS = 2.0  # a worker that has not ended so long after `stop` is frozen: it is killed
ORDERLY_SECONDS = 1.0  # how far one living worker may be ahead of another in leaving a group
SETTLE_SECONDS = (
    60.0  # how long a settling worker may take to save before it is killed all the same
)


class RunOverError(RendezvousClosedError):
    """There is no next generation for this node: it has left, or the run is over."""


class EtcdV3Handler(RendezvousHandler):
    """One node's agent in the shape that torchrun wants."""

    living = False  # whether workers live through changes of the group

    def __init__(self, parameters: RendezvousParameters) -> None:
        conf = parameters.config
        address = (
            parameters.local_addr
            or os.environ.get("POD_IP")
            or _address_towards(parameters.endpoint)
        )
        name = os.environ.get("POD_NAME") or socket.gethostname()
        self._name, self._progressed, self._crashes = name, False, 0
        self._run_id = str(conf.get("etcd_prefix", "")).strip("/") + parameters.run_id
        self._address = address
        self._stores: dict[str, TCPStore] = {}
        self._place: Place | None = None
        self._stop_reason = self._regroup_reason = ""
        self._settling: set[int] = set()
        self._workers_follow = (
            False  # whether they stop by themselves; known from the first hello on
        )
        self._lock = threading.Lock()
        self.ended: Ended | None = None
        path = os.environ.setdefault(channel.SOCKET_VARIABLE, str(channel.default_socket_path()))
        self._exchange = channel.Exchange(Path(path), self._hear, self._forget)
        self._agent = Agent(
            Etcd(_options(parameters)),
            self._run_id,
            Node(name, address),
            Rules(
                min_members=parameters.min_nodes,
                max_members=parameters.max_nodes,
                settle_seconds=float(conf.get("settle_seconds", Rules().settle_seconds)),
                orderly_seconds=ORDERLY_SECONDS if self.living else 0.0,
                living=self.living,
            ),
            open_store=self._open_store,
            on_stop=self._stop,
            on_regroup=self._regroup,
            on_ended=self._note_end,
            ttl_seconds=int(conf.get("lease_seconds", TTL_SECONDS)),
            bounds_file=os.environ.get(BOUNDS_VARIABLE),
        )
        self._started = False

    # --- what torchrun asks ---

    def get_backend(self) -> str:
        """The name that `--rdzv_backend` takes."""
        return BACKEND

    def get_run_id(self) -> str:
        """The name of the run."""
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        """Workers meet at the store that rank 0's agent holds: no port is chosen twice."""
        return True

    def is_closed(self) -> bool:
        """Whether the run is over."""
        return self.ended is not None

    def set_closed(self) -> None:
        """Nothing: an agent that gives up must not end the others' run."""

    def num_nodes_waiting(self) -> int:
        """0 where the workers stop by themselves when a node joins; else how many wait.

        torchrun kills healthy workers when this is not 0.
        """
        return 0 if self._workers_follow else self._agent.waiting_members()

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait to be in a generation, and meet the others at its store."""
        if not self._started:
            self._exchange.start()
            self._agent.start()
            self._started = True
        while True:
            place = self._next_place()
            try:
                store = self._meet(place)
            except RuntimeError as error:
                log.warning(
                    "generation %d's store did not answer: %s", place.generation.number, error
                )
                continue
            host, port = _split(place.generation.store)
            log.info(
                "generation %d: rank %d of %d",
                place.generation.number,
                place.rank,
                len(place.generation.members),
            )
            return RendezvousInfo(
                PrefixStore(f"generation/{place.generation.number}", store),
                place.rank,
                len(place.generation.members),
                RendezvousStoreInfo(host, port),
            )

    def shutdown(self) -> bool:
        """Deregister; the run goes on without this node."""
        self._agent.close()
        self._exchange.close()
        return True

    # --- what the launcher asks ---

    def leave(self) -> None:
        """The node has been told to go: workers stop after a step all agree on, then this agent departs."""
        self._agent.leave()

    @property
    def in_group(self) -> bool:
        """Whether this node is in a generation, as far as it knows."""
        return self._place is not None

    def wait_departed(self, seconds: float) -> bool:
        """Whether the departure is complete within so many seconds."""
        return self._agent.wait_departed(seconds)

    # --- inside ---

    def _next_place(self) -> Place:
        self._judge_last_start()
        with self._lock:
            self._stop_reason = self._regroup_reason = ""
            self._settling.clear()
            self._place, self._progressed = None, False
        try:
            place = self._agent.rendezvous()
        except LeftError as left:
            raise RunOverError(f"{left} has left, as it was told to") from left
        except RunEndedError as over:
            self.ended = over.ended
            raise RunOverError(over.ended.reason) from over
        with self._lock:
            self._place = place
        return place

    def _judge_last_start(self) -> None:
        """Give the run up when workers end again and again, for no reason that the group knows.

        A program that cannot run would otherwise be started for as long as its pods live.
        """
        self._crashes = self._crashes + 1 if self._crashed() else 0
        if self._crashes >= CRASHES:
            self._give_up()

    def _give_up(self) -> None:
        why = (
            f"on {self._name} the workers ended {CRASHES} times in a row before a step was done; "
            "their log says why"
        )
        self._agent.end_run(Ended(finished=False, reason=why))

    def _crashed(self) -> bool:
        return bool(self._place) and not (
            self._stop_reason or self._regroup_reason or self._settling or self._progressed
        )

    def _open_store(self) -> str:
        store = TCPStore(
            self._address,
            0,
            is_master=True,
            wait_for_workers=False,
            use_libuv=False,  # Debian's torch is built without it
            timeout=timedelta(seconds=STORE_SECONDS),
        )
        where = f"{self._address}:{store.port}"
        self._stores = {where: store}  # the one before it has no user left
        return where

    def _meet(self, place: Place) -> TCPStore:
        if own := self._stores.get(place.generation.store):
            return own
        host, port = _split(place.generation.store)
        return TCPStore(
            host,
            port,
            is_master=False,
            wait_for_workers=False,
            use_libuv=False,
            timeout=timedelta(seconds=STORE_SECONDS),
        )

    def _hear(self, pid: int, message: channel.Message) -> channel.Message | None:
        if "hello" in message:
            self._workers_follow = True
            return self._welcome()
        if "settling" in message:
            with self._lock:
                self._settling.add(pid)
        if "progressed" in message:
            self._progressed = True
        if "commit" in message:
            # In a thread: while etcd is away this lasts, and the worker's other words must be heard.
            threading.Thread(target=self._commit, args=(pid, message), daemon=True).start()
        if "finished" in message:
            self._agent.end_run(Ended(finished=True, reason=str(message["finished"])))
        if "failed" in message:
            self._agent.end_run(Ended(finished=False, reason=str(message["failed"])))
        return None

    def _commit(self, pid: int, message: channel.Message) -> None:
        taken_in, step = int(message["taken_in"]), int(message["step"])
        allowed = self._agent.commit(int(message["commit"]), taken_in, step)
        self._exchange.send(pid, {"answer": allowed})

    def _forget(self, pid: int) -> None:
        """A worker's line broke: torchrun will see its end."""

    def _welcome(self) -> channel.Message:
        with self._lock:
            number = self._place.generation.number if self._place else 0
            return {"welcome": number, "stop": self._stop_reason, "regroup": self._regroup_reason}

    def _note_end(self, ended: Ended) -> None:
        self.ended = ended
        if not ended.finished:
            self._stop(f"the run has failed: {ended.reason}")

    def _stop(self, reason: str) -> None:
        log.warning("workers stop: %s", reason)
        with self._lock:
            self._stop_reason = reason
        self._exchange.broadcast({"stop": reason})
        for pid in self._exchange.workers():
            delay = SETTLE_SECONDS if pid in self._settling else OBEY_SECONDS
            _later(delay, functools.partial(self._kill, pid))

    def _kill(self, pid: int) -> None:
        """End a worker that did not obey; one whose line is closed has ended already."""
        if pid in self._exchange.workers():
            log.warning("worker %d did not stop: killed", pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _regroup(self, reason: str) -> None:
        log.info("workers stop after a step: %s", reason)
        with self._lock:
            self._regroup_reason = reason
        self._exchange.broadcast({"regroup": reason})


def _options(parameters: RendezvousParameters) -> EtcdOptions:
    conf = parameters.config
    password_file = conf.get("password_file")
    return EtcdOptions(
        endpoints=tuple(part.strip() for part in parameters.endpoint.split(",") if part.strip()),
        tls=conf.get("protocol") == "https",
        certificate_authority=conf.get("cacert"),
        certificate=conf.get("cert"),
        key=conf.get("key"),
        user=conf.get("user"),
        password=Path(password_file).read_text().strip() if password_file else None,
        patience_seconds=float(conf.get("patience_seconds", 600)),
    )


def _address_towards(endpoint: str) -> str:
    """This node's address on the way to etcd: peers reach it there as well as anywhere."""
    host, port = _split(endpoint.split(",", maxsplit=1)[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host or address, int(port) if port.isdigit() else 2379


def _later(seconds: float, run: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, run)
    timer.daemon = True
    timer.start()
