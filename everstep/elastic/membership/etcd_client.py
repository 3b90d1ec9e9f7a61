"""A small etcd v3 client over etcd's JSON gateway, standard library only.

The membership agent uses this client. It works with etcd 3.4 to 3.6, which all serve `/v3/` in addition to gRPC.
Why not a package: python-etcd uses the v2 API, which etcd 3.6 no longer has, and the v3 packages
require grpc, which a training image should not need for ten calls.

Resolved addresses are kept, and names are resolved again only in the background: a lease must not lapse because a
cluster's only DNS server was on the node that was just evicted. Each thread keeps one connection open.
"""

import base64
import http.client
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal

from everstep.elastic.membership.etcd_connection import (
    Connection,
    EtcdAddress,
    EtcdOptions,
    check_files,
    password,
    resolve,
    tls_context,
)
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

REQUEST_SECONDS = 3.0
"""Timeout of one attempt at one endpoint: longer than a disk stall of etcd."""
RETRY_INTERVAL_SECONDS = 0.1
WARN_AFTER_SECONDS = 10.0
RESOLVE_AGAIN_SECONDS = 10.0

_RETRY_CODES = frozenset({4, 8, 10, 14})  # gRPC: deadline exceeded, exhausted, aborted, unavailable
_INVALID_ARGUMENT = 3  # includes a wrong password
_UNAUTHENTICATED = 16
_OLD_REVISION = "revision of auth store is old"  # users changed while the request was under way
_NO_SPACE = "database space exceeded"  # the alarm NOSPACE, which only an administrator disarms
_REPAIR_OF_SPACE = (
    "Its database is full: run etcdctl compact, etcdctl defrag and etcdctl alarm disarm as docs/operations.md "
    "describes under 'Commands for etcd'."
)
_REPAIR_OF_MEMBERS = (
    "Check that most of its members run and reach each other, and that its users are set up."
)
NOT_FOUND = 5
_REQUIRE_LEADER = {"Grpc-Metadata-Hasleader": "true"}
"""Header with which etcd ends a watch on a member without a leader: cut off from the others, it would be silent."""


class EtcdUnreachableError(EverstepError):
    """No endpoint responded within the caller's timeout."""


class EtcdRefusedError(EverstepError):
    """etcd refused the request.

    Attributes:
        code: gRPC status code, for instance 5 for a lease that does not exist.
    """

    def __init__(self, problem: str, code: int) -> None:
        super().__init__(problem)
        self.code = code


class _RefusedForNowError(ConnectionError):
    """etcd responded that it cannot carry out the request now, for instance because it has no leader."""


class _TokenRefusedError(_RefusedForNowError):
    """The token has expired, or the member that checked it has restarted."""


@dataclass(frozen=True)
class KeyValue:
    """One key with its value, the revisions that created and last changed it, and its lease (0: none)."""

    key: str
    value: str
    create_revision: int
    mod_revision: int
    lease: int


