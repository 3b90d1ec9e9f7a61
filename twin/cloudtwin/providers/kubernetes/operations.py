"""The provider's operations on objects of a cluster, without gRPC."""

import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from cloudtwin.providers.kubernetes import live as conversion
from cloudtwin.providers.kubernetes import objects, wait_for
from cloudtwin.providers.kubernetes.client import CONFLICT, NOT_FOUND, ClusterClient
from cloudtwin.providers.kubernetes.config import UPSERT_VARIABLE, KubernetesConfig
from cloudtwin.providers.kubernetes.errors import (
    ConflictError,
    IncompleteObjectError,
    NotReadyError,
    RefusedError,
    UnknownKindError,
    UnreachableError,
)
from cloudtwin.providers.kubernetes.live import ManagementData
from cloudtwin.providers.kubernetes.objects import ObjectReference
from cloudtwin.providers.kubernetes.readiness import Failed, assess
from cloudtwin.providers.kubernetes.wait import (
    events,
    related_to,
    wait_until_gone,
    wait_until_ready,
)
from cloudtwin.providers.protocol.engine_client import EngineClient
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.resource import ResourceKey, ResourceState
from cloudtwin.providers.protocol.values import Object, PropertyValue, has_unknown, plain
from cloudtwin.providers.timeouts import Timeouts

DEFAULT_TIMEOUT_SECONDS = 600.0
# A kind is served a moment after its definition is established.
NEW_KIND_SECONDS = 15.0
UNPROCESSABLE = 422
MANAGER_PREFIX = "pulumi-kubernetes"


