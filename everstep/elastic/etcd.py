"""A small etcd v3 client over etcd's JSON gateway, standard library only.

Used by the membership agent. Works with etcd 3.4 to 3.6, which all serve `/v3/` beside gRPC. Why
not a package: python-etcd speaks the v2 API, which etcd 3.6 no longer has, and the v3 packages
bring grpc, which a training image should not need for five calls.

Names are resolved once and the addresses kept: a cluster whose only DNS server sat on the node that
was just evicted must not let a lease lapse. Connections are kept open, one per thread and endpoint.
"""

import base64
import http.client
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from everstep.errors import EverstepError

log = logging.getLogger(__name__)

REQUEST_SECONDS = (
    3.0  # one attempt at one endpoint; a disk stall of etcd is shorter, a dead node is not
)
RETRY_SECONDS = 0.1
COMPLAIN_AFTER_SECONDS = 10.0
RESOLVE_AGAIN_SECONDS = 10.0

_RETRY_CODES = frozenset({4, 8, 10, 14})  # gRPC: deadline exceeded, exhausted, aborted, unavailable
_UNAUTHENTICATED = 16
_NOT_FOUND = 5


class EtcdUnreachableError(EverstepError):
    """No endpoint answered within the caller's patience."""


class EtcdRefusedError(EverstepError):
    """etcd answered, and its answer was no.

    Attributes:
        code: gRPC status code, for instance 5 for a lease that is not there.
    """

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class EtcdOptions:
    """Where etcd is and how to speak to it.

    Attributes:
        endpoints: `host:port` of one or more members or of a service before them.
        certificate_authority: path of a PEM file; TLS is spoken where it or `tls` is set.
        certificate: path of the client's certificate, with `key` its private key.
        user: name for etcd's own authentication, with `password`.
        patience_seconds: how long a call keeps trying before it raises.
    """

    endpoints: tuple[str, ...]
    tls: bool = False
    certificate_authority: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    patience_seconds: float = 600.0


@dataclass(frozen=True)
class Entry:
    """One key with its value, the revisions that created and last changed it, and the lease it goes with (0: none)."""

    key: str
    value: str
    created: int
    modified: int
    lease: int


@dataclass(frozen=True)
class Change:
    """One event of a watch."""

    kind: Literal["put", "delete"]
    entry: Entry


@dataclass(frozen=True)
class _Target:
    """One address that may answer; `name` is what its certificate must be for."""

    name: str
    address: str
    port: int


