"""Polls, decides and acts, once a second until the machine is gone.

Each pass starts from what the cloud and the API server say now; a pass that fails is made again a
second later, so that an API server that is away for a while costs just that while.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from spot.cluster import Cluster
from spot.decide import Eviction, Plan, plan
from spot.metadata import Metadata
from spot.notice import Notice
from spot.wire import NoAnswer, Refused

log = logging.getLogger("spot")


@dataclass
class Watcher:
    """The watcher of one node.

    Attributes:
        metadata: whom to ask about the machine.
        cluster: where its node is.
        now: seconds since 1970.
        cloud_drains: whether to believe a cloud that promises to drain.
    """

    metadata: Metadata
    cluster: Cluster
    now: Callable[[], float]
    cloud_drains: bool = True
    _settled_on: tuple[Notice, ...] | None = field(default=None, init=False)
    _notices: tuple[Notice, ...] | None = field(default=None, init=False)
    _started: set[str] = field(default_factory=set, init=False)
    _last_said: str = field(default="", init=False)

    def step(self) -> None:
        """Make one pass. Raises nothing that a later pass could put right."""
        heard = self.metadata.poll()
        if heard is not None:
            self._notices = heard
        elif not self._notices:
            # While nothing is announced, silence changes nothing; it must not be noted as calm
            # either: what stood on the node before a restart may still hold.
            self._say("the metadata service says nothing to rely on")
            return
        if self._notices is None or self._notices == self._settled_on:
            return
        try:
            self._act(self._decide(self._notices), self._notices)
        except NoAnswer as error:
            self._say(f"to be tried again: {error}")

    def _decide(self, notices: tuple[Notice, ...]) -> Plan:
        """Read the node and its pods, where they matter, and decide."""
        pods = self.cluster.pods() if notices else []
        node, now = self.cluster.node(), self.now()
        return plan(notices, node, pods, now, cloud_drains=self.cloud_drains)

    def _act(self, decided: Plan, notices: tuple[Notice, ...]) -> None:
        """Do what was decided: first what keeps new pods away, last what brings the end nearer."""
        self._say(decided.why)
        if decided.patch is not None:
            try:
                self.cluster.patch(decided.patch)
            except Refused as refused:
                log.warning("the node stays as it is: %s", refused)  # its pods can still leave
        for eviction in decided.evict:
            self._evict(eviction)
        for identifier in decided.start:
            self._start(identifier)
        self._settled_on = notices if decided.settled else None

    def _evict(self, eviction: Eviction) -> None:
        """Ask one pod to go; one that cannot be asked must not keep the others."""
        name = f"{eviction.pod.namespace}/{eviction.pod.name}"
        try:
            asked = self.cluster.evict(eviction)
        except Refused as refused:
            log.warning("%s stays for now: %s", name, refused)
            return
        if asked:
            log.info("evicted %s, grace %d s", name, eviction.grace_seconds)
        else:
            log.info("%s is held by a disruption budget", name)

    def _start(self, identifier: str) -> None:
        """Tell the cloud once that an event may start."""
        if identifier not in self._started:
            self.metadata.start(identifier)
            self._started.add(identifier)
            log.info("told the cloud that %s may start", identifier)

    def _say(self, why: str) -> None:
        """Log a reason when it changes, not each second."""
        if why != self._last_said:
            log.info("%s", why)
            self._last_said = why