class KubernetesOperations:
    """The operations of one provider instance. Thread-safe."""

    def __init__(self, config: KubernetesConfig, engine: EngineClient) -> None:
        self._config = config
        self._engine = engine
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._client: ClusterClient | None = None
        self._warned = False
        # The resource that created or updated an object in this run: a second owner is an error.
        self._owners: dict[ObjectReference, str] = {}

    def cancel(self) -> None:
        """Cancel all waits: the user has interrupted."""
        self._cancelled.set()

    @property
    def cluster(self) -> ClusterClient:
        """The client, created on first use."""
        with self._lock:
            if self._client is None:
                self._client = ClusterClient(self._config)
            return self._client

    def check(self, name: str, old: Object, new: Object, seed: bytes) -> Object:
        """Return a program's inputs with a name and a namespace.

        Raises:
            ProviderError: the annotation `pulumi.com/waitFor` or the kubeconfig with the default namespace is invalid.
        """
        wait_for.parse(objects.annotation(new, objects.WAIT_FOR))
        named_inputs = objects.with_name(new, name, seed, old)
        metadata = objects.metadata(named_inputs)
        if not metadata or metadata.get("namespace") is not None:  # the whole value may be unknown
            return named_inputs
        is_namespaced = self._is_namespaced(named_inputs)
        if is_namespaced is None and (old_namespace := objects.metadata(old).get("namespace")):
            return objects.with_namespace(named_inputs, old_namespace)
        if not is_namespaced:
            return named_inputs
        return objects.with_namespace(named_inputs, self.cluster.default_namespace)

    def _is_namespaced(self, inputs: Object) -> bool | None:
        """Return True if a kind is namespaced; None if the cluster cannot tell yet."""
        api_version, kind = _kind_of(inputs)
        group = api_version.rpartition("/")[0]
        if "." not in group or group.endswith(".k8s.io"):
            return kind not in objects.CLUSTER_SCOPED
        try:
            self.cluster.probe()
            return self.cluster.kind(api_version, kind).namespaced
        except (UnreachableError, UnknownKindError):
            return None

    def preview(self, urn: str, inputs: Object, old: Object) -> Object:
        """Return the expected outputs of a create or update, from a dry run where possible.

        Args:
            urn: the resource.
            inputs: the new inputs.
            old: the last outputs; empty for a new object.

        Raises:
            ProviderError: the create or update would fail.
        """
        if has_unknown(inputs) or not self._reachable(urn):
            return conversion.preview_of_unknown(inputs)
        reference, existing = _reference(inputs), None
        self._claim(reference, urn)
        try:
            existing = None if old else self.cluster.get(reference)
            if existing and not _applied_by_pulumi(existing):
                self._require_absent(reference, existing)
            # The existing object may be the one to be replaced: its fields cause no conflict.
            dry_run_object = self._apply(
                reference,
                conversion.body(inputs),
                inputs,
                old,
                dry_run=True,
                force=existing is not None,
            )
        except UnknownKindError:
            return conversion.preview_of_unknown(inputs)  # this update may create its definition
        except RefusedError as error:
            replaced = existing is not None and error.code == UNPROCESSABLE
            # The namespace does not exist yet, or the object to be replaced still exists.
            if (error.code == NOT_FOUND or replaced) and not isinstance(error, ConflictError):
                return conversion.preview_of_unknown(inputs)
            raise
        return conversion.preview_of_dry_run(dry_run_object, inputs, old)

    def _reachable(self, urn: str) -> bool:
        try:
            self.cluster.probe()
        except UnreachableError as error:
            if not self._warned:
                self._warned = True
                self._engine.log(logging.WARNING, urn, f"previewing without the cluster: {error}")
            return False
        return True

    def create(self, urn: str, inputs: Object, timeout: float) -> tuple[str, Object]:
        """Create an object and wait until it is ready. Return its id and outputs.

        Raises:
            IncompleteObjectError: the object exists, but is not ready.
            ProviderError: the object was not created.
        """
        self.cluster.probe()
        reference = _reference(inputs)
        self._claim(reference, urn)
        with suppress(UnknownKindError):  # its definition may be new: applying waits for it
            self._require_absent(reference, self.cluster.get(reference))
        timeouts = self._timeouts(urn, inputs, timeout)
        return reference.id, self._apply_and_wait(
            reference, conversion.body(inputs), inputs, {}, timeouts
        )

    def _require_absent(self, reference: ObjectReference, existing: Object | None) -> None:
        """Refuse to create an object that exists, as the official provider does.

        Raises:
            RefusedError: the object exists, and upsertExistingObjects is off.
        """
        if existing is None or self._config.upsert:
            return
        managers = sorted(
            {str(managed_field.get("manager")) for managed_field in _managed_fields(existing)}
        )
        raise RefusedError(CONFLICT, "AlreadyExists", _already_exists(reference, managers))

    def update(
        self, urn: str, inputs: Object, old: Object, timeout: float, ignored: Sequence[str]
    ) -> Object:
        """Update an object and wait until it is ready. Return its outputs.

        Raises:
            IncompleteObjectError: the object was updated, but is not ready.
            ProviderError: the object was not updated.
        """
        self.cluster.probe()
        reference = _reference(inputs)
        self._claim(reference, urn)
        body = conversion.with_live_values(
            conversion.body(inputs), self._live_to_update(reference), ignored
        )
        return self._apply_and_wait(
            reference, body, inputs, old, self._timeouts(urn, inputs, timeout)
        )

    def _live_to_update(self, reference: ObjectReference) -> Object:
        """Return the object to update; applying a missing one would create it, unlike the official provider.

        Raises:
            RefusedError: the object does not exist.
        """
        try:
            live = self.cluster.get(reference)
        except UnknownKindError:
            live = None  # its definition was deleted, and every object with it
        if live is None:
            raise RefusedError(
                NOT_FOUND,
                "NotFound",
                f"{reference} was deleted by another client; run `pulumi up --refresh` to create it again",
            )
        return live

    def _apply(
        self, reference: ObjectReference, body: Object, inputs: Object, old: Object, *,
        dry_run: bool = False, force: bool = False,
    ) -> Object:  # fmt: skip
        return self.cluster.apply(
            reference,
            body,
            manager=_management_data(inputs, old).field_manager,
            dry_run=dry_run,
            force=force or self._config.force or objects.is_enabled(inputs, objects.PATCH_FORCE),
            wait_seconds=0 if dry_run else NEW_KIND_SECONDS,
        )

    def _apply_and_wait(
        self,
        reference: ObjectReference,
        body: Object,
        inputs: Object,
        old: Object,
        timeouts: Timeouts,
    ) -> Object:
        """Apply an object, wait until it is ready, and return its outputs."""
        management = _management_data(inputs, old)
        # Otherwise applying would generate a second manager name.
        old = {**old, conversion.FIELD_MANAGER: management.field_manager}
        live = self._apply(reference, body, inputs, old)
        if objects.is_enabled(inputs, objects.SKIP_AWAIT):
            return conversion.outputs(live, inputs, management)
        try:
            live = wait_until_ready(self.cluster, reference, live, timeouts)
        except ProviderError as error:  # the object exists, so the state must keep it
            observed = error.live if isinstance(error, NotReadyError) else live
            reasons = error.reasons if isinstance(error, NotReadyError) else [str(error)]
            outputs = conversion.outputs(observed, inputs, management)
            raise IncompleteObjectError(outputs, inputs, reasons) from None
        return conversion.outputs(live, inputs, management)

    def _claim(self, reference: ObjectReference, urn: str) -> None:
        with self._lock:
            owner = self._owners.setdefault(reference, urn)
        if owner != urn:
            raise ProviderError(
                f"{reference} is declared twice: {owner} manages it already; remove or rename one"
            )

    def read(self, key: ResourceKey, old: ResourceState) -> ResourceState | None:
        """Read an object. Return None if it does not exist.

        Args:
            key: the resource.
            old: its last state; inputs and outputs are empty for an import.

        Raises:
            IncompleteObjectError: the object exists but has failed.
        """
        self.cluster.probe()
        reference = self._reference_of(key.token, old.identity, old.inputs or old.outputs)
        try:
            live = self.cluster.get(reference)
        except UnknownKindError:
            live = None
        if live is None:
            return None
        if old.inputs:
            inputs = conversion.refreshed_inputs(old.inputs, old.outputs, live)
        else:
            inputs = conversion.imported_inputs(live)
        outputs = conversion.outputs(live, inputs, _management_data(inputs, old.outputs))
        related = related_to(self.cluster, live)
        verdict = assess(live, related)
        if isinstance(verdict, Failed) and not objects.is_enabled(inputs, objects.SKIP_AWAIT):
            warnings = events(self.cluster, live, related.pods)
            reason = f"{reference} failed: {verdict.reason}"
            raise IncompleteObjectError(outputs, inputs, [reason, *warnings])
        return ResourceState(reference.id, outputs, inputs)

    def _reference_of(self, token: str, resource_id: str, live_object: Object) -> ObjectReference:
        api_version, kind = _kind_of(live_object) if live_object else objects.kind_of_type(token)
        try:
            namespace, name = objects.parse_id(resource_id)
        except ValueError as error:
            raise ProviderError(str(error)) from None
        if namespace is None and self.cluster.kind(api_version, kind).namespaced:
            namespace = self.cluster.default_namespace
        return ObjectReference(api_version, kind, namespace, name)

    def delete(self, key: ResourceKey, old: ResourceState, timeout: float) -> None:
        """Delete an object and wait until it is gone.

        Raises:
            ProviderError: the object was not deleted, or not in time; a timeout error names what blocks the deletion.
        """
        self.cluster.probe()
        try:
            reference = self._reference_of(key.token, old.identity, old.outputs)
            live = self.cluster.get(reference)
        except UnknownKindError:
            return
        if live is None:
            return
        owner = self._owners.get(reference, key.urn)
        if owner != key.urn:  # the resource was renamed without an alias, and upserted
            self._engine.log(
                logging.WARNING, key.urn, f"{reference} is kept: {owner} manages it now"
            )
            return
        policy = objects.annotation(live, objects.DELETION_PROPAGATION)
        self.cluster.delete(reference, policy.capitalize() or "Foreground")
        timeouts = self._timeouts(key.urn, old.outputs, timeout)
        wait_until_gone(self.cluster, reference, live["metadata"]["uid"], timeouts)
        with self._lock:
            self._owners.pop(reference, None)  # a replacement may have the name now

    def _timeouts(self, urn: str, inputs: Mapping[str, PropertyValue], option: float) -> Timeouts:
        seconds = objects.timeout_seconds(inputs, option, DEFAULT_TIMEOUT_SECONDS)
        report = partial(self._engine.status, urn)
        return Timeouts(report=report, cancelled=self._cancelled, seconds=seconds)