class _Connection(http.client.HTTPConnection):
    """An HTTP connection to a known address that notices a dead peer without help from above."""

    def __init__(self, target: _Target, context: ssl.SSLContext | None, timeout: float) -> None:
        super().__init__(target.address, target.port, timeout=timeout)
        self._target, self._context = target, context

    def connect(self) -> None:
        """Open the socket, wrapped in TLS where it is asked for.

        TLS comes before the connection: a socket that is reset while it is being wrapped is one that
        nobody can close (`ssl.SSLSocket` raises before it is returned).
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 5000)
        if self._context:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self._target.name)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))


class Etcd:
    """Calls to etcd that fail over between endpoints and retry until the options' patience ends.

    Safe to use from several threads; each has connections of its own.
    """

    def __init__(self, options: EtcdOptions) -> None:
        if not options.endpoints:
            raise EverstepError("no etcd endpoint is given", "Pass --rdzv_endpoint=HOST:PORT.")
        self._options = options
        self._context = _tls_context(options)
        self._local = threading.local()
        self._targets: tuple[_Target, ...] = ()
        self._preferred = 0
        self._resolved_at = 0.0
        self._lock = threading.Lock()
        self._token: str | None = None

    def get(self, prefix: str, *, patience_seconds: float | None = None) -> tuple[list[Entry], int]:
        """Every key under a prefix and the revision at which they stood together."""
        answer = self.call(
            "kv/range",
            {"key": _text(prefix), "range_end": _text(_end(prefix))},
            patience_seconds=patience_seconds,
        )
        return [_entry(item) for item in answer.get("kvs", [])], int(answer["header"]["revision"])

    def put(
        self, key: str, value: str, lease: int = 0, *, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        """Set a key; it goes when its lease goes."""
        body = {"key": _text(key), "value": _text(value), "lease": str(lease)}
        self.call("kv/put", body, request_seconds=request_seconds)

    def delete(self, key: str) -> None:
        """Remove a key; no error where it is not there."""
        self.call("kv/deleterange", {"key": _text(key)})

    def put_if_unchanged(self, key: str, value: str, modified: int) -> bool:
        """Set a key only if its last change is revision `modified` (0: it does not exist yet).

        A lost answer may hide a success; the caller learns the truth from its watch.
        """
        same = {
            "key": _text(key),
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": str(modified),
        }
        put = {"request_put": {"key": _text(key), "value": _text(value)}}
        return bool(
            self.call("kv/txn", {"compare": [same], "success": [put]}).get("succeeded", False)
        )

    def put_while_unchanged(
        self,
        key: str,
        value: str,
        *,
        witness: str,
        modified: int,
        lease: int = 0,
        patience_seconds: float | None = None,
    ) -> bool:
        """Set a key only if another one's last change is still revision `modified`.

        Repeating it after a lost answer is harmless: it sets the same value.
        """
        same = {
            "key": _text(witness),
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": str(modified),
        }
        put = {"request_put": {"key": _text(key), "value": _text(value), "lease": str(lease)}}
        answer = self.call(
            "kv/txn", {"compare": [same], "success": [put]}, patience_seconds=patience_seconds
        )
        return bool(answer.get("succeeded", False))

    def grant(self, ttl_seconds: int) -> int:
        """Ask for a lease; its number."""
        return int(self.call("lease/grant", {"TTL": str(ttl_seconds)})["ID"])

    def keep_alive(self, lease: int, *, request_seconds: float, patience_seconds: float) -> bool:
        """Renew a lease; false where etcd says that it has lapsed."""
        answer = self.call(
            "lease/keepalive",
            {"ID": str(lease)},
            request_seconds=request_seconds,
            patience_seconds=patience_seconds,
        )
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    def seconds_left(self, lease: int, *, request_seconds: float) -> int | None:
        """How long a lease will stand if nobody renews it, in whole seconds, rounded down; None: it is gone.

        One attempt.

        Raises:
            EtcdRefusedError, EtcdUnreachableError: etcd does not say.
        """
        answer = self.call(
            "lease/timetolive",
            {"ID": str(lease)},
            request_seconds=request_seconds,
            patience_seconds=0.0,
        )
        # The gateway leaves a 0 out; of a lease that is gone it says -1.
        left = int(answer.get("TTL", 0))
        return left if left >= 0 else None

    def revoke(self, lease: int, *, patience_seconds: float = 2.0) -> None:
        """Give a lease back, and with it every key put under it; one that has lapsed is no error."""
        try:
            self.call("lease/revoke", {"ID": str(lease)}, patience_seconds=patience_seconds)
        except EtcdRefusedError as refused:
            if refused.code != _NOT_FOUND:
                raise

    def watch(self, prefix: str, revision: int, idle_seconds: float) -> Iterator[list[Change]]:
        """Changes under a prefix from a revision on, in etcd's order.

        Ends with an OSError when the connection breaks or is silent for `idle_seconds`: the caller
        reads the prefix afresh and watches again, which also covers a stream that died without a
        word.
        """
        create = {
            "key": _text(prefix),
            "range_end": _text(_end(prefix)),
            "start_revision": str(revision),
        }
        connection = _Connection(self._target(), self._context, idle_seconds)
        undo = ExitStack()
        undo.callback(connection.close)
        try:
            connection.request(
                "POST", "/v3/watch", json.dumps({"create_request": create}), self._headers()
            )
            response = connection.getresponse()
            undo.callback(response.close)  # it holds the socket beyond the connection's own close
            while line := response.readline():
                result = json.loads(line).get("result", {})
                if result.get("canceled"):
                    raise ConnectionError(
                        f"etcd ended the watch: {result.get('cancel_reason', 'no reason')}"
                    )
                if changes := [_change(event) for event in result.get("events", [])]:
                    yield changes
            raise ConnectionError("etcd closed the watch")
        except http.client.HTTPException as error:
            raise ConnectionError(f"the watch broke: {error!r}") from error
        except OSError:
            self._prefer_next()
            raise
        finally:
            undo.close()

    def close(self) -> None:
        """Close the calling thread's connection; a later call opens another."""
        self._drop()

    def call(
        self,
        path: str,
        body: Mapping[str, object],
        *,
        request_seconds: float = REQUEST_SECONDS,
        patience_seconds: float | None = None,
    ) -> dict[str, Any]:
        """One request of the gateway, tried at each endpoint in turn until one answers.

        Raises:
            EtcdRefusedError: etcd understood and said no.
            EtcdUnreachableError: nobody answered for `patience_seconds`.
        """
        patience = self._options.patience_seconds if patience_seconds is None else patience_seconds
        began, complained = time.monotonic(), False
        while True:
            try:
                return self._once(path, body, request_seconds)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._drop()
                self._prefer_next()
                waited = time.monotonic() - began
                if waited >= patience:
                    raise self._unreachable(waited, error) from error
                if waited >= COMPLAIN_AFTER_SECONDS and not complained:
                    complained = True
                    log.error(
                        "%s; still trying, for %.0f s in all",
                        self._unreachable(waited, error).what,
                        patience,
                    )
                time.sleep(RETRY_SECONDS)

    def _once(
        self, path: str, body: Mapping[str, object], request_seconds: float
    ) -> dict[str, Any]:
        """One attempt at the preferred endpoint; a temporary refusal becomes an OSError."""
        connection = self._connection(request_seconds)
        connection.request("POST", f"/v3/{path}", json.dumps(body), self._headers())
        response = connection.getresponse()
        answer = json.loads(response.read() or b"{}")
        error = answer.get("error") if isinstance(answer.get("error"), dict) else answer
        code = int(error.get("code", error.get("grpc_code", 0)) or 0)
        if response.status == http.client.OK and not code:
            return dict(answer)
        message = str(error.get("message", error))
        if code == _UNAUTHENTICATED and self._token:
            self._token = None
            raise ConnectionError("the token has expired")
        if code in _RETRY_CODES or (
            not code and response.status >= http.client.INTERNAL_SERVER_ERROR
        ):
            raise ConnectionError(message)
        raise EtcdRefusedError(f"etcd refused {path}: {message}", code)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._options.user:
            headers["Authorization"] = self._token or self._authenticate(self._options.user)
        return headers

    def _authenticate(self, user: str) -> str:
        connection = _Connection(self._target(), self._context, REQUEST_SECONDS)
        try:
            body = json.dumps({"name": user, "password": self._options.password or ""})
            connection.request("POST", "/v3/auth/authenticate", body)
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if "token" not in answer:
            raise EtcdRefusedError(f"etcd does not accept user {user!r}", _UNAUTHENTICATED)
        self._token = str(answer["token"])
        return self._token

    def _connection(self, timeout: float) -> _Connection:
        target = self._target()
        kept: tuple[_Target, _Connection] | None = getattr(self._local, "kept", None)
        if kept is None or kept[0] != target:
            self._drop()
            self._local.kept = kept = (target, _Connection(target, self._context, timeout))
        connection = kept[1]
        connection.timeout = timeout
        if connection.sock:
            connection.sock.settimeout(timeout)
        return connection

    def _drop(self) -> None:
        kept: tuple[_Target, _Connection] | None = getattr(self._local, "kept", None)
        if kept:
            with suppress(OSError):
                kept[1].close()
            self._local.kept = None

    def _target(self) -> _Target:
        with self._lock:
            if not self._targets:
                self._targets = _resolve(self._options.endpoints)
                self._resolved_at = time.monotonic()
            return self._targets[self._preferred % len(self._targets)]

    def _prefer_next(self) -> None:
        """Turn to another address; now and then look the names up again, without waiting for the answer."""
        with self._lock:
            self._preferred += 1
            if time.monotonic() - self._resolved_at < RESOLVE_AGAIN_SECONDS:
                return
            self._resolved_at = time.monotonic()
        threading.Thread(target=self._resolve_again, name="etcd-resolve", daemon=True).start()

    def _resolve_again(self) -> None:
        with suppress(OSError):  # DNS is away: the addresses known are the best there are
            targets = _resolve(self._options.endpoints)
            with self._lock:
                self._targets = targets

    def _unreachable(self, waited: float, error: Exception) -> EtcdUnreachableError:
        where = ", ".join(self._options.endpoints)
        return EtcdUnreachableError(
            f"etcd at {where} has not answered for {waited:.0f} s ({type(error).__name__}: {error})",
            "Check that its pods run, that the address is right and that no network policy forbids the way.",
        )


