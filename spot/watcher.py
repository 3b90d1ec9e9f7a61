"""The loop of the watcher: poll, decide and act, once a second until the machine stops.

Each pass reads the metadata service and the API server again. A failed pass is repeated a second
later, so that an outage of the API server costs no more than its duration.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from spot.client import NodeClient
from spot.drain import DeadlineChange, DrainDecision, Eviction, decide
from spot.http import UnavailableError
from spot.metadata import Metadata
from spot.notice import Notice

log = logging.getLogger("spot")


@dataclass
class Watcher:
    """The watcher of one node.

    Attributes:
        metadata: the cloud's metadata service.
        client: the API server.
        clock: function that returns the Unix time.
        cloud_drains: False to drain immediately even if the cloud promises to drain.
    """

    metadata: Metadata
    client: NodeClient
    clock: Callable[[], float]
    cloud_drains: bool = True
    _settled_notices: tuple[Notice, ...] | None = field(default=None, init=False)
    _notices: tuple[Notice, ...] | None = field(default=None, init=False)
    _first_passes: dict[str, float] = field(default_factory=dict, init=False)
    _requested_starts: set[str] = field(default_factory=set, init=False)
    _last_message: str = field(default="", init=False)

    def step(self) -> None:
        """Make one pass. Errors that a later pass can fix are logged, not raised."""
        notices = self.metadata.poll()
        if notices is not None:
            self._notices = notices
        elif not self._notices:
            # Not an all-clear: a notice recorded on the node before a restart may still apply.
            self._log_change("the metadata service does not give a reliable response")
            return
        if self._notices is None or self._notices == self._settled_notices:
            return
        try:
            self._act(self._decide(self._notices), self._notices)
        except UnavailableError as error:
            self._log_change(f"will retry: {error}")

    def _decide(self, notices: tuple[Notice, ...]) -> DrainDecision:
        """Read the node and its pods and decide."""
        pods = self.client.pods()
        node, now = self.client.node(), self.clock()
        self._first_passes = {
            notice.reason: self._first_passes.get(notice.reason, now) for notice in notices
        }
        return decide(
            notices,
            node,
            pods,
            now,
            first_passes=self._first_passes,
            cloud_drains=self.cloud_drains,
        )

    def _act(self, decision: DrainDecision, notices: tuple[Notice, ...]) -> None:
        """Apply a decision: the cordon first, the request to start the event last.

        A change that is refused or gets no response, as behind a slow admission webhook, does not prevent the others.
        """
        self._log_change(decision.reason)
        if decision.patch is not None:
            try:
                self.client.patch_node(decision.patch)
            except UnavailableError as error:
                log.warning("the node was not changed: %s", error)  # its pods can still be evicted
        for change in decision.deadline_changes:
            self._set_deadline(change)
        for eviction in decision.evictions:
            self._evict(eviction)
        for identifier in decision.events_to_start:
            self._start(identifier)
        self._settled_notices = notices if decision.is_settled else None

    def _set_deadline(self, change: DeadlineChange) -> None:
        """Set or remove the deadline of one worker; a failure must not delay the drain."""
        try:
            self.client.set_deadline(change)
        except UnavailableError as error:
            log.warning("the deadline of %s was not changed: %s", change.pod.name, error)

    def _evict(self, eviction: Eviction) -> None:
        """Evict one pod; a failure must not keep the others from being evicted."""
        name = f"{eviction.pod.namespace}/{eviction.pod.name}"
        try:
            is_evicted = self.client.evict(eviction)
        except UnavailableError as error:
            log.warning("%s was not evicted: %s", name, error)
            return
        if is_evicted:
            log.info("evicted %s, grace period %d s", name, eviction.grace_seconds)
        else:
            log.info("a disruption budget does not allow the eviction of %s now", name)

    def _start(self, identifier: str) -> None:
        """Request once that the cloud start an event; a refusal must not keep the others from being started."""
        if identifier in self._requested_starts:
            return
        try:
            self.metadata.start(identifier)
        except UnavailableError as error:
            self._log_change(f"will retry: {error}")
            return
        self._requested_starts.add(identifier)
        log.info("requested that the cloud start %s", identifier)

    def _log_change(self, message: str) -> None:
        """Log a message when it changes, not in every pass."""
        if message != self._last_message:
            log.info("%s", message)
            self._last_message = message
