"""Heartbeats between agents, and the fencing of members that no longer send any. `suspicion` decides.

Heartbeats are UDP packets to the port number at which the agent responds to probes by TCP (`reachability`), so that
firewall rules can name one port. No packet waits for the retransmission of an earlier packet. Heartbeats do not pass
through etcd, which would have to serve ten writes a second for each member.

One thread of the agent's process sends, receives and judges; it waits only for the clock and its socket. The
workers are other processes, so that no training step delays a heartbeat. A fence is carried out in a separate thread.
"""

import contextlib
import json
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everstep.elastic.membership.arrivals import BEAT_SECONDS
from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.events import Resumed
from everstep.elastic.membership.generations import Generation, Member
from everstep.elastic.membership.peer_addresses import PeerAddresses
from everstep.elastic.membership.run_keys import RunKeys
from everstep.elastic.membership.run_view import RunView
from everstep.elastic.membership.suspicion import (
    HeartbeatMessage,
    ObservedGroup,
    OutgoingMessage,
    Suspicion,
)
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

ALERT_STEP_SECONDS = 0.05  # interval between two iterations while a member is late
MAX_MESSAGE_BYTES = 4096


@dataclass(frozen=True)
class PeerObservation:
    """The state that an agent observes, with the values that fencing a member needs.

    Attributes:
        group: the members and their nodes.
        generation: the current generation.
        revision: revision of the last change of the generation's key.
        members: members of the generation that have a key, by identity.
    """

    group: ObservedGroup
    generation: Generation
    revision: int
    members: Mapping[str, Member]


class Heartbeats:
    """One agent's heartbeats.

    Args:
        etcd: client of etcd.
        keys: keys of the run.
        report: called for each fenced member that sends heartbeats again.
    """

    def __init__(self, etcd: Etcd, keys: RunKeys, report: Callable[[Resumed], None]) -> None:
        self._etcd, self._keys, self._report = etcd, keys, report
        self._core = Suspicion()
        self._socket: socket.socket | None = None
        # The agent's deciding thread (`Agent._decide`) replaces this object.
        self._observation: PeerObservation | None = None
        self._addresses: PeerAddresses | None = None
        self._trained = (0, 0.0)  # generation and monotonic time of the last training step
        self._closed, self._fencing = threading.Event(), threading.Event()

    def open(self, probe_socket: socket.socket) -> None:
        """Open the UDP socket at the address and port of the TCP socket that responds to probes.

        If another program uses that port, no heartbeats arrive here, and this agent detects losses only by
        leases.
        """
        family = probe_socket.family
        udp_socket = socket.socket(family, socket.SOCK_DGRAM)
        udp_socket.settimeout(0)
        if family == socket.AF_INET6:  # IPv4, too, if the TCP socket accepts it
            is_ipv6_only = probe_socket.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            udp_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_ipv6_only)
        try:
            udp_socket.bind(probe_socket.getsockname())
        except OSError as error:
            log.warning("no heartbeats are received, so a lost node is detected later: %s", error)
        self._socket, self._addresses = udp_socket, PeerAddresses(family)

    def follow(self, identity: str | None, view: RunView) -> None:
        """Observe the members of the current generation. Called by the agent's deciding thread."""
        generation = view.current
        if identity is None or generation is None or identity not in generation.ranks:
            self._observation = None
            return
        nodes = {name: member.node for name, member in view.members.items()}
        members = {name: view.members[name] for name in generation.members if name in view.members}
        group = ObservedGroup(identity, generation.members, nodes)
        observation = PeerObservation(group, generation, view.revision, members)
        if observation != self._observation:
            self._observation = observation

    def record_training(self, number: int) -> None:
        """Record that this node's workers have completed a training step with generation `number`. Thread-safe."""
        self._trained = number, time.monotonic()

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()

    def run(self) -> None:
        """Send, receive and judge until closed."""
        assert self._socket is not None  # noqa: S101 - open() sets it first
        followed_observation: PeerObservation | None = None
        with self._socket as udp_socket:
            while not self._closed.is_set():
                messages = self._receive(udp_socket)
                observation = self._observation
                if observation is not followed_observation:
                    self._core.follow(observation.group if observation else None)
                    followed_observation = observation
                trained_at = self._trained_at(observation)
                for outgoing in self._core.step(messages, time.monotonic(), trained_at):
                    self._send(udp_socket, outgoing, observation)
                for name in self._core.take_resumed():
                    self._report(Resumed(name))
                if observation:
                    self._fence(observation)

    def _trained_at(self, observation: PeerObservation | None) -> float | None:
        """Return the time of the last training step of the observed generation."""
        number, completed_at = self._trained
        is_current = observation is not None and observation.generation.number == number
        return completed_at if is_current else None

    # --- fencing ---

    def _fence(self, observation: PeerObservation) -> None:
        suspects = [
            observation.members[name]
            for name in self._core.to_fence()
            if name in observation.members
        ]
        fencer = observation.members.get(observation.group.identity)
        if suspects and fencer and not self._fencing.is_set():
            self._fencing.set()
            arguments = (observation, fencer, suspects)
            threading.Thread(
                target=self._carry_out, args=arguments, name="everstep-fence", daemon=True
            ).start()

    def _carry_out(
        self, observation: PeerObservation, fencer: Member, suspects: list[Member]
    ) -> None:
        nodes = ", ".join(member.node for member in suspects)
        try:
            is_fenced = self._keys.fence(
                observation.generation, observation.revision, fencer, suspects
            )
            if is_fenced:
                log.warning("no heartbeat from %s: the other nodes continue", nodes)
        except EverstepError as error:
            log.debug("%s could not be fenced: %s", nodes, error)
        finally:
            self._fencing.clear()
            self._etcd.close()  # this thread's connection

    # --- messages ---

    def _receive(self, udp_socket: socket.socket) -> list[HeartbeatMessage]:
        """Wait until the next iteration, and return all messages that have arrived.

        Usually heartbeats do not wake this thread; while a member is late, every message does.
        """
        if self._core.is_alert:
            select.select([udp_socket], [], [], ALERT_STEP_SECONDS)
        else:
            self._closed.wait(BEAT_SECONDS)
        messages = list[HeartbeatMessage]()
        with contextlib.suppress(BlockingIOError):
            while True:
                if message := decode(udp_socket.recv(MAX_MESSAGE_BYTES)):
                    messages.append(message)
        return messages

    def _send(
        self,
        udp_socket: socket.socket,
        outgoing: OutgoingMessage,
        observation: PeerObservation | None,
    ) -> None:
        member = observation.members.get(outgoing.recipient) if observation else None
        address = self._addresses.find(member.endpoint) if member and self._addresses else None
        if address is not None:
            with contextlib.suppress(OSError):  # no route, or a full buffer: the packet is lost
                udp_socket.sendto(encode(outgoing.message), address)


def encode(message: HeartbeatMessage) -> bytes:
    """Return a message as one packet."""
    return json.dumps(
        {
            "from": message.sender,
            "suspects": message.suspects,
            "hears": message.heard_members,
            "answer": message.is_response,
        }
    ).encode()


def decode(packet: bytes) -> HeartbeatMessage | None:
    """Parse a packet; return None if it is not a heartbeat."""
    try:
        fields = json.loads(packet)
        suspects, heard_members = (tuple(map(str, fields[name])) for name in ("suspects", "hears"))
        return HeartbeatMessage(
            str(fields["from"]), suspects, heard_members, is_response=bool(fields["answer"])
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
