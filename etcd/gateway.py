"""Client of etcd's JSON gateway, for the calls that change the membership."""

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

REQUEST_SECONDS = 2.0
NO_DATA_PATH = "/everstep/no-data"  # answered by members that wait for their peers, never by etcd


class EtcdError(Exception):
    """A request that no member answered or that the member refused."""


class NoAnswerError(EtcdError):
    """A request without a valid response."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member as its peers list it.

    Attributes:
        identifier: ID in the cluster, decimal.
        peer_url: URL under which its peers reach it.
        started: True once the member has published its name, so that it may have voted.
    """

    identifier: str
    peer_url: str
    started: bool


@dataclass(frozen=True, kw_only=True)
class Peers:
    """The other members.

    Attributes:
        addresses: client URLs.
    """

    addresses: Sequence[str]

    def members(self) -> list[Member] | None:
        """Return the membership as the first peer that answers lists it; None if none answers.

        The read is not linearizable: the local view of one member shows whether another one has
        been a member before, even while there is no leader.
        """
        for address in self.addresses:
            try:
                return read_members(call(address, "cluster/member/list", {"linearizable": False}))
            except EtcdError:
                continue
        return None

    def without_data(self, own_name: str) -> set[str]:
        """Return the names of the peers that answer that they have no data and have not started."""
        names = set[str]()
        for address in self.addresses:
            try:
                names.add(str(_request(address, f"{NO_DATA_PATH}?from={own_name}", {})["no_data"]))
            except (EtcdError, KeyError):
                continue
        return names

    def remove(self, identifier: str) -> None:
        """Remove a member from the cluster.

        Raises:
            EtcdError: no peer could do it, for example because there is no quorum.
        """
        self._change("remove", {"ID": identifier})

    def add(self, peer_url: str) -> None:
        """Add a member to the cluster.

        Raises:
            EtcdError: no peer could do it, for example because there is no quorum.
        """
        self._change("add", {"peerURLs": [peer_url]})

    def _change(self, method: str, body: Mapping[str, object]) -> None:
        failure = EtcdError("no peer answers")
        for address in self.addresses:
            try:
                call(address, f"cluster/member/{method}", body)
            except EtcdError as error:
                failure = error
            else:
                return
        raise failure


def read_members(body: Mapping[str, object]) -> list[Member]:
    """Parse etcd's response to `member list`."""
    members = body.get("members")
    return [
        Member(
            identifier=str(member["ID"]),
            peer_url=str(member["peerURLs"][0]),
            started=bool(member.get("name")),
        )
        for member in (members if isinstance(members, list) else ())
    ]


def call(address: str, method: str, body: Mapping[str, object]) -> dict[str, object]:
    """Call a method of etcd's JSON gateway and return its response.

    Args:
        address: client URL of a member.
        method: path below `/v3/`, for example `cluster/member/list`.
        body: JSON body of the request.

    Raises:
        NoAnswerError: no valid response within `REQUEST_SECONDS`.
        EtcdError: the member refused the call.
    """
    return _request(address, f"/v3/{method}", body)


def _request(address: str, path: str, body: Mapping[str, object]) -> dict[str, object]:
    """Send one request and return the response; see `call`."""
    url = f"{address}{path}"
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=REQUEST_SECONDS)
    try:
        connection.request("POST", path, json.dumps(body).encode())
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(f"{url}: {error}") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise EtcdError(f"{url}: {content.decode(errors='replace')}")
    try:
        return dict(json.loads(content))
    except ValueError as error:
        raise NoAnswerError(f"{url}: the response is not JSON") from error
