"""Rejoin of an etcd member that keeps its data in memory, after its node was lost.

etcd rightly refuses to start a member that returns without data under its old identity: it may have
voted already, and could vote again. The member must be removed from the cluster and added again.
Without that, two drains of a node, hours apart, would cost the quorum.

etcdctl could do it, but etcd's image has no shell to script it. The result is a configuration file
because the flags of etcd's container are fixed when the pod is created.

A new cluster is started only if every member has responded that it has no data (`no_data_server`): silence may also
be a failure of DNS or of the network.

The simultaneous loss of two members of three is not covered: the last one has no quorum to change the
membership. The log then says how to start a new cluster.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from etcd.gateway import EtcdError, EtcdMember, Peers
from etcd.no_data_server import NoDataServer

RETRY_SECONDS = 1.0
REPORT_POLLS = 30  # polls between two messages about peers without a response
LINGER_POLLS = 30
"""Polls before the start of a new cluster, for peers that have not read this member's response."""
LOST_QUORUM = (
    "if most members have lost their data, delete the pods of all members at the same time: they start a "
    "new cluster, and the workers form a new group"
)
MAX_REFUSALS = 60  # changes that are refused, mostly without a quorum; then the restart of the pod is the next attempt


@dataclass(frozen=True, kw_only=True)
class StartEtcd:
    """The action that starts etcd.

    Attributes:
        state: `new` cluster or `existing` one, as etcd's `initial-cluster-state`.
        members: name -> peer URL, as etcd's `initial-cluster`.
    """

    state: str
    members: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RemoveMember:
    """The action that removes the former identity of this member from the cluster."""

    identifier: str


@dataclass(frozen=True)
class AddMember:
    """The action that adds this member to the cluster."""


@dataclass(frozen=True)
class Wait:
    """The action that waits for peers that respond neither as members nor as members without data."""

    silent_peers: tuple[str, ...]


JoinAction = StartEtcd | RemoveMember | AddMember | Wait


def next_action(
    name: str,
    initial_cluster: Mapping[str, str],
    listed_members: Sequence[EtcdMember] | None,
    *,
    has_data: bool,
    names_without_data: Collection[str] = (),
) -> JoinAction:
    """Return the next action; this is a pure function.

    A cluster is new only if all its members respond that they have no data. Silence proves nothing: the
    peers may be cut off, and a member without data that started under its old identity would vote twice.

    Args:
        name: name of this member.
        initial_cluster: name -> peer URL of all members in the pod's specification.
        listed_members: membership as a peer lists it; None if no peer responds.
        has_data: True if this member still has its data; etcd then ignores the start options.
        names_without_data: names of the peers that have responded that they have no data and have not started.
    """
    if has_data:
        return StartEtcd(state="new", members=initial_cluster)
    if listed_members is None:
        silent_peers = tuple(sorted(set(initial_cluster) - {name, *names_without_data}))
        return (
            Wait(silent_peers) if silent_peers else StartEtcd(state="new", members=initial_cluster)
        )
    own_member = next(
        (member for member in listed_members if member.peer_url == initial_cluster[name]), None
    )
    if own_member is None:
        return AddMember()
    if own_member.started:
        return RemoveMember(identifier=own_member.identifier)
    if not any(member.started for member in listed_members):
        return StartEtcd(state="new", members=initial_cluster)
    names = {url: member_name for member_name, url in initial_cluster.items()}
    members = {
        names.get(member.peer_url, member.identifier): member.peer_url for member in listed_members
    }
    return StartEtcd(state="existing", members=members)


def etcd_configuration(flags: Mapping[str, str], start: StartEtcd) -> dict[str, object]:
    """Return the content of etcd's configuration file: its flags, with the start options set."""
    options: dict[str, object] = {}
    sections: dict[str, dict[str, object]] = {}
    for flag, value in flags.items():
        section, key = _TLS_OPTIONS.get(flag, ("", flag))
        (sections.setdefault(section, {}) if section else options)[key] = _option(value)
    cluster = ",".join(f"{name}={url}" for name, url in start.members.items())
    return {**options, **sections, "initial-cluster": cluster, "initial-cluster-state": start.state}


