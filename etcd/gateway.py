"""Client of etcd's JSON gateway, for the calls that change the membership."""

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

REQUEST_SECONDS = 2.0
NO_DATA_PATH = "/everstep/no-data"  # path that only members without data serve, never etcd
NO_USER = ("user name is empty", "permission denied")
"""Messages with which etcd refuses a request without a token. The second is for client certificates, because the
gateway's own certificate then identifies a user without a name."""


class EtcdError(Exception):
    """No member responded to a request, or the member refused it."""


class NoResponseError(EtcdError):
    """No valid response to a request."""


def lacks_user(error: EtcdError) -> bool:
    """Return True if a request without a token was refused because etcd requires a user."""
    return any(reason in str(error) for reason in NO_USER)


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Certificates and passwords of a member: the files of the Secret `etcd-members`.

    Attributes:
        folder: mount path.
    """

    folder: Path

    def client_context(self) -> ssl.SSLContext:
        """Return the TLS context for connections to members."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        return context

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context of a server, which requires a certificate of its clients."""
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(self.folder / "ca.crt")
        )
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        return context

    def password(self, user: str) -> str:
        """Return the password of a user."""
        return (self.folder / f"{user}-password").read_text().strip()


@dataclass(frozen=True, kw_only=True)
class EtcdMember:
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
        credentials: credentials of this member; None for an etcd without authentication.
    """

    addresses: Sequence[str]
    credentials: Credentials | None = None

    def members(self) -> list[EtcdMember] | None:
        """Return the membership as the first peer that responds lists it; None if none responds.

        The read is not linearizable: the local view of one member shows whether another member has
        started before, even while there is no leader.
        """
        for address in self.addresses:
            try:
                body = {"linearizable": False}
                return read_members(
                    call_as_root(address, "cluster/member/list", body, self.credentials)
                )
            except EtcdError:
                continue
        return None

    def names_without_data(self, own_name: str) -> set[str]:
        """Return the names of the peers that report that they have no data and have not started."""
        names = set[str]()
        for address in self.addresses:
            try:
                path = f"{NO_DATA_PATH}?from={own_name}"
                names.add(str(_request(address, path, {}, self.credentials)["no_data"]))
            except (EtcdError, KeyError):
                continue
        return names

    def remove(self, identifier: str) -> None:
        """Remove a member from the cluster.

        Raises:
            EtcdError: no peer could make the change, for example because there is no quorum.
        """
        self._change("remove", {"ID": identifier})

    def add(self, peer_url: str) -> None:
        """Add a member to the cluster.

        Raises:
            EtcdError: no peer could make the change, for example because there is no quorum.
        """
        self._change("add", {"peerURLs": [peer_url]})

    def _change(self, method: str, body: Mapping[str, object]) -> None:
        failure = EtcdError("no peer responds")
        for address in self.addresses:
            try:
                call_as_root(address, f"cluster/member/{method}", body, self.credentials)
            except EtcdError as error:
                failure = error
            else:
                return
        raise failure


def read_members(body: Mapping[str, object]) -> list[EtcdMember]:
    """Parse etcd's response to `member list`."""
    members = body.get("members")
    return [
        EtcdMember(
            identifier=str(member["ID"]),
            peer_url=str(member["peerURLs"][0]),
            started=bool(member.get("name")),
        )
        for member in (members if isinstance(members, list) else ())
    ]


def call_as_root(
    address: str, method: str, body: Mapping[str, object], credentials: Credentials | None
) -> dict[str, object]:
    """Call a method; as root if etcd requires a user, which it does once its users are set up.

    Raises:
        EtcdError: see `call`.
    """
    try:
        return call(address, method, body, credentials)
    except EtcdError as error:
        if not credentials or not lacks_user(error):
            raise
    token = authenticate(address, "root", credentials.password("root"), credentials)
    return call(address, method, body, credentials, token)


def authenticate(
    address: str, user: str, password: str, credentials: Credentials | None = None
) -> str:
    """Return a token for a user.

    Raises:
        EtcdError: etcd does not accept the password, or cannot authenticate users now.
    """
    body = {"name": user, "password": password}
    return str(call(address, "auth/authenticate", body, credentials)["token"])


def call(
    address: str,
    method: str,
    body: Mapping[str, object],
    credentials: Credentials | None = None,
    token: str = "",
) -> dict[str, object]:
    """Call a method of etcd's JSON gateway and return its response.

    Args:
        address: client URL of a member.
        method: path below `/v3/`, for example `cluster/member/list`.
        body: JSON body of the request.
        credentials: credentials of this member; None for an etcd without TLS.
        token: token of a user; empty if there is none.

    Raises:
        NoResponseError: no valid response within `REQUEST_SECONDS`.
        EtcdError: the member refused the call.
    """
    return _request(address, f"/v3/{method}", body, credentials, token)


def _request(
    address: str,
    path: str,
    body: Mapping[str, object],
    credentials: Credentials | None,
    token: str = "",
) -> dict[str, object]:
    """Send one request and return the response; see `call`."""
    url = f"{address}{path}"
    try:
        status, content = _exchange(address, path, json.dumps(body), credentials, token)
    except (OSError, http.client.HTTPException) as error:
        raise NoResponseError(f"{url}: {error}") from error
    if status != http.client.OK:
        raise EtcdError(f"{url}: {content.decode(errors='replace')}")
    try:
        return dict(json.loads(content))
    except ValueError as error:
        raise NoResponseError(f"{url}: the response is not JSON") from error


def _exchange(
    address: str, path: str, body: str, credentials: Credentials | None, token: str
) -> tuple[int, bytes]:
    """Return status and content of the response to one POST."""
    host = urlsplit(address).netloc
    connection = (
        http.client.HTTPSConnection(
            host, timeout=REQUEST_SECONDS, context=credentials.client_context()
        )
        if credentials
        else http.client.HTTPConnection(host, timeout=REQUEST_SECONDS)
    )
    try:
        connection.request("POST", path, body, {"Authorization": token} if token else {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
