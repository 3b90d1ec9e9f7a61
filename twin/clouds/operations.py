"""What a cloud's provider does for the engine. Knows nothing of gRPC."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from everstep.errors import EverstepError
from twin.clouds import rules, volumes
from twin.clouds.account import Account, Change
from twin.clouds.acting import Machines
from twin.clouds.alone import Alone
from twin.clouds.catalog import Cloud
from twin.clouds.deeds import Deeds
from twin.clouds.diff import compare
from twin.clouds.errors import CloudError, HalfDoneError
from twin.clouds.faults import Fault, Faults, Kind
from twin.clouds.model import Inputs, Making, ResourceType, Settings
from twin.clouds.naming import with_name
from twin.clouds.outputs import complete, foresee
from twin.clouds.patience import Patience
from twin.clouds.wire.check import Mistake, check, nearest
from twin.clouds.wire.model import Wire
from twin.clouds.wire.store import Wires
from twin.clouds.world import Resource, World
from twin.pulumi.provider.changes import Diff
from twin.pulumi.provider.convert import Object, plain, without_nulls
from twin.pulumi.provider.errors import ProviderError

THROTTLED_ATTEMPTS = 10
FIRST_PAUSE_SECONDS = 0.05  # a cloud's SDK begins with seconds; the twin's time is compressed


@dataclass(frozen=True, kw_only=True)
class Request:
    """One resource that an operation is about."""

    urn: str
    token: str

    @property
    def name(self) -> str:
        """The name of the program's resource."""
        return self.urn.rpartition("::")[2]


