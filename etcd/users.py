"""Users of etcd: `python3 -m etcd.users` sets them up next to a member, and again when etcd has lost them.

It runs as a second container of each member's pod. An etcd in memory can return empty, without
users; every member therefore checks each second, and its pod is ready only while authentication is
enabled, so that the service sends no client to a member without users. All requests may be repeated,
and several members may make them at the same time: authentication is enabled last, by a member that
has set up all users.

Users: `root`, which only the members' containers use, and `agent` of the workers, which may read and write
the keys of its run.
"""

import argparse
import base64
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from etcd.gateway import Credentials, EtcdError, authenticate, call, lacks_user
from etcd.http_server import MemberHttpServer

CHECK_SECONDS = 1.0
ROOT, AGENT, RUN_ROLE = "root", "agent", "run"
_EXISTS = "already exists"
_WRONG_PASSWORD = "invalid user ID or password"  # noqa: S105 - a message of etcd
REPAIR_OF_ROOT = (
    "the data of etcd has another password of root than the Secret etcd-members: set root-password of this Secret to "
    "the former password; or, if it is lost, delete the disks and the pods of all members at the same time: etcd "
    "starts empty, and training continues"
)


@dataclass
class Users:
    """The users of an etcd cluster, as one member sets them up.

    Attributes:
        address: client URL of the member.
        run: name of the run.
        credentials: credentials of the member.
    """

    address: str
    run: str
    credentials: Credentials
    _last_passwords: tuple[str, str] | None = None  # passwords with which the users were set up
    _root_password: str = ""  # password of root that etcd has accepted

    def ensure(self) -> None:
        """Set up the users if etcd has none, or if a password was replaced.

        Raises:
            EtcdError: etcd is unavailable, or refuses a change.
        """
        passwords = self.credentials.password(ROOT), self.credentials.password(AGENT)
        enabled = self.requires_user()
        if enabled and self._last_passwords == passwords:
            return
        token = self._authenticate_root(passwords[0]) if enabled else ""
        self._set_up(token, passwords)
        if not enabled:
            self._call("auth/enable", {})
            print(f"set up the users of the run {self.run}", flush=True)
        self._root_password, self._last_passwords = passwords[0], passwords

    def requires_user(self) -> bool:
        """Return True if etcd requires a user; this reads the member's own data."""
        try:
            self._call("kv/range", {"key": _base64("/"), "serializable": True})
        except EtcdError as error:
            if lacks_user(error):
                return True
            raise
        return False

    def _authenticate_root(self, password: str) -> str:
        """Return a token of root, whose password may have to be replaced first."""
        try:
            return self._authenticate(ROOT, password)
        except EtcdError as error:
            if _WRONG_PASSWORD not in str(error):
                raise
            if not self._root_password:
                raise EtcdError(f"{error}; {REPAIR_OF_ROOT}") from error
        token = self._authenticate(ROOT, self._root_password)
        self._call("auth/user/changepw", {"name": ROOT, "password": password}, token)
        return self._authenticate(ROOT, password)

    def _set_up(self, token: str, passwords: tuple[str, str]) -> None:
        """Create missing roles and users, and correct roles and users that differ."""
        self._add("role", token, {"name": ROOT})
        self._add("role", token, {"name": RUN_ROLE})
        self._permit(token)
        for user, role, password in ((ROOT, ROOT, passwords[0]), (AGENT, RUN_ROLE, passwords[1])):
            secret = {"name": user, "password": password}
            if not self._add("user", token, secret) and not self._is_current(secret, token):
                self._call("auth/user/changepw", secret, token)
            self._call("auth/user/grant", {"user": user, "role": role}, token)

    def _permit(self, token: str) -> None:
        """Grant the role access to the keys of the run only."""
        prefix = f"/everstep/{self.run}/"
        expected = {"key": _base64(prefix), "range_end": _base64(f"/everstep/{self.run}0")}
        permissions: Any = self._call("auth/role/get", {"role": RUN_ROLE}, token).get("perm", [])
        ranges = [
            {"key": permission["key"], "range_end": permission.get("range_end", "")}
            for permission in permissions
        ]
        if expected not in ranges:
            new_permission = {"permType": "READWRITE", **expected}
            self._call("auth/role/grant", {"name": RUN_ROLE, "perm": new_permission}, token)
        for key_range in ranges:
            if key_range != expected:
                self._call("auth/role/revoke", {"role": RUN_ROLE, **key_range}, token)

    def _add(self, kind: str, token: str, body: Mapping[str, object]) -> bool:
        """Add a role or a user; return False if it exists."""
        try:
            self._call(f"auth/{kind}/add", body, token)
        except EtcdError as error:
            if _EXISTS not in str(error):
                raise
            return False
        return True

    def _is_current(self, secret: Mapping[str, str], token: str) -> bool:
        """Return True if etcd accepts a user's password; False while authentication is disabled."""
        if not token:
            return False
        try:
            self._authenticate(secret["name"], secret["password"])
        except EtcdError as error:
            if _WRONG_PASSWORD not in str(error):
                raise
            return False
        return True

    def _authenticate(self, user: str, password: str) -> str:
        return authenticate(self.address, user, password, self.credentials)

    def _call(self, method: str, body: Mapping[str, object], token: str = "") -> dict[str, object]:
        return call(self.address, method, body, self.credentials, token)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass
class Readiness:
    """The state of the users' set-up, for the kubelet's HTTP probes."""

    ready: bool = False

    def server(self, port: int) -> MemberHttpServer:
        """Return a server that responds with 200 if ready, else with 503."""
        readiness = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5  # seconds after which an idle connection is closed

            def do_GET(self) -> None:
                ready = readiness.ready
                self.send_response(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing: a probe arrives every few seconds."""

        return MemberHttpServer("", port, Handler)


def main(arguments: Sequence[str]) -> None:
    """Keep the users of a member's etcd set up until the container ends."""
    parser = argparse.ArgumentParser(prog="python3 -m etcd.users", description=__doc__)
    parser.add_argument("--address", required=True, help="client URL of the member")
    parser.add_argument("--run", required=True, help="name of the run")
    parser.add_argument("--credentials", type=Path, required=True, help="folder of the Secret")
    parser.add_argument(
        "--health-port", type=int, required=True, help="port of the readiness probe"
    )
    args = parser.parse_args(arguments)
    # SIGTERM has no default action for PID 1 of a container: without a handler, the pod would
    # end only after its grace period.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    credentials = Credentials(folder=args.credentials)
    users, readiness = Users(args.address, args.run, credentials), Readiness()
    threading.Thread(target=readiness.server(args.health_port).serve_forever, daemon=True).start()
    reported_reason = ""
    while True:
        try:
            users.ensure()
            readiness.ready, reason = True, ""
        except (EtcdError, OSError) as error:  # OSError: the Secret is being replaced
            readiness.ready, reason = False, str(error)
        if reason and reason != reported_reason:
            print(reason, flush=True)
        reported_reason = reason
        time.sleep(CHECK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
