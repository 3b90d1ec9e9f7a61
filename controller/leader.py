"""Leader election with a Lease: one of several controllers acts, the others stand by.

kopf's peering needs a custom resource, and two peers of equal priority stop each other. Kubernetes' own
controllers use a `coordination.k8s.io` Lease, too. Two leaders at the same time are harmless for a moment:
pods have fixed names, and a status is written only if it has not changed since it was read.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from controller.client import CONFLICT, NOT_FOUND, ApiError, Json, KubernetesClient
from everstep.catalog.names import MAINTAINED_CONTROLLER

log = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_SECONDS = 5.0
RENEW_DEADLINE_SECONDS = 10.0
REQUEST_SECONDS = 2.0
"""Timeout of one request. An attempt makes two requests, so an attempt that begins at the deadline ends before the
lease expires."""


@dataclass
class Candidate:
    """A candidate for leadership.

    Another candidate's lease has expired if it did not change for its duration on this machine's
    clock: the clocks of two machines may differ.

    Attributes:
        client: the API server; each request must end within `REQUEST_SECONDS`, without retries.
        namespace: namespace of the Lease.
        identity: name of this candidate in the Lease.
        clock: function that returns seconds, from any origin.
        renewed_at: time before the requests that last acquired or renewed the lease.
    """

    client: KubernetesClient
    namespace: str
    identity: str
    clock: Callable[[], float] = time.monotonic
    renewed_at: float = field(default=0.0, init=False)
    _observed: tuple[str, float] = field(default=("", 0.0))

    def try_to_lead(self) -> bool:
        """Acquire or renew the lease; return True if this candidate holds it.

        Raises:
            ApiError: the API server refused a request for another reason than a conflict.
            urllib3.exceptions.HTTPError: the API server cannot be reached or does not respond in time.
        """
        started_at = self.clock()
        is_leader = self._acquire_or_renew()
        if is_leader:
            self.renewed_at = started_at
        return is_leader

    def _acquire_or_renew(self) -> bool:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        try:
            lease = self._read(f"{path}/{MAINTAINED_CONTROLLER}")
            if lease is None:
                metadata = {"name": MAINTAINED_CONTROLLER, "namespace": self.namespace}
                body = {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": metadata,
                }
                self.client.request("POST", path, {**body, "spec": self._lease_spec(None)})
                return True
            spec = lease.get("spec") or {}
            if not self._is_available(lease["metadata"]["resourceVersion"], spec):
                return False
            self.client.request(
                "PUT", f"{path}/{MAINTAINED_CONTROLLER}", {**lease, "spec": self._lease_spec(spec)}
            )
        except ApiError as error:
            if error.code == CONFLICT:  # another candidate was faster
                return False
            raise
        return True

    def release(self) -> None:
        """Release the lease, so that another candidate can lead immediately."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{MAINTAINED_CONTROLLER}"
        try:
            lease = self._read(path)
            if lease and lease["spec"].get("holderIdentity") == self.identity:
                self.client.request(
                    "PUT", path, {**lease, "spec": {**lease["spec"], "holderIdentity": ""}}
                )
        except Exception:  # the process ends, and the lease expires
            log.warning("the lease could not be released; it expires in %d s", LEASE_SECONDS)

    def _read(self, path: str) -> Json:
        try:
            return self.client.request("GET", path)
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    def _is_available(self, version: str, spec: dict[str, Any]) -> bool:
        holder = spec.get("holderIdentity")
        if not holder or holder == self.identity:
            return True
        if self._observed[0] != version:
            self._observed = (version, self.clock())
        return self.clock() - self._observed[1] > (
            spec.get("leaseDurationSeconds") or LEASE_SECONDS
        )

    def _lease_spec(self, previous: dict[str, Any] | None) -> dict[str, Any]:
        """Return the spec of the lease that this candidate holds; `previous` is None for a new Lease."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        }
        if previous is None:
            return {**spec, "acquireTime": now, "leaseTransitions": 0}
        is_renewal = previous.get("holderIdentity") == self.identity
        return {
            **spec,
            "acquireTime": previous.get("acquireTime", now) if is_renewal else now,
            "leaseTransitions": (previous.get("leaseTransitions") or 0) + (not is_renewal),
        }


def wait_to_lead(
    candidate: Candidate, stop: threading.Event, record_heartbeat: Callable[[], None]
) -> bool:
    """Wait until the candidate holds the lease; return False if `stop` is set before."""
    while not stop.is_set():
        record_heartbeat()
        try:
            if candidate.try_to_lead():
                log.info("%s is the leader", candidate.identity)
                return True
        except Exception as error:  # the API server may be unavailable for a while
            log.warning("the lease cannot be acquired: %s", error)
        stop.wait(RENEW_SECONDS)
    return False


def keep_leading(candidate: Candidate, stop: threading.Event, on_lost: Callable[[], None]) -> None:
    """Renew the lease until `stop` is set; call `on_lost` before it expires, or if another candidate holds it."""
    while not stop.wait(_seconds_to_renewal(candidate)):
        reason = "another controller holds it"
        try:
            is_leader = candidate.try_to_lead()
        except Exception as error:  # not fatal: the lease is held until it expires
            log.warning("the lease was not renewed: %s", error)
            is_leader = _seconds_to_deadline(candidate) > 0
            reason = "it was not renewed in time"
        if not is_leader:
            log.error("the lease is lost: %s", reason)
            on_lost()
            return


def _seconds_to_renewal(candidate: Candidate) -> float:
    return max(min(RENEW_SECONDS, _seconds_to_deadline(candidate)), 0.0)


def _seconds_to_deadline(candidate: Candidate) -> float:
    return candidate.renewed_at + RENEW_DEADLINE_SECONDS - candidate.clock()
