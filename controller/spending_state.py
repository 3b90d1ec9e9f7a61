"""Spending and purchases of a job, as stored in the job's status."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controller.timestamps import format_time, parse_time

DIGITS = 6  # decimals of stored amounts and times; the status is compared as JSON
HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class BilledMachine:
    """A machine that one of the job's pods occupies.

    Attributes:
        pod: uid of the pod.
        pool: value of the node's pool label; empty if there is none.
        on_demand: True if it was bought on demand.
        usd_per_hour: price of the machine.
    """

    pod: str
    pool: str
    on_demand: bool
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True)
class ObservedShare:
    """The completed share of the training in the metrics of a worker.

    Attributes:
        value: the share, from 0 to 1.
        read_at: time at which it was read.
    """

    value: float
    read_at: datetime


@dataclass(frozen=True, kw_only=True)
class CompletedShare:
    """The completed share of the training, and the machine time in which it grew.

    Attributes:
        first_share: the first share that was read, from 0 to 1.
        newest_share: the newest share, from 0 to 1.
        machine_seconds: time of training workers in between.
        pending_seconds: time of training workers since the newest share was read.
    """

    first_share: float
    newest_share: float
    machine_seconds: float = 0.0
    pending_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SpendingState:
    """The part of the job's status about its spending.

    Attributes:
        counted_at: time up to which spending is counted.
        usd: amount spent until then.
        spot_seconds: machine-seconds of spot machines until then.
        on_demand_seconds: machine-seconds of on-demand machines until then.
        machines: machines that are billed from then on.
        fixed_usd_per_hour: price of everything else that is billed from then on.
        workers: number of workers that train from then on.
        on_demand: desired number of on-demand workers.
        use_spot: whether the job should have spot workers as well.
        reason: reason for the decision, and a possible fix.
        deadline: time by which the job has to be complete; None without a deadline.
        completed_share: completed share of the training; None until it is read.
        starved_since: time since which too few spot workers have trained; None while enough train.
        used_up: whether the budget is used up.
    """

    counted_at: datetime
    usd: float = 0.0
    spot_seconds: float = 0.0
    on_demand_seconds: float = 0.0
    machines: tuple[BilledMachine, ...] = ()
    fixed_usd_per_hour: float = 0.0
    workers: int = 0
    on_demand: int = 0
    use_spot: bool = True
    reason: str = ""
    deadline: datetime | None = None
    completed_share: CompletedShare | None = None
    starved_since: datetime | None = None
    used_up: bool = False

    @property
    def usd_per_hour(self) -> float:
        """Price of everything that is billed since the last count."""
        return self.fixed_usd_per_hour + sum(machine.usd_per_hour for machine in self.machines)

    @classmethod
    def from_json(cls, source: Mapping[str, Any] | None) -> "SpendingState | None":
        """Parse the JSON in a job's status; None if there is none."""
        counted_at = parse_time((source or {}).get("countedAt"))
        if not source or counted_at is None:
            return None
        return cls(
            counted_at=counted_at,
            usd=source["usd"],
            spot_seconds=source.get("spotSeconds", 0.0),
            on_demand_seconds=source.get("onDemandSeconds", 0.0),
            machines=tuple(_machine(machine) for machine in source.get("machines") or ()),
            fixed_usd_per_hour=source.get("fixedUsdPerHour", 0.0),
            workers=source.get("workers", 0),
            on_demand=source.get("onDemand", 0),
            use_spot=source.get("useSpot", True),
            reason=source.get("reason", ""),
            deadline=parse_time(source.get("deadline")),
            completed_share=_share(source.get("share")),
            starved_since=parse_time(source.get("starvedSince")),
            used_up=source.get("usedUp", False),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON, without empty values."""
        optional: dict[str, Any] = {
            "spotSeconds": round(self.spot_seconds, DIGITS),
            "onDemandSeconds": round(self.on_demand_seconds, DIGITS),
            "machines": [_machine_json(machine) for machine in self.machines],
            "fixedUsdPerHour": self.fixed_usd_per_hour,
            "workers": self.workers,
            "onDemand": self.on_demand,
            "reason": self.reason,
            "deadline": format_time(self.deadline) if self.deadline else None,
            "share": _share_json(self.completed_share) if self.completed_share else None,
            "starvedSince": format_time(self.starved_since) if self.starved_since else None,
            "usedUp": self.used_up,
        }
        fixed = {
            "countedAt": format_time(self.counted_at),
            "usd": round(self.usd, DIGITS),
            "usdPerHour": round(self.usd_per_hour, DIGITS),
            "useSpot": self.use_spot,
        }
        return fixed | {key: value for key, value in optional.items() if value}


def _machine(source: Mapping[str, Any]) -> BilledMachine:
    return BilledMachine(
        pod=source["pod"],
        pool=source.get("pool", ""),
        on_demand=source.get("onDemand", False),
        usd_per_hour=source["usdPerHour"],
    )


def _machine_json(machine: BilledMachine) -> dict[str, Any]:
    return {
        "pod": machine.pod,
        "usdPerHour": machine.usd_per_hour,
        **({"pool": machine.pool} if machine.pool else {}),
        **({"onDemand": True} if machine.on_demand else {}),
    }


def _share(source: Mapping[str, Any] | None) -> CompletedShare | None:
    if not source:
        return None
    return CompletedShare(
        first_share=source["first"],
        newest_share=source["now"],
        machine_seconds=source.get("machineSeconds", 0.0),
        pending_seconds=source.get("pendingSeconds", 0.0),
    )


def _share_json(share: CompletedShare) -> dict[str, Any]:
    pending_seconds = round(share.pending_seconds, DIGITS)
    return {
        "first": round(share.first_share, DIGITS),
        "now": round(share.newest_share, DIGITS),
        "machineSeconds": round(share.machine_seconds, DIGITS),
        **({"pendingSeconds": pending_seconds} if pending_seconds else {}),
    }
