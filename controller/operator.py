"""The event loop around `reconcile`: kopf watches objects, a queue orders jobs, and threads run the passes.

Only kopf's event handlers are used: its other handlers would write annotations and finalizers into
the user's objects. Every event about a job or one of its pods queues the job for a pass; a changed
node queues every job.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import kopf
from kubernetes import client
from urllib3.exceptions import HTTPError

from controller import etcd_certificate
from controller.client import ApiError
from controller.objects import Node, read_node
from controller.reconcile import Key, Reconciler, RetryError
from controller.spending import PASS_SECONDS
from controller.workqueue import WorkQueue
from everstep.catalog.names import (
    ELASTICJOB_GROUP,
    ELASTICJOB_PLURAL,
    ELASTICJOB_VERSION,
    GROUP_NAME_LABEL,
    JOB_NAME_LABEL,
    MAINTAINED_CONTROLLER,
    PLACEHOLDER_LABEL,
)

log = logging.getLogger(__name__)

PARALLEL_PASSES = 4
CERTIFICATE_SECONDS = 3600.0  # etcd logs each handshake without a certificate
CERTIFICATE_RETRY_SECONDS = 60.0  # etcd starts later than its job
CRD_POLL_SECONDS = 5.0  # until the API server is asked again whether the ElasticJob CRD exists
HEARTBEAT_SECONDS = 5.0
HANG_SECONDS = 120.0  # an event loop without a heartbeat for this long hangs


@dataclass
class Operator:
    """Operator of all jobs of `namespace`, or of every namespace if it is None.

    Attributes:
        reconciler: reconciler, which runs the passes in threads.
        namespace: namespace of the jobs; None for every namespace.
        configuration: function that returns the address and the credentials of the API server.
        queue: jobs that are due for a pass.
        jobs: all existing jobs.
        nodes: nodes as they were observed last, by name.
        tls_endpoints: host and port of the etcd of each job whose etcd uses TLS.
        heartbeat: monotonic time of the last heartbeat.
    """

    reconciler: Reconciler
    namespace: str | None
    configuration: Callable[[], client.Configuration]
    queue: WorkQueue[Key] = field(default_factory=WorkQueue)
    jobs: set[Key] = field(default_factory=set)
    nodes: dict[str, Node] = field(default_factory=dict)
    tls_endpoints: dict[Key, tuple[str, int]] = field(default_factory=dict)
    certificates_due: dict[Key, float] = field(default_factory=dict)  # times of the monotonic clock
    heartbeat: float = field(default_factory=time.monotonic)

    def alive(self) -> bool:
        """Return True if the event loop is responsive."""
        return time.monotonic() - self.heartbeat < HANG_SECONDS

    def record_heartbeat(self) -> None:
        """Record that the process is responsive, as the leader or on standby."""
        self.heartbeat = time.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Watch and reconcile until `stop` is set or the process is terminated."""
        tasks = [asyncio.create_task(self._work()) for _ in range(PARALLEL_PASSES)]
        tasks += [
            asyncio.create_task(self._resync()),
            asyncio.create_task(self.read_certificates()),
        ]
        try:
            await self.wait_for_crd(stop)
            await kopf.operator(
                registry=self._registry(),
                settings=_settings(),
                stop_flag=stop,
                standalone=True,
                # kopf's default needs a user name, which the image's numeric uid lacks
                identity=MAINTAINED_CONTROLLER,  # type: ignore[arg-type]  # a NewType kopf hides
                **({"namespaces": [self.namespace]} if self.namespace else {"clusterwide": True}),
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_for_crd(self, stop: asyncio.Event) -> None:
        """Wait until the ElasticJob CRD exists, or until `stop` is set: kopf never notices a later CRD."""
        message = ""
        while not stop.is_set():
            try:
                if await asyncio.to_thread(self.reconciler.client.serves_jobs):
                    return
                reason = "it does not exist; apply elasticjob-crd.yaml"
            except (ApiError, HTTPError) as error:
                reason = str(error)
            if reason != message:
                message = reason
                log.warning("waiting for the ElasticJob CRD: %s", reason)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), CRD_POLL_SECONDS)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        kopf.on.event(ELASTICJOB_GROUP, ELASTICJOB_VERSION, ELASTICJOB_PLURAL, registry=registry)(
            self._job_changed
        )
        labels: dict[str, Any] = {
            GROUP_NAME_LABEL: ELASTICJOB_GROUP,
            JOB_NAME_LABEL: kopf.PRESENT,
        }
        kopf.on.event("v1", "pods", labels=labels, registry=registry)(self._pod_changed)
        labels = {GROUP_NAME_LABEL: ELASTICJOB_GROUP, PLACEHOLDER_LABEL: kopf.PRESENT}
        kopf.on.event("v1", "pods", labels=labels, registry=registry)(self._placeholder_changed)
        kopf.on.event("v1", "nodes", registry=registry)(self._node_changed)
        return registry

    def _login(self, **_: object) -> kopf.ConnectionInfo:
        """Return the credentials for kopf, which calls again whenever its token is refused."""
        configuration = self.configuration()
        header: str = configuration.get_api_key_with_prefix("BearerToken") or ""
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            scheme="Bearer" if header else None,
            token=header.rpartition(" ")[2] or None,  # in a pod the prefix is "bearer"
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
        )

    async def _job_changed(
        self,
        name: str | None,
        namespace: str | None,
        type: str | None,  # noqa: A002  (kopf's name)
        spec: Mapping[str, Any],
        **_: object,
    ) -> None:
        key = (namespace or "", name or "")
        endpoint = None if type == "DELETED" else etcd_certificate.tls_endpoint(spec)
        if endpoint != self.tls_endpoints.pop(key, None):
            self.certificates_due.pop(key, None)  # also if the job is created again immediately
            self.reconciler.metrics.certificate_expiry.remove(*key)
        if endpoint is not None:
            self.tls_endpoints[key] = endpoint
        if type == "DELETED":
            self.jobs.discard(key)
        else:
            self.jobs.add(key)
        self.queue.add(key)

    async def _pod_changed(
        self, labels: Mapping[str, str], namespace: str | None, **_: object
    ) -> None:
        self.queue.add((namespace or "", labels[JOB_NAME_LABEL]))

    async def _placeholder_changed(
        self, labels: Mapping[str, str], namespace: str | None, **_: object
    ) -> None:
        self.queue.add((namespace or "", labels[PLACEHOLDER_LABEL]))

    async def _node_changed(
        self,
        name: str | None,
        body: Mapping[str, Any],
        type: str | None,  # noqa: A002  (kopf's name)
        **_: object,
    ) -> None:
        """Queue every job when a node was added, deleted or changed other than by a heartbeat."""
        deleted = type == "DELETED"
        previous = self.nodes.pop(name or "", None)
        if not deleted:
            self.nodes[name or ""] = read_node(body)
        if deleted or previous != self.nodes[name or ""]:
            for key in self.jobs:
                self.queue.add(key)

    async def _work(self) -> None:
        while True:
            key = await self.queue.take()
            try:
                with self.reconciler.metrics.passes.time():
                    next_pass = await asyncio.to_thread(self.reconciler.reconcile, key)
            except RetryError as error:
                log.info("%s/%s: %s; retry in %.1f s", *key, error, self.queue.failed(key))
            except Exception:
                self.reconciler.metrics.errors.inc()
                log.exception(
                    "%s/%s: the pass failed; retry in %.1f s", *key, self.queue.failed(key)
                )
            else:
                self.observe_pass(key)
                self.queue.done(key)
                if next_pass is not None:
                    self.queue.add(key, next_pass)

    def observe_pass(self, key: Key) -> None:
        """Add or forget a job that a pass did or did not find: a watch that starts again reports no deletion."""
        if key in self.reconciler.uids:
            self.jobs.add(key)
            return
        self.jobs.discard(key)
        self.tls_endpoints.pop(key, None)
        self.certificates_due.pop(key, None)
        self.reconciler.metrics.certificate_expiry.remove(*key)

    async def _resync(self) -> None:
        due = 0.0
        while True:
            self.record_heartbeat()
            if self.heartbeat >= due:
                due = self.heartbeat + PASS_SECONDS
                for key in self.jobs:
                    self.queue.add(key)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def read_certificates(self) -> None:
        """Export the expiry time of each job's etcd certificate.

        It is read again after an hour, or after a minute if it could not be read.
        """
        while True:
            for key, endpoint in list(self.tls_endpoints.items()):
                if time.monotonic() >= self.certificates_due.get(key, -math.inf):
                    self.certificates_due[key] = time.monotonic() + CERTIFICATE_SECONDS
                    await self._read_certificate(key, *endpoint)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _read_certificate(self, key: Key, host: str, port: int) -> None:
        try:
            expiry = await asyncio.to_thread(etcd_certificate.expiry, host, port)
        except (OSError, ValueError) as error:
            log.warning("%s/%s: the certificate of etcd cannot be read: %s", *key, error)
            if key in self.certificates_due:
                self.certificates_due[key] = time.monotonic() + CERTIFICATE_RETRY_SECONDS
            return
        if self.tls_endpoints.get(key) == (host, port):  # neither deleted nor changed meanwhile
            self.reconciler.metrics.certificate_expiry.labels(*key).set(expiry)


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # the reconciler records events itself
    # Scanning would need permission to watch CustomResourceDefinitions and namespaces.
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = 10
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.label_selectors["pods"] = f"{GROUP_NAME_LABEL}={ELASTICJOB_GROUP}"
    return settings