def _tls_context(options: EtcdOptions) -> ssl.SSLContext | None:
    if not (options.tls or options.certificate_authority or options.certificate):
        return None
    context = ssl.create_default_context(cafile=options.certificate_authority)
    if options.certificate:
        context.load_cert_chain(options.certificate, options.key)
    return context


def _resolve(endpoints: tuple[str, ...]) -> tuple[_Target, ...]:
    """Every address behind the endpoints; raises the OSError of the first name only if none has any."""
    targets: list[_Target] = []
    failure: OSError | None = None
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        host = host.strip("[]") or endpoint
        try:
            found = socket.getaddrinfo(
                host, int(port) if port.isdigit() else 2379, type=socket.SOCK_STREAM
            )
        except OSError as error:
            failure = failure or error
            continue
        targets += [_Target(host, str(address[0]), int(address[1])) for *_, address in found]
    if not targets:
        raise failure or OSError(f"no address for {endpoints}")
    return tuple(dict.fromkeys(targets))


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _end(prefix: str) -> str:
    """The first key after every key with this prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _entry(item: Mapping[str, str]) -> Entry:
    def plain(field_name: str) -> str:
        return base64.b64decode(item.get(field_name, "")).decode()

    return Entry(
        plain("key"),
        plain("value"),
        int(item.get("create_revision", 0)),
        int(item.get("mod_revision", 0)),
        int(item.get("lease", 0)),
    )


def _change(event: Mapping[str, Any]) -> Change:
    return Change("delete" if event.get("type") == "DELETE" else "put", _entry(event["kv"]))