@dataclass(frozen=True)
class Reading:
    """The keys of a range at one moment.

    Attributes:
        entries: the keys.
        revision: revision of the store.
        cluster: ID of the cluster. An etcd that was wiped may have another one, or the same.
    """

    entries: list[KeyValue]
    revision: int
    cluster: str = ""


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch."""

    kind: Literal["put", "delete"]
    entry: KeyValue


class Etcd:
    """Client of etcd whose calls fail over between endpoints and retry until the timeout.

    Safe to use from several threads; each has its own connection.

    Args:
        options: endpoints and credentials.

    Attributes:
        cluster: ID of the cluster that sent the last response; empty before the first.

    Raises:
        EverstepError: there is no endpoint, or a file with credentials cannot be used.
    """

    def __init__(self, options: EtcdOptions) -> None:
        if not options.endpoints:
            raise EverstepError("no etcd endpoint is given", "Pass --rdzv_endpoint=HOST:PORT.")
        self._options = options
        check_files(options)
        self._local = threading.local()
        self._targets: tuple[EtcdAddress, ...] = ()
        # Agents begin at different addresses, which spreads their requests over the members.
        self._preferred = random.randrange(2**16)  # noqa: S311 - not secret
        self._resolved_at = 0.0
        self._lock = threading.Lock()
        self._token: str | None = None
        self._password_accepted = False  # whether etcd has accepted the password once
        self.cluster = ""

    def get(
        self, prefix: str, *, end: str | None = None, retry_seconds: float | None = None
    ) -> tuple[list[KeyValue], int]:
        """Return every key under a prefix, and the revision of the store at that moment; see `read`."""
        reading = self.read(prefix, end=end, retry_seconds=retry_seconds)
        return reading.entries, reading.revision

    def read(
        self, prefix: str, *, end: str | None = None, retry_seconds: float | None = None
    ) -> Reading:
        """Return every key under a prefix.

        Args:
            prefix: prefix of the keys, or the first key of a range.
            end: first key after the range; None: all keys with the prefix.
            retry_seconds: total time of all attempts.
        """
        response = self.call(
            "kv/range",
            {"key": _base64(prefix), "range_end": _base64(end or _range_end(prefix))},
            retry_seconds=retry_seconds,
        )
        header = response["header"]
        return Reading(
            [_entry(item) for item in response.get("kvs", [])],
            int(header["revision"]),
            str(header.get("cluster_id", "")),
        )

    def put(self, key: str, value: str, lease: int = 0, *, mod_revision: int = 0) -> int:
        """Set a key; it is removed with its lease.

        Each attempt is conditional on the key's observed modification revision. Otherwise a member of etcd that was
        suspended could carry out an attempt that this client gave up, and undo later changes.

        Args:
            key: the key to set.
            value: its new value.
            lease: its lease; 0 for none.
            mod_revision: revision of the newest change of the key that the caller has observed.

        Returns:
            Revision of this change.
        """
        put = {"request_put": {"key": _base64(key), "value": _base64(value), "lease": str(lease)}}
        read = {"request_range": {"key": _base64(key)}}
        while True:
            condition = _unchanged(key, mod_revision)
            transaction = {"compare": [condition], "success": [put], "failure": [read]}
            response = self.call("kv/txn", transaction)
            if response.get("succeeded", False):
                return int(response["header"]["revision"])
            entries = [
                _entry(item) for item in response["responses"][0]["response_range"].get("kvs", [])
            ]
            if any((entry.value, entry.lease) == (value, lease) for entry in entries):
                return entries[0].mod_revision  # the response to an earlier attempt was lost
            mod_revision = entries[0].mod_revision if entries else 0

    def delete(self, key: str) -> None:
        """Remove a key; no error if it does not exist."""
        self.call("kv/deleterange", {"key": _base64(key)})

    def put_if_unchanged(self, key: str, value: str, mod_revision: int) -> bool:
        """Set a key only if its last change is revision `mod_revision` (0: it does not exist yet).

        A lost response may hide a success; the caller observes the result in its watch.
        """
        put = {"request_put": {"key": _base64(key), "value": _base64(value)}}
        transaction = {"compare": [_unchanged(key, mod_revision)], "success": [put]}
        return bool(self.call("kv/txn", transaction).get("succeeded", False))

    def put_while_unchanged(
        self,
        key: str,
        value: str,
        *,
        guard_key: str,
        mod_revision: int,
        own_mod_revision: int | None = None,
        lease: int = 0,
        retry_seconds: float | None = None,
    ) -> bool:
        """Set a key only if the last change of another key is still revision `mod_revision`.

        The call may be repeated after a lost response: it sets the same value.

        Args:
            key: the key to set.
            value: its new value.
            guard_key: the other key, whose modification revision the transaction compares.
            mod_revision: revision of the other key's last change.
            own_mod_revision: revision that the last change of `key` itself must have, 0 if the key must not
                exist; None for any. After a lost response the repeated request then fails: read the key.
            lease: lease of the key; 0 for none.
            retry_seconds: time for which the call is retried.
        """
        revisions = {guard_key: mod_revision}
        if own_mod_revision is not None:
            revisions[key] = own_mod_revision
        conditions = [_unchanged(name, revision) for name, revision in revisions.items()]
        put = {"request_put": {"key": _base64(key), "value": _base64(value), "lease": str(lease)}}
        response = self.call(
            "kv/txn", {"compare": conditions, "success": [put]}, retry_seconds=retry_seconds
        )
        return bool(response.get("succeeded", False))

    def put_and_delete(
        self,
        key: str,
        value: str,
        *,
        mod_revision: int,
        create_revisions: Mapping[str, int],
        keys_to_delete: Collection[str],
        retry_seconds: float,
    ) -> list[KeyValue] | None:
        """Set a key and delete others, if the key is unchanged and no key of `create_revisions` was removed since.

        Args:
            key: the key to set.
            value: its new value.
            mod_revision: revision of the key's last change.
            create_revisions: revisions at which other keys were created, by key.
            keys_to_delete: keys to delete.
            retry_seconds: time for which the call is retried.

        Returns:
            The deleted keys; None if a key differs, which includes a success whose response was lost.
        """
        conditions = [_unchanged(key, mod_revision)]
        for name, revision in create_revisions.items():
            condition = {"target": "CREATE", "result": "EQUAL", "create_revision": str(revision)}
            conditions.append({"key": _base64(name), **condition})
        put = {"request_put": {"key": _base64(key), "value": _base64(value)}}
        deletions = [
            {"request_delete_range": {"key": _base64(name), "prev_kv": True}}
            for name in keys_to_delete
        ]
        transaction = {"compare": conditions, "success": [put, *deletions]}
        response = self.call("kv/txn", transaction, retry_seconds=retry_seconds)
        if not response.get("succeeded", False):
            return None
        responses = [part.get("response_delete_range", {}) for part in response["responses"]]
        return [_entry(item) for part in responses for item in part.get("prev_kvs", [])]

    def grant(self, ttl_seconds: int) -> int:
        """Grant a lease; return its ID."""
        return int(self.call("lease/grant", {"TTL": str(ttl_seconds)})["ID"])

    def keep_alive(self, lease: int, *, request_seconds: float, retry_seconds: float) -> bool:
        """Renew a lease; return False if it has lapsed."""
        response = self.call(
            "lease/keepalive",
            {"ID": str(lease)},
            request_seconds=request_seconds,
            retry_seconds=retry_seconds,
        )
        return int(response.get("result", {}).get("TTL", 0)) > 0

    def seconds_left(self, lease: int, *, request_seconds: float) -> int | None:
        """Return how long a lease stays valid without renewal, in seconds, rounded down; None if it has lapsed.

        There is only one attempt.

        Raises:
            EtcdRefusedError: etcd refused the request.
            EtcdUnreachableError: etcd did not respond.
        """
        response = self.call(
            "lease/timetolive",
            {"ID": str(lease)},
            request_seconds=request_seconds,
            retry_seconds=0.0,
        )
        # The gateway omits a 0; for a lease that is gone it returns -1.
        remaining_seconds = int(response.get("TTL", 0))
        return remaining_seconds if remaining_seconds >= 0 else None

    def revoke(self, lease: int, *, retry_seconds: float = 2.0) -> None:
        """Revoke a lease, and with it every key put under it; no error if it has lapsed."""
        try:
            self.call("lease/revoke", {"ID": str(lease)}, retry_seconds=retry_seconds)
        except EtcdRefusedError as error:
            if error.code != NOT_FOUND:
                raise

    def watch(
        self,
        prefix: str,
        revision: int,
        idle_seconds: float,
        *,
        end: str | None = None,
        cluster: str = "",
        on_open: Callable[[Connection], None] = lambda _: None,
    ) -> Generator[list[WatchEvent], None, None]:
        """Yield the changes under a prefix from a revision on, in etcd's order.

        The watch ends only with an error: the caller then reads the prefix again and starts another watch, which also
        covers a stream that died without notice.

        Args:
            prefix: prefix of the keys, or the first key of a range.
            revision: revision of the first change.
            idle_seconds: maximum time without a message.
            end: first key after the range; None: all keys with the prefix.
            cluster: ID of the cluster to which the revision belongs; empty for no check. If etcd is another cluster,
                or has not reached that revision yet, it was replaced: the watch ends instead of being silent.
            on_open: called with the connection, which another thread may `interrupt`.

        Raises:
            OSError: the connection broke or was silent for `idle_seconds`, or etcd refused or ended the watch.
            EtcdRefusedError: etcd does not accept the password, and never has.
        """
        create = {
            "key": _base64(prefix),
            "range_end": _base64(end or _range_end(prefix)),
            "start_revision": str(revision),
        }
        target = self._target()
        connection = self._open(target, min(REQUEST_SECONDS, idle_seconds))
        cleanup = ExitStack()
        cleanup.callback(connection.close)
        is_open = False
        try:
            headers = {**self._headers(target), **_REQUIRE_LEADER}
            connection.request("POST", "/v3/watch", json.dumps({"create_request": create}), headers)
            on_open(connection)
            stream = connection.sock
            response = connection.getresponse()
            # Closing the connection does not close the socket of the response.
            cleanup.callback(response.close)
            if response.status != http.client.OK:
                raise ConnectionError(
                    f"etcd or a proxy refused the watch with status {response.status}"
                )
            stream.settimeout(idle_seconds)
            is_open = True
            while line := response.readline():
                result = json.loads(line).get("result", {})
                if result.get("canceled"):
                    raise ConnectionError(
                        f"etcd ended the watch: {result.get('cancel_reason', 'no reason')}"
                    )
                if result.get("created") and cluster:
                    _check_store(result.get("header", {}), cluster, revision)
                if changes := [_change(event) for event in result.get("events", [])]:
                    yield changes
            raise ConnectionError("etcd closed the watch")
        except (http.client.HTTPException, ValueError) as error:  # ValueError: not JSON
            raise ConnectionError(f"the watch broke: {error!r}") from error
        except OSError as error:
            # No switch after a silence, which is normal: the next read of the keys shows whether etcd responds.
            if not (is_open and isinstance(error, TimeoutError)):
                self._prefer_next(target)
            raise
        finally:
            cleanup.close()

    def close(self) -> None:
        """Close the calling thread's connection; a later call opens another."""
        self._drop_connection()

    def call(
        self,
        path: str,
        body: Mapping[str, object],
        *,
        request_seconds: float = REQUEST_SECONDS,
        retry_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Send one request to the gateway, to each endpoint in turn until one responds.

        Raises:
            EtcdRefusedError: etcd refused the request.
            EtcdUnreachableError: no endpoint responded for `retry_seconds`.
        """
        limit_seconds = self._options.retry_seconds if retry_seconds is None else retry_seconds
        started_at, warned = time.monotonic(), False
        while True:
            target = None
            try:
                target = self._target()
                return self._attempt_with_token(target, path, body, request_seconds)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._drop_connection()
                self._prefer_next(target)
                waited_seconds = time.monotonic() - started_at
                if waited_seconds >= limit_seconds:
                    raise self._unreachable(waited_seconds, error) from error
                if waited_seconds >= WARN_AFTER_SECONDS and not warned:
                    warned = True
                    log.error(
                        "%s; still trying, for %.0f s in total",
                        self._unreachable(waited_seconds, error).problem,
                        limit_seconds,
                    )
                time.sleep(RETRY_INTERVAL_SECONDS)

    def _attempt_with_token(
        self, target: EtcdAddress, path: str, body: Mapping[str, object], request_seconds: float
    ) -> dict[str, Any]:
        """Make one attempt at an address, and another with a new token if the token is refused."""
        try:
            return self._attempt(target, path, body, request_seconds)
        except _TokenRefusedError:
            return self._attempt(target, path, body, request_seconds)

    def _attempt(
        self, target: EtcdAddress, path: str, body: Mapping[str, object], request_seconds: float
    ) -> dict[str, Any]:
        """Send one request; a temporary refusal becomes an OSError."""
        connection, headers = self._connection(target, request_seconds), self._headers(target)
        connection.request("POST", f"/v3/{path}", json.dumps(body), headers)
        response = connection.getresponse()
        content = json.loads(response.read() or b"{}")
        error = content.get("error") if isinstance(content.get("error"), dict) else content
        code = int(error.get("code", error.get("grpc_code", 0)) or 0)
        if response.status == http.client.OK and not code:
            self._note_cluster(content)
            return dict(content)
        message = str(error.get("message", error))
        if code == _UNAUTHENTICATED and (token := headers.get("Authorization")):
            if token == self._token:  # another thread may have replaced it already
                self._token = None
            raise _TokenRefusedError("etcd refuses the token")
        unavailable = not code and response.status >= http.client.INTERNAL_SERVER_ERROR
        if code in _RETRY_CODES or unavailable or _OLD_REVISION in message:
            raise _RefusedForNowError(message)
        raise EtcdRefusedError(f"etcd refused {path}: {message}", code)

    def _note_cluster(self, content: Mapping[str, Any]) -> None:
        header = content.get("result", content).get("header", {})
        self.cluster = str(header.get("cluster_id", self.cluster))

    def _headers(self, target: EtcdAddress) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._options.user:
            headers["Authorization"] = self._token or self._authenticate(target, self._options.user)
        return headers

    def _authenticate(self, target: EtcdAddress, user: str) -> str:
        """Return a new token.

        An etcd that has lost its data has no users until they are set up again, and a password may be
        replaced during a run. Both are temporary for a client whose password was accepted before.

        Raises:
            EtcdRefusedError: etcd does not accept the password, and never has.
            OSError: etcd cannot authenticate users now.
        """
        connection = self._open(target, REQUEST_SECONDS)
        try:
            body = json.dumps({"name": user, "password": password(self._options)})
            connection.request("POST", "/v3/auth/authenticate", body)
            response = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if "token" in response:
            self._token, self._password_accepted = str(response["token"]), True
            return self._token
        refusal = f"etcd does not accept user {user!r}: {response.get('message', 'no reason')}"
        is_wrong_password = (
            int(response.get("code", 0)) == _INVALID_ARGUMENT and _OLD_REVISION not in refusal
        )
        if is_wrong_password and not self._password_accepted:
            raise EtcdRefusedError(refusal, _UNAUTHENTICATED)
        raise _RefusedForNowError(refusal)

    def _open(self, target: EtcdAddress, seconds: float) -> Connection:
        """Return a new connection; read the certificates again, since they may have been replaced."""
        return Connection(target, tls_context(self._options), seconds)

    def _connection(self, target: EtcdAddress, timeout: float) -> Connection:
        cached: tuple[EtcdAddress, Connection] | None = getattr(self._local, "cached", None)
        if cached is None or cached[0] != target:
            self._drop_connection()
            self._local.cached = cached = (target, self._open(target, timeout))
        connection = cached[1]
        connection.timeout = timeout
        if connection.sock:
            connection.sock.settimeout(timeout)
        return connection

    def _drop_connection(self) -> None:
        cached: tuple[EtcdAddress, Connection] | None = getattr(self._local, "cached", None)
        if cached:
            with suppress(OSError):
                cached[1].close()
            self._local.cached = None

    def _target(self) -> EtcdAddress:
        with self._lock:
            if not self._targets:
                self._targets = resolve(self._options.endpoints)
                self._resolved_at = time.monotonic()
            return self._targets[self._preferred % len(self._targets)]

    def _prefer_next(self, failed: EtcdAddress | None) -> None:
        """Switch from an address that has failed to the next one, unless another thread has switched already.

        From time to time, resolve the names again, without waiting for it.
        """
        with self._lock:
            if self._targets and failed == self._targets[self._preferred % len(self._targets)]:
                self._preferred += 1
            if time.monotonic() - self._resolved_at < RESOLVE_AGAIN_SECONDS:
                return
            self._resolved_at = time.monotonic()
        threading.Thread(target=self._resolve_again, name="etcd-resolve", daemon=True).start()

    def _resolve_again(self) -> None:
        with suppress(OSError):  # DNS is unavailable: the current addresses remain in use
            targets = resolve(self._options.endpoints)
            with self._lock:
                self._targets = targets

    def _unreachable(self, waited_seconds: float, error: Exception) -> EtcdUnreachableError:
        endpoints = ", ".join(self._options.endpoints)
        if isinstance(error, _RefusedForNowError):
            return EtcdUnreachableError(
                f"etcd at {endpoints} has refused requests for {waited_seconds:.0f} s: {error}",
                _REPAIR_OF_SPACE if _NO_SPACE in str(error) else _REPAIR_OF_MEMBERS,
            )
        return EtcdUnreachableError(
            f"etcd at {endpoints} has not responded for {waited_seconds:.0f} s ({type(error).__name__}: {error})",
            "Check that its pods run, that the address is right and that no network policy blocks the connection.",
        )


def _check_store(header: Mapping[str, str], cluster: str, revision: int) -> None:
    """Raise a ConnectionError if the store of a watch is another cluster, or has not reached the watch's revision."""
    if header.get("cluster_id", cluster) != cluster:
        raise ConnectionError(
            f"etcd is another cluster, {header['cluster_id']} instead of {cluster}"
        )
    if int(header.get("revision", revision)) < revision - 1:
        raise ConnectionError(
            f"etcd has gone back from revision {revision - 1} to {header['revision']}"
        )


def _unchanged(key: str, mod_revision: int) -> dict[str, str]:
    """Return the condition that a key's last change has this revision, 0 for a key that does not exist."""
    return {
        "key": _base64(key),
        "target": "MOD",
        "result": "EQUAL",
        "mod_revision": str(mod_revision),
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _range_end(prefix: str) -> str:
    """Return the first key after every key with this prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _entry(item: Mapping[str, str]) -> KeyValue:
    def decoded(field_name: str) -> str:
        # Other programs may write other bytes, which must not end a client that reads them.
        return base64.b64decode(item.get(field_name, "")).decode(errors="backslashreplace")

    return KeyValue(
        decoded("key"),
        decoded("value"),
        int(item.get("create_revision", 0)),
        int(item.get("mod_revision", 0)),
        int(item.get("lease", 0)),
    )


def _change(event: Mapping[str, Any]) -> WatchEvent:
    return WatchEvent("delete" if event.get("type") == "DELETE" else "put", _entry(event["kv"]))
