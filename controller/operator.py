"""The shell around `reconcile`: kopf watches, a queue orders, threads make the passes.

kopf is used for what is hard and dull, watching without missing anything, and only its plain
events: its other handlers would write annotations and finalizers into the user's objects. Every
event about a job, one of its pods or a node does the same thing: it makes the job due for a pass.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import kopf
from kubernetes import client

from controller.api import GROUP, PLURAL, VERSION
from controller.observed import Node, read_node
from controller.reconcile import Key, Reconciler, TryAgain
from controller.workqueue import WorkQueue

log = logging.getLogger(__name__)

PARALLEL_PASSES = 4
RESYNC_SECONDS = 60.0  # the safety net: every job is looked at this often though nothing was heard
BEAT_SECONDS = 5.0
SILENCE_SECONDS = 120.0  # without a beat for so long the event loop hangs


@dataclass
class Operator:
    """Makes passes over all jobs of a namespace (None: of every namespace) until it is told to stop."""

    reconciler: Reconciler
    namespace: str | None
    settings: Callable[[], client.Configuration]
    queue: WorkQueue[Key] = field(default_factory=WorkQueue)
    jobs: set[Key] = field(default_factory=set)
    nodes: dict[str, Node] = field(default_factory=dict)
    beat: float = field(default_factory=time.monotonic)

    def alive(self) -> bool:
        """Say whether the event loop still turns."""
        return time.monotonic() - self.beat < SILENCE_SECONDS

    def still_here(self) -> None:
        """Say that the process is well though it makes no passes: it stands by."""
        self.beat = time.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Watch and reconcile until `stop` is set or the process is asked to end."""
        helpers = [asyncio.create_task(self._work()) for _ in range(PARALLEL_PASSES)]
        helpers.append(asyncio.create_task(self._keep_time()))
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=_settings(),
                stop_flag=stop,
                standalone=True,
                # kopf would ask for the user's name, which the image's numeric uid does not have
                identity="elasticjob-controller",  # type: ignore[arg-type]  # a NewType kopf hides
                **({"namespaces": [self.namespace]} if self.namespace else {"clusterwide": True}),
            )
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(self._job_changed)
        chosen: dict[str, Any] = {
            "group-name": GROUP,
            "job-name": kopf.PRESENT,
        }
        kopf.on.event("v1", "pods", labels=chosen, registry=registry)(self._pod_changed)
        kopf.on.event("v1", "nodes", registry=registry)(self._node_changed)
        return registry

    def _login(self, **_: object) -> kopf.ConnectionInfo:
        """Let kopf reach the cluster as we do; it asks again whenever its token is refused."""
        settings = self.settings()
        header: str = settings.get_api_key_with_prefix("BearerToken") or ""
        return kopf.ConnectionInfo(
            server=settings.host,
            ca_path=settings.ssl_ca_cert,
            insecure=not settings.verify_ssl,
            scheme="Bearer" if header else None,
            token=header.rpartition(" ")[2] or None,  # in a pod the prefix is "bearer"
            certificate_path=settings.cert_file,
            private_key_path=settings.key_file,
        )

    async def _job_changed(
        self,
        name: str | None,
        namespace: str | None,
        type: str | None,  # noqa: A002  (kopf's name for it)
        **_: object,
    ) -> None:
        key = (namespace or "", name or "")
        if type == "DELETED":
            self.jobs.discard(key)
        else:
            self.jobs.add(key)
        self.queue.add(key)

    async def _pod_changed(
        self, labels: Mapping[str, str], namespace: str | None, **_: object
    ) -> None:
        self.queue.add((namespace or "", labels["job-name"]))

    async def _node_changed(
        self,
        name: str | None,
        body: Mapping[str, Any],
        type: str | None,  # noqa: A002  (kopf's name for it)
        **_: object,
    ) -> None:
        """Look at every job again when a node came, went or changed; a heartbeat is no news."""
        gone = type == "DELETED"
        before = self.nodes.pop(name or "", None)
        if not gone:
            self.nodes[name or ""] = read_node(body)
        if gone or before != self.nodes[name or ""]:
            for key in self.jobs:
                self.queue.add(key)

    async def _work(self) -> None:
        while True:
            key = await self.queue.take()
            try:
                with self.reconciler.metrics.passes.time():
                    wake = await asyncio.to_thread(self.reconciler.reconcile, key)
            except TryAgain as again:
                log.info("%s/%s: %s; again in %.1f s", *key, again, self.queue.failed(key))
            except Exception:
                self.reconciler.metrics.errors.inc()
                log.exception(
                    "%s/%s: the pass failed; again in %.1f s", *key, self.queue.failed(key)
                )
            else:
                self.queue.done(key)
                if wake is not None:
                    self.queue.add(key, wake)

    async def _keep_time(self) -> None:
        due = 0.0
        while True:
            self.still_here()
            if self.beat >= due:
                due = self.beat + RESYNC_SECONDS
                for key in self.jobs:
                    self.queue.add(key)
            await asyncio.sleep(BEAT_SECONDS)


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # we tell about jobs ourselves
    settings.scanning.disabled = (
        True  # no watching of resource definitions and namespaces: no right to either is needed
    )
    settings.process.ultimate_exiting_timeout = 10
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.label_selectors["pods"] = f"group-name={GROUP}"
    return settings
