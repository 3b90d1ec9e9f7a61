"""Operations of a cloud's provider. Independent of gRPC."""

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtwin.errors import TwinError
from cloudtwin.providers import evaluation, registries, volumes
from cloudtwin.providers.account import Account, Transaction
from cloudtwin.providers.changes import compare, with_name
from cloudtwin.providers.effects import Effects
from cloudtwin.providers.errors import CloudError, IncompleteError
from cloudtwin.providers.exclusive_writes import ExclusiveWrites
from cloudtwin.providers.faults import FaultInjector, FaultKind, InjectedFault
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.machines import Machines
from cloudtwin.providers.model import (
    Cloud,
    Endpoint,
    Inputs,
    Outputs,
    ProviderConfig,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.outputs import complete, predict, with_existing
from cloudtwin.providers.protocol.diff import Diff
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.resource import ResourceKey
from cloudtwin.providers.protocol.values import (
    UNKNOWN,
    Object,
    plain,
    redact,
    secret_texts,
    without_nulls,
)
from cloudtwin.providers.schema.check import CheckFailure, check, nearest
from cloudtwin.providers.schema.model import ResourceSchema
from cloudtwin.providers.schema.store import SchemaStore
from cloudtwin.providers.timeouts import Timeouts

THROTTLED_ATTEMPTS = 10
# The first pause of a cloud's SDK takes up to a second; the twin waits less.
FIRST_PAUSE_SECONDS = 0.05


class Operations:
    """The operations of one provider instance. Safe for many threads."""

    report: Callable[[str, str], None] = staticmethod(lambda _urn, _text: None)

    def __init__(
        self, cloud: Cloud, state: Path, machines: Machines, config: ProviderConfig | None = None
    ) -> None:
        self.cloud = cloud
        self.config = config or ProviderConfig(cloud=cloud.name)
        self.account = Account(state, cloud.name)
        self.cancelled = threading.Event()
        self._state = state
        self._effects = Effects(self.account, machines, cloud.types)
        self._faults = FaultInjector(state)
        self._store = SchemaStore(cloud.name, cloud.types.keys())
        self._schemas: dict[str, ResourceSchema] = {}
        self._writes = ExclusiveWrites()
        # Types and ids of the resources that this process has created.
        self._client_tokens: set[tuple[str, str]] = set()

    # -- types

    def kind(self, token: str) -> ResourceType:
        """Return the record of a type.

        Raises:
            ProviderError: the twin's cloud has no such type.
        """
        if token in self.cloud.types:
            return self.cloud.types[token]
        raise ProviderError(
            f"the twin's {self.cloud.name} does not have {token}{nearest(token, self.cloud.types)}. "
            f"It has {len(self.cloud.types)} types; for others, use the official plugin and an account"
        )

    def schema(self, token: str) -> ResourceSchema:
        """Return the schema of a type.

        Raises:
            ProviderError: the SDK is not installed, or its types cannot be read.
        """
        if token not in self._schemas:
            try:
                self._schemas[token] = self._store.load(token)
            except TwinError as error:
                raise ProviderError(str(error)) from None
        return self._schemas[token]

    # -- operations that do not change the account

    def check(
        self, key: ResourceKey, old: Object, new: Object, seed: bytes
    ) -> tuple[Object, list[CheckFailure]]:
        """Return a program's inputs with defaults, and the failures in them."""
        kind, schema = self.kind(key.token), self.schema(key.token)
        inputs = with_name(kind, key.name, without_nulls(new), old, seed)
        inputs = self.cloud.with_defaults(inputs, schema, self.config)
        plain_inputs = plain(inputs)
        failures = check(schema, plain_inputs)
        if not failures:  # the rules rely on names and types
            common = self.cloud.common_rules(schema, plain_inputs, self.config)
            limits = self.cloud.limits(key.token)
            failures = [*common, *evaluation.failures(kind, limits, plain_inputs)]
        texts = secret_texts(inputs)
        return inputs, [
            CheckFailure(failure.path, redact(failure.reason, texts)) for failure in failures
        ]

    def diff(self, key: ResourceKey, old: Object, new: Object, ignored: list[str]) -> Diff:
        """Return the difference between last and new inputs."""
        return compare(self.kind(key.token), key.name, old, new, ignored)

    def preview(self, key: ResourceKey, inputs: Object, old: Object) -> Object:
        """Return predicted outputs; existing outputs stay unless an input sets them or the update changes them."""
        kind = self.kind(key.token)
        predicted = predict(self.schema(key.token), {**kind.defaults, **inputs})
        revised = self._revised_outputs(kind, key, inputs) if old else ()
        return {**with_existing(old, inputs, predicted), **dict.fromkeys(revised, UNKNOWN)}

    def _revised_outputs(
        self, kind: ResourceType, key: ResourceKey, inputs: Object
    ) -> Iterable[str]:
        """Return the outputs that an update changes, such as the version of a launch template."""
        if kind.revised_outputs is None:
            return ()
        resources = self.account.read().all(kind.token)
        previous = next((resource for resource in resources if resource.urn == key.urn), None)
        return kind.revised_outputs(previous.inputs, plain(inputs)) if previous else ()

    def read(self, key: ResourceKey, identity: str) -> tuple[Resource, Inputs] | None:
        """Return a resource and its current inputs; None if it does not exist."""
        kind, timeouts = self.kind(key.token), self._timeouts(key, 0)
        self._inject_fault(key, "read", timeouts)
        resource = self.account.read().find((kind.token,), identity)
        if resource is None:
            return None
        resource = self._finish(kind, resource, timeouts)
        inputs = self._effects.current_inputs(kind, resource)
        changed_inputs = {
            key: value for key, value in inputs.items() if resource.inputs.get(key) != value
        }
        outputs = complete(self.schema(kind.token), {**resource.outputs, **changed_inputs})
        return replace(resource, outputs=outputs), inputs

    def _finish(self, kind: ResourceType, resource: Resource, timeouts: Timeouts) -> Resource:
        """Complete a resource whose creator was killed: a service finishes what it has accepted."""
        created_here = (resource.token, resource.id) in self._client_tokens
        if resource.ready or resource.acknowledged or created_here:
            return resource
        resource = self._complete(kind, resource, None, timeouts)
        with self.account.transaction() as transaction:
            transaction.acknowledge(resource)
        return resource

    def invoke(self, token: str, arguments: Object) -> Object:
        """Run one of the provider's functions.

        Raises:
            ProviderError: there is no such function, or it refuses.
        """
        function = self.cloud.functions.get(token)
        if function is None:
            closest = nearest(token, self.cloud.functions)
            raise ProviderError(f"the twin's {self.cloud.name} has no function {token}{closest}")
        return function(plain(arguments), self.config, self.account.read())

    # -- operations that change the account

    def create(self, key: ResourceKey, inputs: Object, seconds: float) -> tuple[str, Object]:
        """Create a resource and wait until it is complete; return its id and outputs.

        Raises:
            IncompleteError: the resource exists but is incomplete.
            ProviderError: the resource was not created.
        """
        kind, timeouts = self.kind(key.token), self._timeouts(key, seconds)
        self._authorize("create", key)
        fault = self._inject_fault(key, "create", timeouts)
        with self._writes.exclusive(kind, plain(inputs), timeouts):
            resource = self._add(kind, key, plain(inputs))
            resource = self._complete(kind, resource, fault, timeouts)
        _lose_response(fault)
        with self.account.transaction() as transaction:
            transaction.acknowledge(resource)
        return resource.id, dict(resource.outputs)

    def update(self, key: ResourceKey, identity: str, inputs: Object, seconds: float) -> Object:
        """Update a resource in place; return its outputs.

        Raises:
            IncompleteError: the resource was changed but is incomplete.
            ProviderError: the resource was not changed.
        """
        kind, timeouts = self.kind(key.token), self._timeouts(key, seconds)
        self._authorize("update", key)
        fault = self._inject_fault(key, "update", timeouts)
        with self._writes.exclusive(kind, plain(inputs), timeouts):
            resource, previous = self._change(kind, key, identity, plain(inputs))
            resource = self._complete(kind, resource, fault, timeouts, previous)
        _lose_response(fault)
        return dict(resource.outputs)

    def delete(self, key: ResourceKey, identity: str, seconds: float) -> None:
        """Delete a resource; succeed if it does not exist.

        Raises:
            ProviderError: the cloud refuses, or the resource's machines are not removed in time.
        """
        kind, timeouts = self.kind(key.token), self._timeouts(key, seconds)
        self._authorize("delete", key)
        fault = self._inject_fault(key, "delete", timeouts)
        account = self.account.read()
        resource = account.find((kind.token,), identity)
        if resource is None:
            return
        self._resources_to_delete(kind, resource, account)
        if fault and fault.kind is FaultKind.TIMEOUT:
            raise ProviderError(fault.message or self.cloud.timeout_message(resource))
        self._wait_latency(resource.token, timeouts)
        if timeouts.expired:
            raise ProviderError(self.cloud.timeout_message(resource))
        with self._writes.exclusive(kind, resource.inputs, timeouts):
            self._remove(kind, resource, timeouts)
        _lose_response(fault)

    # -- steps

    def _authorize(self, verb: str, key: ResourceKey) -> None:
        """Raise ProviderError if the caller's policy does not allow the operation."""
        if self.cloud.authorize:
            self.cloud.authorize(self.account.folder, verb, key.token)

    def _request(
        self, inputs: Inputs, transaction: Transaction, identity: str = ""
    ) -> ResourceRequest:
        return ResourceRequest(
            inputs=inputs,
            config=self.config,
            account=transaction.inventory.ready,
            unfinished=transaction.inventory.unfinished,
            entropy=secrets.token_hex(16),
            id=identity,
            created_at=time.time(),
        )

    def _add(self, kind: ResourceType, key: ResourceKey, inputs: Inputs) -> Resource:
        with self.account.transaction() as transaction:
            existing = self._find_unacknowledged(transaction.inventory.all(kind.token), key)
            request = self._request(inputs, transaction)
            if existing and not compare(kind, key.name, existing.inputs, inputs, []).replaces:
                request = replace(request, id=existing.id)
                evaluation.require(kind, request)
                return self._put(transaction, kind, replace(request, previous=existing), key)
            identity = kind.identify(request)
            evaluation.require_unique(kind, request, identity, transaction.inventory)
            self._require_parent(kind, request, identity)
            request = replace(request, id=identity)
            evaluation.require(kind, request)
            self._client_tokens.add((kind.token, identity))
            return self._put(transaction, kind, request, key)

    def _change(
        self, kind: ResourceType, key: ResourceKey, identity: str, inputs: Inputs
    ) -> tuple[Resource, Resource]:
        """Store the new inputs of a resource; return it, and the resource before the update."""
        with self.account.transaction() as transaction:
            previous = transaction.inventory.find((kind.token,), identity)
            if previous is None:
                raise CloudError("NotFound", f"{identity} no longer exists; run `pulumi refresh`")
            request = self._request(inputs, transaction, previous.id)
            request = replace(request, previous=previous)
            evaluation.require_unique(kind, request, previous.id, transaction.inventory)
            evaluation.require(kind, request)
            return self._put(transaction, kind, request, key), previous

    def _find_unacknowledged(
        self, resources: Iterator[Resource], key: ResourceKey
    ) -> Resource | None:
        """Return the resource of an earlier creation by this process whose response never reached the engine.

        A process repeats its request with the same client token. Another process, for example after a kill, has
        another token, as with the official providers: the service refuses the name, or creates a second resource.
        """
        return next(
            (
                resource
                for resource in resources
                if resource.urn == key.urn
                and not resource.acknowledged
                and (resource.token, resource.id) in self._client_tokens
            ),
            None,
        )

    def _put(
        self,
        transaction: Transaction,
        kind: ResourceType,
        request: ResourceRequest,
        key: ResourceKey,
    ) -> Resource:
        """Store a resource with the outputs that its service adds."""
        previous = request.previous
        if previous:
            request = replace(request, created_at=previous.created_at)
        values = {
            **kind.defaults,
            **without_nulls(request.inputs),
            **self.cloud.common_outputs(request),
            **kind.describe(request),
            **(_endpoint_outputs(kind, previous) if previous else {}),
        }
        resource = Resource(
            token=kind.token,
            id=request.id,
            urn=key.urn,
            inputs=dict(request.inputs),
            outputs=complete(self.schema(kind.token), values),
            acknowledged=bool(previous and previous.acknowledged),
            ready=bool(previous and previous.ready),
            created_at=request.created_at,
            private=previous.private if previous else {},
            owner=previous.owner if previous else "",
        )
        transaction.put(resource)
        account = transaction.inventory
        for companion in kind.companions(resource, account) if kind.companions else ():
            if not account.find((companion.token,), companion.id):
                transaction.put(replace(companion, ready=True))
        self._write_derived(transaction)
        return resource

    def _write_derived(self, transaction: Transaction) -> None:
        """Write the account's volumes for the machines and its registries for the twin's registry."""
        account, name = transaction.inventory, self.cloud.name
        volumes.write(self._state, name, self.cloud.volumes(account))
        may_push = self.cloud.may_push(self.account.folder) if self.cloud.may_push else True
        registries.write(
            self._state, name, self.cloud.registries(account), caller_may_push=may_push
        )

    @staticmethod
    def _require_parent(kind: ResourceType, request: ResourceRequest, identity: str) -> None:
        parent = kind.parent(identity) if kind.parent else ""
        if parent and not request.account.find((), parent):
            raise CloudError(
                "ParentResourceNotFound", f"{identity} needs {parent}, which does not exist"
            )

    def _complete(
        self,
        kind: ResourceType,
        resource: Resource,
        fault: InjectedFault | None,
        timeouts: Timeouts,
        previous: Resource | None = None,
    ) -> Resource:
        """Apply the effects of a resource.

        Args:
            kind: its type.
            resource: the resource as stored.
            fault: injected fault of the operation.
            timeouts: time limit of the operation.
            previous: the resource before an update.

        Raises:
            IncompleteError: the effects failed or timed out; the resource stays.
        """
        self._wait_latency(resource.token, timeouts)
        if timeouts.expired:
            raise self._incomplete_error(resource, self.cloud.timeout_message(resource))
        if fault and fault.kind is FaultKind.CAPACITY:
            message = fault.message or self._effects.shortage(resource)
            raise self._incomplete_error(resource, message)
        if fault and fault.kind is FaultKind.TIMEOUT:
            message = fault.message or self.cloud.timeout_message(resource)
            raise self._incomplete_error(resource, message)
        try:
            endpoint_outputs, private = self._effects.start_control_plane(kind, resource)
            outputs = complete(self.schema(kind.token), {**resource.outputs, **endpoint_outputs})
            resource = replace(resource, outputs=outputs, private=private)
            self._effects.apply(resource, previous, timeouts)
        except (TwinError, ProviderError) as error:
            raise self._incomplete_error(resource, str(error)) from None
        with self.account.transaction() as transaction:
            return transaction.put(replace(resource, ready=True))

    def _incomplete_error(self, resource: Resource, reason: str) -> IncompleteError:
        """Acknowledge an incomplete resource, which the engine will record, and return its error."""
        with self.account.transaction() as transaction:
            transaction.acknowledge(resource)
        return IncompleteError(resource.id, [reason])

    def _remove(self, kind: ResourceType, resource: Resource, timeouts: Timeouts) -> None:
        self._effects.undo(self._resources_to_delete(kind, resource, self.account.read()), timeouts)
        with self.account.transaction() as transaction:
            for deleted in self._resources_to_delete(kind, resource, transaction.inventory):
                transaction.remove(deleted)
            if kind.image_repository:
                registries.delete_images(self._state, kind.image_repository(resource))
            self._write_derived(transaction)

    def _resources_to_delete(
        self, kind: ResourceType, resource: Resource, account: Inventory
    ) -> list[Resource]:
        """Return a resource and all resources that are deleted with it; raise CloudError if it cannot be deleted."""
        resources = list(self.cloud.deleted_with(resource, account))
        keys = {(item.token, item.id) for item in resources}
        evaluation.require_deletable(kind, self.cloud.types, resource, account, keys)
        self._require_empty(kind, resource)
        return resources

    def _require_empty(self, kind: ResourceType, resource: Resource) -> None:
        """Raise CloudError for a repository with images, as ECR does (ECR API, DeleteRepository)."""
        if kind.image_repository is None or resource.inputs.get("forceDelete"):
            return
        if registries.has_images(self._state, kind.image_repository(resource)):
            raise CloudError(
                "RepositoryNotEmptyException",
                f"the repository {resource.id} still has images: set forceDelete",
            )

    # -- faults and time

    def _timeouts(self, key: ResourceKey, seconds: float) -> Timeouts:
        report = self.report
        limit: dict[str, Any] = {"seconds": seconds} if seconds else {}
        return Timeouts(
            report=lambda text: report(key.urn, text), cancelled=self.cancelled, **limit
        )

    def _inject_fault(
        self, key: ResourceKey, operation: str, timeouts: Timeouts
    ) -> InjectedFault | None:
        """Return the injected fault of an operation; retry while it is throttled, as the SDKs do.

        Raises:
            ProviderError: the operation is refused.
        """
        for attempt in range(THROTTLED_ATTEMPTS):
            fault = self._faults.next(key.token, key.name, operation)
            if fault and fault.kind is FaultKind.CAPACITY and not self.kind(key.token).pools:
                raise ProviderError(
                    f"faults.json has a fault of the kind capacity for {key.token}, which has no "
                    "machines: use another kind, or a pattern that matches only pools as its type"
                )
            if fault is None or fault.kind not in (FaultKind.THROTTLE, FaultKind.ERROR):
                return fault
            if fault.kind is FaultKind.ERROR:
                raise CloudError("InternalError", fault.message or "the service failed")
            timeouts.report(f"throttled, attempt {attempt + 1} of {THROTTLED_ATTEMPTS}")
            timeouts.pause(FIRST_PAUSE_SECONDS * 2 ** min(attempt, 4))
        raise CloudError(
            self.cloud.throttling_code, f"rate exceeded, {THROTTLED_ATTEMPTS} consecutive times"
        )

    def _wait_latency(self, token: str, timeouts: Timeouts) -> None:
        """Wait for the latency of a type, but not beyond the time limit."""
        if seconds := self._faults.seconds(token):
            timeouts.pause(min(seconds, max(timeouts.remaining, 0)))


def _endpoint_outputs(kind: ResourceType, cluster: Resource) -> Outputs:
    """Return the outputs with the endpoint of a cluster that runs: an update does not change it."""
    if kind.cluster_outputs is None or not cluster.private:
        return {}
    endpoint = Endpoint(address=cluster.private["address"], ca=cluster.private["authority"])
    return kind.cluster_outputs(cluster, endpoint)


def _lose_response(fault: InjectedFault | None) -> None:
    if fault and fault.kind is FaultKind.LOST:
        raise CloudError("RequestTimeout", fault.message or "the response was lost")