def _option(value: str) -> str | int | bool:
    """Return the value of a flag with the type that the configuration file requires; a flag without a value is true."""
    return int(value) if value.isdigit() else True if value == "" else value


_CLIENT, _PEER = "client-transport-security", "peer-transport-security"
_TLS_OPTIONS = {
    "cert-file": (_CLIENT, "cert-file"),
    "key-file": (_CLIENT, "key-file"),
    "trusted-ca-file": (_CLIENT, "trusted-ca-file"),
    "client-cert-auth": (_CLIENT, "client-cert-auth"),
    "peer-cert-file": (_PEER, "cert-file"),
    "peer-key-file": (_PEER, "key-file"),
    "peer-trusted-ca-file": (_PEER, "trusted-ca-file"),
    "peer-client-cert-auth": (_PEER, "client-cert-auth"),
    "peer-client-cert-file": (_PEER, "client-cert-file"),
    "peer-client-key-file": (_PEER, "client-key-file"),
}
"""Flag -> section and key of the configuration file, where TLS has its own sections."""


def join(
    name: str,
    initial_cluster: Mapping[str, str],
    peers: Peers,
    *,
    has_data: bool,
    sleep: Callable[[float], None] = time.sleep,
    serve: Callable[[str], contextlib.AbstractContextManager[NoDataServer]] | None = None,
) -> StartEtcd:
    """Change the membership until etcd can start, and return how to start it.

    Args:
        name: name of this member.
        initial_cluster: name -> peer URL of all members in the pod's specification.
        peers: the other members.
        has_data: True if this member still has its data.
        sleep: function that waits for a number of seconds.
        serve: function that starts the server of a member without data, given its name.

    Raises:
        EtcdError: a change was refused more than `MAX_REFUSALS` times, or no quorum agreed to it.
    """
    names_without_data, polls, refusals = set[str](), 0, 0
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serve(name)) if serve and not has_data else None
        while True:
            listed_members = None if has_data else peers.members()
            if not has_data and listed_members is None:
                names_without_data |= peers.names_without_data(name)
            action = next_action(
                name,
                initial_cluster,
                listed_members,
                has_data=has_data,
                names_without_data=names_without_data,
            )
            if isinstance(action, StartEtcd):
                if server and listed_members is None:
                    _linger(server, set(initial_cluster) - {name}, sleep)
                return action
            if isinstance(action, Wait):
                _report(action, polls)
                polls += 1
            else:
                try:
                    _change_membership(peers, action, initial_cluster[name])
                except EtcdError as error:
                    if refusals == MAX_REFUSALS:
                        raise
                    _report_refusal(error, refusals)
                    refusals += 1
            sleep(RETRY_SECONDS)


def _linger(server: NoDataServer, others: Collection[str], sleep: Callable[[float], None]) -> None:
    """Continue to respond until all peers have read that this member has no data, for a bounded time.

    A peer that misses the response finds the new cluster as soon as the cluster has a quorum.
    """
    for _ in range(LINGER_POLLS):
        if server.readers >= set(others):
            return
        sleep(RETRY_SECONDS)


def _report(action: Wait, polls: int) -> None:
    """Log the silent peers and the fix, once every `REPORT_POLLS` polls."""
    if polls % REPORT_POLLS == 0:
        print(
            f"waiting for {', '.join(action.silent_peers)}: a member without its data must not start a new "
            "cluster next to an existing one. If the data of all members is lost, delete all their "
            "pods; else check that the names resolve and that no network policy forbids the traffic",
            flush=True,
        )


def _report_refusal(error: EtcdError, refusals: int) -> None:
    """Log a refused change of the membership and the fix, once every `REPORT_POLLS` refusals."""
    if refusals % REPORT_POLLS == 0:
        print(f"the membership cannot be changed: {error}; {LOST_QUORUM}", flush=True)


def _change_membership(peers: Peers, action: RemoveMember | AddMember, peer_url: str) -> None:
    """Apply one change of the membership and log it."""
    if isinstance(action, RemoveMember):
        peers.remove(action.identifier)
        print(f"removed member {action.identifier}, the former identity of {peer_url}", flush=True)
    else:
        peers.add(peer_url)
        print(f"added {peer_url} to the cluster", flush=True)