class Operations:
    """The operations of one provider instance. Safe for many threads."""

    def __init__(
        self, cloud: Cloud, state: Path, machines: Machines, settings: Settings | None = None
    ) -> None:
        self.cloud = cloud
        self.settings = settings or Settings(cloud=cloud.name)
        self.account = Account(state, cloud.name)
        self.cancelled = threading.Event()
        self._state = state
        self._deeds = Deeds(self.account, machines, cloud.types)
        self._faults = Faults(state)
        self._wires = Wires(cloud.name, cloud.types.keys())
        self._read: dict[str, Wire] = {}
        self._alone = Alone()

    # -- about a type

    def kind(self, token: str) -> ResourceType:
        """Return the record of a type.

        Raises:
            ProviderError: the twin's cloud has no such type.
        """
        if token in self.cloud.types:
            return self.cloud.types[token]
        near = nearest(token, dict.fromkeys(self.cloud.types))
        raise ProviderError(
            f"the twin's {self.cloud.name} does not know {token}{near}. It knows what a stack of "
            "Everstep declares; for more, use the official plugin and an account"
        )

    def wire(self, token: str) -> Wire:
        """Return a type as it is on the wire."""
        if token not in self._read:
            try:
                self._read[token] = self._wires.load(token)
            except EverstepError as error:
                raise ProviderError(str(error)) from None
        return self._read[token]

    # -- without the account

    def check(
        self, request: Request, old: Object, new: Object, seed: bytes
    ) -> tuple[Object, list[Mistake]]:
        """Complete a program's inputs and list all that is wrong with them."""
        kind, wire = self.kind(request.token), self.wire(request.token)
        given = with_name(kind, self.cloud.name, request.name, without_nulls(new), old, seed)
        given = self.cloud.complete(given, wire, self.settings)
        bare = plain(given)
        mistakes = check(wire, bare)
        if not mistakes:  # the rules may then rely on names and types
            mistakes = [*self.cloud.faults(wire, bare, self.settings), *rules.faults(kind, bare)]
        return given, mistakes

    def diff(self, request: Request, old: Object, new: Object, ignored: list[str]) -> Diff:
        """Compare last and new inputs."""
        return compare(self.kind(request.token), request.name, old, new, ignored)

    def preview(self, request: Request, inputs: Object, old: Object) -> Object:
        """Foresee a resource's outputs; those that it has already stay, unless their input changed."""
        kind = self.kind(request.token)
        foreseen = foresee(self.wire(request.token), {**kind.defaults, **inputs})
        kept = {key: value for key, value in old.items() if key not in inputs}
        return {**foreseen, **kept}

    # -- with it

    def create(self, request: Request, inputs: Object, seconds: float) -> tuple[str, Object]:
        """Make a resource and wait until it is as wanted; return its id and outputs.

        Raises:
            HalfDoneError: it is there but not as wanted.
            ProviderError: it was not made.
        """
        kind, patience = self.kind(request.token), self._patience(request, seconds)
        fault = self._before(request, "create", patience)
        with self._alone.held(kind, plain(inputs), patience):
            resource = self._made(kind, request, plain(inputs))
            resource = self._act(kind, resource, fault, patience)
        if fault and fault.kind is Kind.LOST:
            raise CloudError("RequestTimeout", fault.message or "the answer never came")
        with self.account.changing() as change:
            change.answered(resource)
        return resource.id, dict(resource.outputs)

    def _made(self, kind: ResourceType, request: Request, inputs: Inputs) -> Resource:
        with self.account.changing() as change:
            lost = self._lost(change.world.all(kind.token), request)
            making = Making(
                inputs=inputs,
                settings=self.settings,
                world=change.world.ready,
                entropy=secrets.token_hex(16),
            )
            if lost and not compare(kind, request.name, lost.inputs, inputs, []).replaces:
                rules.require(kind, replace(making, id=lost.id))
                return self._put(change, kind, replace(making, id=lost.id), request, lost)
            identity = kind.identify(making)
            rules.require_unique(kind, making, identity, change.world)
            self._require_parent(kind, making, identity)
            rules.require(kind, replace(making, id=identity))
            return self._put(change, kind, replace(making, id=identity), request, None)

    def _put(
        self,
        change: Change,
        kind: ResourceType,
        making: Making,
        request: Request,
        before: Resource | None,
    ) -> Resource:
        """Write a resource into the account, described by its service."""
        made_at = before.made_at if before else time.time()
        making = replace(making, made_at=made_at, before=before)
        said = {**kind.defaults, **without_nulls(making.inputs)}
        values = {**said, **self.cloud.adds(making), **kind.describe(making)}
        resource = Resource(
            token=kind.token,
            id=making.id,
            urn=request.urn,
            inputs=dict(making.inputs),
            outputs=complete(self.wire(kind.token), values),
            answered=bool(before and before.answered),
            ready=bool(before and before.ready),
            made_at=making.made_at,
        )
        change.put(resource)
        for beside in kind.brings(resource, change.world) if kind.brings else ():
            if not change.world.find((beside.token,), beside.id):
                change.put(replace(beside, ready=True))
        volumes.write(self._state, self.cloud.name, self.cloud.volumes(change.world))
        return resource

    @staticmethod
    def _lost(there: Iterator[Resource], request: Request) -> Resource | None:
        """Find what an earlier creation made whose answer never reached the engine."""
        return next((each for each in there if each.urn == request.urn and not each.answered), None)

    @staticmethod
    def _require_parent(kind: ResourceType, making: Making, identity: str) -> None:
        parent = kind.parent(identity) if kind.parent else ""
        if parent and not making.world.find((), parent):
            raise CloudError(
                "ParentResourceNotFound", f"{identity} needs {parent}, which does not exist"
            )

    def _act(
        self,
        kind: ResourceType,
        resource: Resource,
        fault: Fault | None,
        patience: Patience,
        before: Resource | None = None,
    ) -> Resource:
        """Let the cloud do what the resource stands for.

        Args:
            kind: its record.
            resource: as it now stands in the account.
            fault: what goes wrong with it.
            patience: of the operation.
            before: the resource as it stood, where it was changed.

        Raises:
            HalfDoneError: it cannot, or not in time; the resource stays.
        """
        self._wait_latency(resource.token, patience)
        if fault and fault.kind in (Kind.CAPACITY, Kind.TIMEOUT):
            self._keep(resource)
            raise HalfDoneError(
                resource.id, [fault.message or self.cloud.says(fault.kind, resource)]
            )
        try:
            resource = self._reached(kind, resource)
            self._deeds.do(kind, resource, before, patience)
        except (EverstepError, ProviderError) as error:
            self._keep(resource)
            raise HalfDoneError(resource.id, [str(error)]) from None
        with self.account.changing() as change:
            return change.put(replace(resource, ready=True))

    def _keep(self, resource: Resource) -> None:
        """Note that the engine will know of a resource although it is not as wanted."""
        with self.account.changing() as change:
            change.answered(resource)

    def _reached(self, kind: ResourceType, resource: Resource) -> Resource:
        added, notes = self._deeds.reach(kind, resource)
        outputs = complete(self.wire(kind.token), {**resource.outputs, **added})
        return replace(resource, outputs=outputs, notes=notes)

    def update(self, request: Request, identity: str, inputs: Object, seconds: float) -> Object:
        """Change a resource in place.

        Raises:
            HalfDoneError: it was changed but is not as wanted.
            ProviderError: it was not changed.
        """
        kind, patience = self.kind(request.token), self._patience(request, seconds)
        fault = self._before(request, "update", patience)
        with self.account.changing() as change:
            before = change.world.find((kind.token,), identity)
            if before is None:
                raise CloudError(
                    "NotFound", f"{identity} is gone; `pulumi refresh` takes note of it"
                )
            making = Making(
                inputs=plain(inputs),
                settings=self.settings,
                world=change.world.ready,
                entropy=secrets.token_hex(16),
                id=before.id,
            )
            rules.require(kind, making)
            resource = self._put(change, kind, making, request, before)
        resource = self._act(kind, resource, fault, patience, before)
        if fault and fault.kind is Kind.LOST:
            raise CloudError("RequestTimeout", fault.message or "the answer never came")
        return dict(resource.outputs)

    def read(self, request: Request, identity: str) -> tuple[Resource, Inputs] | None:
        """Return a resource and the inputs that it stands for now; None where it is gone."""
        kind, patience = self.kind(request.token), self._patience(request, 0)
        self._before(request, "read", patience)
        resource = self.account.read().find((kind.token,), identity)
        if resource is None:
            return None
        live = self._deeds.live(kind, resource)
        outputs = complete(self.wire(kind.token), {**resource.outputs, **_changed(resource, live)})
        return replace(resource, outputs=outputs), live

    def delete(self, request: Request, identity: str, seconds: float) -> None:
        """Let a resource go; one that is gone already is fine.

        Raises:
            ProviderError: the cloud refuses, or its machines do not go in time.
        """
        kind, patience = self.kind(request.token), self._patience(request, seconds)
        fault = self._before(request, "delete", patience)
        world = self.account.read()
        resource = world.find((kind.token,), identity)
        if resource is None:
            return
        self._release(kind, resource, world)
        if fault and fault.kind is Kind.TIMEOUT:
            raise ProviderError(fault.message or self.cloud.says(fault.kind, resource))
        self._wait_latency(resource.token, patience)
        with self._alone.held(kind, resource.inputs, patience):
            self._gone(kind, resource, patience)
        if fault and fault.kind is Kind.LOST:
            raise CloudError("RequestTimeout", fault.message or "the answer never came")

    def _gone(self, kind: ResourceType, resource: Resource, patience: Patience) -> None:
        self._deeds.undo(self._release(kind, resource, self.account.read()), patience)
        with self.account.changing() as change:
            for gone in self._release(kind, resource, change.world):
                change.remove(gone)
            volumes.write(self._state, self.cloud.name, self.cloud.volumes(change.world))

    def _release(self, kind: ResourceType, gone: Resource, world: World) -> list[Resource]:
        """Return all that goes with a resource, if it may go."""
        going = list(self.cloud.goes_with(gone, world))
        keys = {(each.token, each.id) for each in going}
        rules.release(kind, self.cloud.types, gone, world, keys)
        return going

    def invoke(self, token: str, arguments: Object) -> Object:
        """Run one of the provider's functions.

        Raises:
            ProviderError: there is no such function, or it refuses.
        """
        function = self.cloud.functions.get(token)
        if function is None:
            near = nearest(token, dict.fromkeys(self.cloud.functions))
            raise ProviderError(f"the twin's {self.cloud.name} has no function {token}{near}")
        return function(plain(arguments), self.settings, self.account.read())

    # -- faults and time

    tell: Callable[[str, str], None] = staticmethod(lambda _urn, _text: None)

    def _patience(self, request: Request, seconds: float) -> Patience:
        told = self.tell
        limit = {"seconds": seconds} if seconds else {}
        return Patience(
            tell=lambda text: told(request.urn, text), cancelled=self.cancelled, **limit
        )

    def _before(self, request: Request, operation: str, patience: Patience) -> Fault | None:
        """Meet what is to go wrong; a refusal for the rate is tried again, as the SDKs do.

        Raises:
            ProviderError: the operation is refused.
        """
        for attempt in range(THROTTLED_ATTEMPTS):
            fault = self._faults.strike(request.token, request.name, operation)
            if fault is None or fault.kind not in (Kind.THROTTLE, Kind.ERROR):
                return fault
            if fault.kind is Kind.ERROR:
                raise CloudError("InternalError", fault.message or "the service failed")
            patience.tell(f"refused for its rate, attempt {attempt + 1} of {THROTTLED_ATTEMPTS}")
            patience.pause(FIRST_PAUSE_SECONDS * 2 ** min(attempt, 4))
        raise CloudError(
            self.cloud.throttled, f"rate exceeded, {THROTTLED_ATTEMPTS} times in a row"
        )

    def _wait_latency(self, token: str, patience: Patience) -> None:
        if seconds := self._faults.seconds(token):
            patience.pause(seconds)


def _changed(resource: Resource, live: Inputs) -> dict[str, Any]:
    return {key: value for key, value in live.items() if resource.inputs.get(key) != value}
