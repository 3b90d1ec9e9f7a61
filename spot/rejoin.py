"""Lets an etcd member that keeps its data in memory come back after its node went.

`python3 -m spot.rejoin --config FILE -- <etcd's flags>` runs before etcd in the member's pod and
writes the configuration that etcd then starts with. A member that comes back empty under an identity
that its peers know is refused by etcd, rightly: its vote was counted once already. It has to be taken
out of the membership and let in anew; without that, two drains of a node, hours apart, would cost the
quorum.

etcd's own tools could do it, given a shell; etcd's image has none. The file is needed because only
etcd's `--config-file` can be written by somebody else than whoever wrote the pod.

Two members lost at once, of three, are beyond it: the one that is left can change nothing alone.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from spot.wire import NoAnswer, Refused, Request, ask

ASK_SECONDS = 2.0
PAUSE_SECONDS = 1.0
TRIES_ALONE = 3  # only then there is no cluster yet: names take a moment to be known
PATIENCE_SECONDS = 60.0  # for a quorum; after that, the pod's restart is a fresh try


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member as its peers list it; one that never started has told them no name yet."""

    identifier: str
    peer_url: str
    started: bool


@dataclass(frozen=True, kw_only=True)
class Start:
    """Start etcd: with these members, as a new cluster or into one that is there."""

    state: str
    members: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Remove:
    """Take out of the membership what this member was before."""

    identifier: str


@dataclass(frozen=True)
class Add:
    """Ask to be let in."""


Step = Start | Remove | Add


def decide(
    name: str, initial: Mapping[str, str], seen: Sequence[Member] | None, *, has_data: bool
) -> Step:
    """Decide what comes next. Pure.

    Args:
        name: this member's.
        initial: name -> peer URL of all that the pod's author knows of.
        seen: the members as a peer lists them; None where no peer answers.
        has_data: whether this member still has what it wrote; etcd then needs no telling.
    """
    if has_data or seen is None:
        return Start(state="new", members=initial)
    me = next((one for one in seen if one.peer_url == initial[name]), None)
    if me is None:
        return Add()
    if me.started:
        return Remove(identifier=me.identifier)
    if not any(one.started for one in seen):
        return Start(state="new", members=initial)
    names = {url: known for known, url in initial.items()}
    members = {names.get(one.peer_url, one.identifier): one.peer_url for one in seen}
    return Start(state="existing", members=members)


def read_members(said: Mapping[str, object]) -> list[Member]:
    """Read etcd's answer to `member list`."""
    listed = said.get("members")
    return [
        Member(
            identifier=str(one["ID"]),
            peer_url=str(one["peerURLs"][0]),
            started=bool(one.get("name")),
        )
        for one in (listed if isinstance(listed, list) else ())
    ]


def configuration(flags: Mapping[str, str], start: Start) -> dict[str, object]:
    """Give etcd's configuration file for its flags, with the start that was decided."""
    said: dict[str, object] = {
        key: int(value) if value.isdigit() else True if value == "" else value
        for key, value in flags.items()
    }
    cluster = ",".join(f"{name}={url}" for name, url in start.members.items())
    return {**said, "initial-cluster": cluster, "initial-cluster-state": start.state}


@dataclass(frozen=True, kw_only=True)
class Peers:
    """The other members' client addresses."""

    addresses: Sequence[str]

    def members(self) -> list[Member] | None:
        """Ask one after the other for the members; None where none answers.

        Not linearizable: what a member knows by itself is enough to see that one was there before,
        also while no leader is elected.
        """
        for address in self.addresses:
            try:
                return read_members(_call(address, "list", {"linearizable": False}))
            except NoAnswer:
                continue
        return None

    def change(self, what: str, body: Mapping[str, object]) -> None:
        """Make one peer change the membership.

        Raises:
            NoAnswer: none would or could: there is no quorum, say.
        """
        refusal = NoAnswer("no peer answers")
        for address in self.addresses:
            try:
                _call(address, what, body)
            except NoAnswer as error:
                refusal = error
            else:
                return
        raise refusal


def _call(address: str, what: str, body: Mapping[str, object]) -> dict[str, object]:
    """Call etcd's JSON gateway."""
    path = f"/v3/cluster/member/{what}"
    request = Request(method="POST", path=path, body=json.dumps(body).encode())
    answer = ask(address, request, ASK_SECONDS)
    if answer.status != 200:
        raise Refused(f"{address}{path}: {answer.body.decode(errors='replace')}")
    try:
        return dict(json.loads(answer.body))
    except ValueError as error:
        raise NoAnswer(f"{address}{path} was answered with no JSON") from error


def settle(
    name: str,
    initial: Mapping[str, str],
    peers: Peers,
    *,
    has_data: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> Start:
    """Change the membership until etcd can start.

    Raises:
        NoAnswer: there was no quorum to agree to a change in `PATIENCE_SECONDS`.
    """
    alone, waited = 0, 0.0
    while True:
        seen = None if has_data else peers.members()
        alone = alone + 1 if seen is None else 0
        if seen is not None or has_data or alone >= TRIES_ALONE or not peers.addresses:
            step = decide(name, initial, seen, has_data=has_data)
            if isinstance(step, Start):
                return step
            try:
                _change(peers, step, initial[name])
            except NoAnswer:
                if waited >= PATIENCE_SECONDS:
                    raise
        sleep(PAUSE_SECONDS)
        waited += PAUSE_SECONDS


def _change(peers: Peers, step: Remove | Add, peer_url: str) -> None:
    """Make one change and say so."""
    if isinstance(step, Remove):
        peers.change("remove", {"ID": step.identifier})
        print(f"took out {step.identifier}, which had this member's name before", flush=True)
    else:
        peers.change("add", {"peerURLs": [peer_url]})
        print("was let in anew", flush=True)


def main(words: Sequence[str]) -> None:
    """Settle the membership and write the configuration, whole or not at all."""
    parser = argparse.ArgumentParser(prog="rejoin", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="file to write")
    parser.add_argument("flags", nargs="+", help="etcd's, after --")
    said = parser.parse_args(words)
    flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in said.flags)
    initial = dict(pair.partition("=")[::2] for pair in flags["initial-cluster"].split(","))
    own_port = urlsplit(flags["advertise-client-urls"]).port
    hosts = [urlsplit(url).hostname for known, url in initial.items() if known != flags["name"]]
    peers = Peers(addresses=[f"http://{host}:{own_port}" for host in hosts])
    has_data = (Path(flags["data-dir"]) / "member").exists()
    start = settle(flags["name"], initial, peers, has_data=has_data)
    aside = said.config.with_suffix(".new")
    aside.write_text(json.dumps(configuration(flags, start), indent=2), encoding="utf-8")
    aside.rename(said.config)


if __name__ == "__main__":
    main(sys.argv[1:])
