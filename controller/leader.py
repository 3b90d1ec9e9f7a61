"""Leader election by a Lease: of several controllers one acts, the others stand by.

kopf's own peering needs a resource definition of its own, and its peers give way, which two of
equal priority do by stopping both. A `coordination.k8s.io` Lease is what Kubernetes' own
controllers use. Two leaders for a moment would do no harm: pods have fixed names and the status is
written only over the version that was read.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from controller.cluster import CONFLICT, NOT_FOUND, Cluster, Json, Refused

log = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_SECONDS = 5.0
LEASE_NAME = "elasticjob-controller"


@dataclass
class Candidate:
    """One controller that wants to lead.

    Whether another's lease has lapsed is judged by how long it was not seen to change, on this
    machine's clock, since the clocks of two machines need not agree.
    """

    cluster: Cluster
    namespace: str
    identity: str
    clock: Callable[[], float] = time.monotonic
    _seen: tuple[str, float] = field(default=("", 0.0))

    def try_to_lead(self) -> bool:
        """Take the lease, or renew it; say whether it is ours now."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        try:
            lease = self._read(f"{path}/{LEASE_NAME}")
            if lease is None:
                metadata = {"name": LEASE_NAME, "namespace": self.namespace}
                body = {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": metadata,
                }
                self.cluster.request("POST", path, {**body, "spec": self._claim({})})
                return True
            spec = lease.get("spec") or {}
            if not self._free(lease["metadata"]["resourceVersion"], spec):
                return False
            self.cluster.request(
                "PUT", f"{path}/{LEASE_NAME}", {**lease, "spec": self._claim(spec)}
            )
        except Refused as refused:
            if refused.code == CONFLICT:  # another one was quicker
                return False
            raise
        return True

    def give_back(self) -> None:
        """Let another controller lead at once."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{LEASE_NAME}"
        try:
            lease = self._read(path)
            if lease and lease["spec"].get("holderIdentity") == self.identity:
                self.cluster.request(
                    "PUT", path, {**lease, "spec": {**lease["spec"], "holderIdentity": ""}}
                )
        except Exception:  # we are ending: the lease lapses by itself
            log.warning("the lease could not be given back; it lapses in %d s", LEASE_SECONDS)

    def _read(self, path: str) -> Json:
        try:
            return self.cluster.request("GET", path)
        except Refused as refused:
            if refused.code == NOT_FOUND:
                return None
            raise

    def _free(self, version: str, spec: dict[str, Any]) -> bool:
        holder = spec.get("holderIdentity")
        if not holder or holder == self.identity:
            return True
        if self._seen[0] != version:
            self._seen = (version, self.clock())
        return self.clock() - self._seen[1] > (spec.get("leaseDurationSeconds") or LEASE_SECONDS)

    def _claim(self, before: dict[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        kept = before.get("holderIdentity") == self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now) if kept else now,
            "leaseTransitions": (before.get("leaseTransitions") or 0) + (not kept),
        }


def wait_to_lead(candidate: Candidate, stop: threading.Event, beat: Callable[[], None]) -> bool:
    """Stand by until the lease is ours; return False if told to stop before."""
    while not stop.is_set():
        beat()
        try:
            if candidate.try_to_lead():
                log.info("%s leads", candidate.identity)
                return True
        except (
            Exception
        ) as error:  # the API server may be away for a while: this is what standing by is for
            log.warning("the lease cannot be read: %s", error)
        stop.wait(RENEW_SECONDS)
    return False


def keep_leading(candidate: Candidate, stop: threading.Event, lost: Callable[[], None]) -> None:
    """Renew the lease until told to stop; call `lost` once it has lapsed or is another's."""
    renewed = candidate.clock()
    while not stop.wait(RENEW_SECONDS):
        try:
            ours = candidate.try_to_lead()
        except Exception as error:  # as above; until it lapses the lease is still ours
            log.warning("the lease was not renewed: %s", error)
            ours = candidate.clock() - renewed < LEASE_SECONDS - RENEW_SECONDS
        else:
            renewed = candidate.clock()
        if not ours:
            log.error("the lease is lost; another controller leads")
            lost()
            return
