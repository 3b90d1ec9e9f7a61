"""What the provider does for the engine.

Check, create, update, read, delete. Knows nothing of gRPC.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from twin.pulumi.kubernetes import live as lives
from twin.pulumi.kubernetes import objects
from twin.pulumi.kubernetes.cluster import CONFLICT, MANAGER, NOT_FOUND, Cluster
from twin.pulumi.kubernetes.errors import (
    ConflictError,
    NotReadyError,
    RefusedError,
    UnknownKindError,
    UnreachableError,
)
from twin.pulumi.kubernetes.objects import Reference
from twin.pulumi.kubernetes.readiness import Failed, assess
from twin.pulumi.kubernetes.settings import Settings
from twin.pulumi.kubernetes.wait import Wait, events, related_to, until_gone, until_ready
from twin.pulumi.provider.convert import Object, Plain, has_unknown, plain
from twin.pulumi.provider.engine import Engine
from twin.pulumi.provider.errors import ProviderError

DEFAULT_TIMEOUT_SECONDS = 600.0
# A definition is established a moment before its kind is served.
NEW_KIND_SECONDS = 15.0
UNPROCESSABLE = 422


@dataclass(frozen=True)
class Found:
    """What a read found: the outputs and the inputs that stand for it."""

    id: str
    outputs: Object
    inputs: Object


class Operations:
    """The operations of one provider instance. Safe for many threads."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.settings = settings
        self._engine = engine
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._warned = False
        # Which resource made or changed an object in this run, so that two resources do not fight
        # over one.
        self._owners: dict[Reference, str] = {}

    def cancel(self) -> None:
        """End every wait: the user has interrupted."""
        self._cancelled.set()

    @property
    def cluster(self) -> Cluster:
        """The cluster, from the first need on."""
        with self._lock:
            if self._cluster is None:
                self._cluster = Cluster(self.settings)
            return self._cluster

    def check(self, name: str, old: Object, new: Object, seed: bytes) -> Object:
        """Complete a program's inputs: a name and a namespace where it gives none."""
        named = objects.with_name(new, name, seed, old)
        given = objects.metadata(named)
        if not given or given.get("namespace") is not None:  # or all of it is yet unknown
            return named
        scope = self._namespaced(named)
        if scope is None and (kept := objects.metadata(old).get("namespace")):
            return objects.with_namespace(named, kept)
        return objects.with_namespace(named, self.cluster.default_namespace) if scope else named

    def _namespaced(self, inputs: Object) -> bool | None:
        """Tell whether a kind lives in namespaces; None where nobody can tell yet."""
        api_version, kind = str(plain(inputs["apiVersion"])), str(plain(inputs["kind"]))
        group = api_version.rpartition("/")[0]
        if "." not in group or group.endswith(".k8s.io"):
            return kind not in objects.CLUSTER_SCOPED
        try:
            self.cluster.probe()
            return self.cluster.kind(api_version, kind).namespaced
        except (UnreachableError, UnknownKindError):
            return None

    def _reference(self, inputs: Mapping[str, Plain]) -> Reference:
        given = objects.metadata(inputs)
        return Reference(
            str(plain(inputs["apiVersion"])),
            str(plain(inputs["kind"])),
            given.get("namespace") or None,
            given["name"],
        )

    def preview(self, urn: str, inputs: Object, old: Object) -> Object:
        """Foresee the outputs of a create or update; the API server is asked without being changed.

        Args:
            urn: of the resource.
            inputs: the new inputs.
            old: the last outputs; empty for a new object.

        Raises:
            ProviderError: the API server would refuse it.
        """
        if has_unknown(inputs) or not self._answers(urn):
            return lives.preview_of_unknown(inputs)
        reference, standing = self._reference(inputs), None
        self._claim(reference, urn)
        try:
            if not old:
                standing = self._standing(reference, inputs)
            sent = lives.body(inputs)
            dry = self.cluster.apply(reference, sent, dry_run=True, force=self._force(inputs))
        except UnknownKindError:
            return lives.preview_of_unknown(inputs)  # this very update may bring its definition
        except RefusedError as error:
            replaced = standing is not None and error.code == UNPROCESSABLE
            # Its namespace is yet to come, or the object that it is to replace still stands.
            if (error.code == NOT_FOUND or replaced) and not isinstance(error, ConflictError):
                return lives.preview_of_unknown(inputs)
            raise
        return lives.preview_of_dry_run(dry, inputs, old)

    def _answers(self, urn: str) -> bool:
        try:
            self.cluster.probe()
        except UnreachableError as error:
            if not self._warned:
                self._warned = True
                self._engine.say(
                    logging.WARNING, urn, f"previewing without asking the cluster: {error}"
                )
            return False
        return True

    def create(self, urn: str, inputs: Object, timeout: float) -> tuple[str, Object]:
        """Create an object and wait until it is ready; return its ID and outputs.

        Raises:
            NotReadyError: it exists, but is not ready.
            ProviderError: it was not created.
        """
        self.cluster.probe()
        reference = self._reference(inputs)
        wait = self._wait(urn, inputs, timeout)
        self._claim(reference, urn)
        try:
            standing = self._standing(reference, inputs)
        except UnknownKindError:
            standing = None  # the definition may have been made a moment ago: applying waits for it
        if standing and standing["metadata"].get("deletionTimestamp"):
            until_gone(self.cluster, reference, standing["metadata"]["uid"], wait)
        return reference.id, self._applied(reference, inputs, lives.body(inputs), wait)

    def update(
        self, urn: str, inputs: Object, old: Object, timeout: float, ignored: Sequence[str]
    ) -> Object:
        """Change an object and wait until it is ready.

        Return its outputs. Raises as `create` does.
        """
        try:
            self.cluster.probe()
        except UnreachableError as error:
            if not self.settings.skip_update_unreachable:
                raise
            self._engine.say(logging.WARNING, urn, f"not updated: {error}")
            return old
        reference = self._reference(inputs)
        self._claim(reference, urn)
        sent = lives.body(inputs)
        if ignored:
            sent = lives.with_others_values(sent, self.cluster.get(reference), ignored)
        return self._applied(reference, inputs, sent, self._wait(urn, inputs, timeout))

    def _standing(self, reference: Reference, inputs: Object) -> Object | None:
        """Return an object that already bears the name, if it is Pulumi's own.

        An earlier update may have been killed before it could write its state: its objects are
        taken up again.

        Raises:
            RefusedError: somebody else made it.
        """
        found = self.cluster.get(reference)
        if found is None or self.settings.upsert or self._force(inputs):
            return found
        managers = [each.get("manager") for each in found["metadata"].get("managedFields") or ()]
        if MANAGER in managers:
            return found
        makers = ", ".join(sorted({str(each) for each in managers}))
        raise RefusedError(
            CONFLICT,
            "AlreadyExists",
            f"{reference} already exists, made by {makers or 'somebody else'}. To manage it with "
            f"Pulumi, import it (ID {reference.id}); to overwrite it, set upsertExistingObjects on "
            "the Provider; or give this one another name.",
        )

    def _applied(self, reference: Reference, inputs: Object, sent: Object, wait: Wait) -> Object:
        live = self.cluster.apply(
            reference,
            sent,
            dry_run=False,
            force=self._force(inputs),
            wait_seconds=NEW_KIND_SECONDS,
        )
        if objects.flag(inputs, objects.SKIP_AWAIT):
            return lives.outputs(live, inputs)
        try:
            live = until_ready(self.cluster, reference, live, wait)
        except NotReadyError as error:
            raise NotReadyError(lives.outputs(error.live, inputs), error.reasons, inputs) from None
        except ProviderError as error:  # the object exists, so its state must not be lost
            raise NotReadyError(lives.outputs(live, inputs), [str(error)], inputs) from None
        return lives.outputs(live, inputs)

    def _force(self, inputs: Object) -> bool:
        return self.settings.force or objects.flag(inputs, objects.PATCH_FORCE)

    def _claim(self, reference: Reference, urn: str) -> None:
        with self._lock:
            owner = self._owners.setdefault(reference, urn)
        if owner != urn:
            raise ProviderError(
                f"{reference} is declared twice: {owner} manages it already; remove or rename one"
            )

    def read(
        self, urn: str, token: str, identity: str, inputs: Object, state: Object
    ) -> Found | None:
        """Read an object as it stands; None where it is gone.

        Args:
            urn: of the resource.
            token: its type.
            identity: `namespace/name` or `name`.
            inputs: the last inputs; empty for an import.
            state: the last outputs; empty for an import.

        Raises:
            NotReadyError: it is there but has failed.
        """
        try:
            self.cluster.probe()
        except UnreachableError as error:
            return self._unread(urn, identity, inputs, state, error)
        reference = self._reference_of(token, identity, inputs or state)
        try:
            live = self.cluster.get(reference)
        except UnknownKindError:
            live = None
        if live is None:
            return None
        now = lives.refreshed_inputs(inputs, state, live) if inputs else lives.imported_inputs(live)
        related = related_to(self.cluster, live)
        verdict = assess(live, related)
        if isinstance(verdict, Failed) and not objects.flag(now, objects.SKIP_AWAIT):
            reasons = [
                f"{reference} failed: {verdict.reason}",
                *events(self.cluster, live, related.pods),
            ]
            raise NotReadyError(lives.outputs(live, now), reasons, now)
        return Found(reference.id, lives.outputs(live, now), now)

    def _unread(
        self, urn: str, identity: str, inputs: Object, state: Object, error: UnreachableError
    ) -> Found | None:
        if self.settings.delete_unreachable:
            self._engine.say(logging.WARNING, urn, f"dropped from the state: {error}")
            return None
        if self.settings.skip_update_unreachable and state:
            self._engine.say(logging.WARNING, urn, f"not refreshed: {error}")
            return Found(identity, state, inputs)
        raise error

    def _reference_of(self, token: str, identity: str, known: Object) -> Reference:
        api_version, kind = objects.kind_of_type(token)
        if known:
            api_version, kind = str(plain(known["apiVersion"])), str(plain(known["kind"]))
        try:
            namespace, name = objects.parse_id(identity)
        except ValueError as error:
            raise ProviderError(str(error)) from None
        if namespace is None and self.cluster.kind(api_version, kind).namespaced:
            namespace = self.cluster.default_namespace
        return Reference(api_version, kind, namespace, name)

    def delete(self, urn: str, token: str, identity: str, state: Object, timeout: float) -> None:
        """Delete an object and wait until it is gone.

        Raises:
            ProviderError: it is still there; says what holds it.
        """
        try:
            self.cluster.probe()
            reference = self._reference_of(token, identity, state)
            live = self.cluster.get(reference)
        except UnknownKindError:
            return
        except UnreachableError as error:
            if not self.settings.delete_unreachable:
                raise
            self._engine.say(logging.WARNING, urn, f"dropped from the state, not deleted: {error}")
            return
        if live is None:
            return
        owner = self._owners.get(reference, urn)
        if (
            owner != urn
        ):  # a resource was renamed without an alias: the new one has taken the object over
            self._engine.say(logging.WARNING, urn, f"{reference} is kept: {owner} manages it now")
            return
        propagation = (
            objects.annotation(live, objects.DELETION_PROPAGATION).capitalize() or "Foreground"
        )
        self.cluster.delete(reference, propagation)
        until_gone(
            self.cluster, reference, live["metadata"]["uid"], self._wait(urn, state, timeout)
        )
        with self._lock:
            self._owners.pop(reference, None)  # a replacement may bear the name now

    def _wait(self, urn: str, inputs: Mapping[str, Plain], asked: float) -> Wait:
        seconds = objects.timeout_seconds(inputs, asked, DEFAULT_TIMEOUT_SECONDS)
        tell: Callable[[str], None] = partial(self._engine.status, urn)
        return Wait(seconds, tell, self._cancelled)