def _already_exists(reference: ObjectReference, managers: Sequence[str]) -> str:
    return (
        f'resource "{reference.id}" was not successfully created by the Kubernetes API server: '
        f"{reference} already exists in the cluster, managed by "
        f"{', '.join(managers) or 'an unknown client'}. To manage it with Pulumi, import it (ID "
        f"{reference.id}). To take it over, set upsertExistingObjects on the Provider or "
        f"{UPSERT_VARIABLE}=true. Otherwise, change the name."
    )


def _kind_of(inputs: Mapping[str, PropertyValue]) -> tuple[str, str]:
    return str(plain(inputs["apiVersion"])), str(plain(inputs["kind"]))


def _reference(inputs: Mapping[str, PropertyValue]) -> ObjectReference:
    metadata = objects.metadata(inputs)
    return ObjectReference(
        *_kind_of(inputs), metadata.get("namespace") or None, str(metadata["name"])
    )


def _management_data(
    inputs: Mapping[str, PropertyValue], old: Mapping[str, PropertyValue]
) -> ManagementData:
    """Return the field manager and initial API version of an object: from its outputs, or new ones.

    Each object has its own manager name, as with the official provider, so that two programs that apply
    the same object are two managers.
    """
    manager = (
        objects.annotation(inputs, objects.FIELD_MANAGER)
        or old.get(conversion.FIELD_MANAGER)
        or f"{MANAGER_PREFIX}-{secrets.token_hex(4)}"
    )
    return ManagementData(
        field_manager=str(manager),
        api_version=str(old.get(conversion.INITIAL_API_VERSION) or _kind_of(inputs)[0]),
    )


def _managed_fields(live: Object) -> Sequence[Object]:
    return live["metadata"].get("managedFields") or ()


def _applied_by_pulumi(live: Object) -> bool:
    """Return True if a Pulumi provider applied an object: the preview may be of an object that replaces it."""
    managers = [str(managed_field.get("manager", "")) for managed_field in _managed_fields(live)]
    return any(manager.startswith(MANAGER_PREFIX) for manager in managers)
