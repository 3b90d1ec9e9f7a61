"""Observed lifetimes of spot machines in each zone, from the job's own pods, for the choice of a zone.

The functions are pure. Machine time is the time in which a spot pod runs. A machine is lost when its pod gets an
interruption notice or its node is lost; the end of a deleted pod does not count. The job's status has the weighted
observations, the time up to which machine time is counted, and the pods whose loss is counted. A controller may
therefore stop at any moment: the next controller counts the time in between from the pods, and no loss twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controller.objects import Pod
from controller.timestamps import format_time, parse_time
from everstep.capacity.lifetimes import LifetimeRecord, weighted_seconds

COUNT_SECONDS = 600.0
"""Interval at which machine time is written while no machine is lost; about this much of the machine time of a deleted
pod may be missing."""

DIGITS = 3  # decimals of stored machine-seconds and losses; the status is compared as JSON


@dataclass(frozen=True, kw_only=True)
class ObservedMachines:
    """Machines of a job in one pass.

    Attributes:
        pods: its spot pods, including pods on lost nodes.
        lost_uids: uids of the pods on lost nodes.
        now: the current time.
    """

    pods: Sequence[Pod] = ()
    lost_uids: frozenset[str] = frozenset()
    now: datetime

    def is_lost(self, pod: Pod) -> bool:
        """Return True if the machine of a pod is interrupted or lost; not if the pod was deleted before."""
        deleted_before = pod.terminating and not pod.disrupted
        return pod.interrupted or (pod.uid in self.lost_uids and not deleted_before)


@dataclass(frozen=True, kw_only=True)
class LifetimeState:
    """The part of the job's status about the lifetimes of its machines.

    Attributes:
        counted_at: time up to which machine time is counted; the weights refer to it.
        zones: observations in each zone.
        lost: uids of existing pods whose loss is counted.
    """

    counted_at: datetime
    zones: Mapping[str, LifetimeRecord] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()

    def record(self, zone: str) -> LifetimeRecord:
        """Return the observations in a zone; an empty record without any."""
        return self.zones.get(zone, LifetimeRecord())

    @classmethod
    def from_json(cls, source: Mapping[str, Any] | None) -> "LifetimeState | None":
        """Parse the JSON in a job's status; None if there is none."""
        counted_at = parse_time((source or {}).get("countedAt"))
        if not source or counted_at is None:
            return None
        return cls(
            counted_at=counted_at,
            zones={
                item["zone"]: LifetimeRecord(item["seconds"], item["losses"])
                for item in source.get("zones") or ()
            },
            lost=frozenset(source.get("lost") or ()),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON, without empty values."""
        zones = [
            {
                "zone": zone,
                "seconds": record.seconds,
                "losses": record.losses,
            }
            for zone, record in sorted(self.zones.items())
        ]
        optional = {"zones": zones, "lost": sorted(self.lost)}
        return {
            "countedAt": format_time(self.counted_at),
            **{key: value for key, value in optional.items() if value},
        }


def count(observed: ObservedMachines, previous: LifetimeState | None) -> LifetimeState:
    """Return the state with the machine time and the losses until now."""
    state = previous or _initial_state(observed)
    elapsed = (observed.now - state.counted_at).total_seconds()
    zones = {zone: record.decayed(elapsed) for zone, record in state.zones.items()}
    for pod in observed.pods:
        if not pod.zone or pod.uid in state.lost:
            continue
        seconds = _seconds(observed, state, pod)
        zones[pod.zone] = zones.get(pod.zone, LifetimeRecord()).plus(
            seconds, float(observed.is_lost(pod))
        )
    return LifetimeState(
        counted_at=max(observed.now, state.counted_at),
        zones=_rounded(zones),
        lost=_lost(observed, state),
    )


def to_store(
    observed: ObservedMachines, previous: LifetimeState | None, counted: LifetimeState
) -> LifetimeState | None:
    """Return the state for the status: the counted one if it is due or has a new loss, else the previous one.

    A status that changed in every pass would cause the next pass.
    """
    since = (previous or _initial_state(observed)).counted_at
    runs = any(pod.phase == "Running" for pod in observed.pods)
    is_due = runs and (observed.now - since).total_seconds() >= COUNT_SECONDS
    new_losses = counted.lost - (previous.lost if previous else frozenset())
    return counted if is_due or new_losses else previous


def _initial_state(observed: ObservedMachines) -> LifetimeState:
    starts: Iterable[datetime] = (pod.started for pod in observed.pods if pod.started)
    return LifetimeState(counted_at=min(starts, default=observed.now))


def _rounded(zones: Mapping[str, LifetimeRecord]) -> dict[str, LifetimeRecord]:
    """Return the records as the status stores them, without empty ones."""
    rounded = {
        zone: LifetimeRecord(round(record.seconds, DIGITS), round(record.losses, DIGITS))
        for zone, record in zones.items()
    }
    return {zone: record for zone, record in rounded.items() if record != LifetimeRecord()}


def _lost(observed: ObservedMachines, state: LifetimeState) -> frozenset[str]:
    """Return the uids of existing pods whose loss is counted: pods that are gone are never observed again."""
    return frozenset(
        pod.uid for pod in observed.pods if pod.uid in state.lost or observed.is_lost(pod)
    )


def _seconds(observed: ObservedMachines, state: LifetimeState, pod: Pod) -> float:
    """Return the weighted time in which a pod has run since the last count."""
    if pod.started is None:
        return 0.0
    end = (pod.finished or pod.started) if pod.ended else observed.now
    begin = max(pod.started, state.counted_at)
    return weighted_seconds(
        (observed.now - begin).total_seconds(), (observed.now - end).total_seconds()
    )
