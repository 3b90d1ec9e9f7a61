"""Service quotas of the twin's AWS account, set by hand: the quotas of a new account may allow no GPU machine.

A quota that is not set does not limit anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cloudfacts.aws import INSTANCE_TYPES
from cloudfacts.quotas import quota

from cloudtwin import files
from cloudtwin.capacity.pools import Pool

SPOT_EXCEEDED = "MaxSpotInstanceCountExceeded: Max spot instance count exceeded"
ON_DEMAND_EXCEEDED = (
    "VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit allows"
)


@dataclass(frozen=True)
class QuotaStore:
    """The quotas of one twin.

    Attributes:
        state: the twin's folder.
    """

    state: Path

    @property
    def path(self) -> Path:
        """The file of the quotas."""
        return self.state / "cloud" / "quotas.json"

    def set(self, code: str, vcpus: float) -> None:
        """Set a quota.

        Args:
            code: code of the quota, such as `L-3819A6DF`.
            vcpus: vCPUs in one region.
        """
        files.change_json(self.path, lambda quotas: quotas.update({code: vcpus}))

    def all(self) -> dict[str, float]:
        """Return the quotas that are set, by code."""
        return {
            str(code): float(value) for code, value in (files.read_json(self.path) or {}).items()
        }


def limits(pools: Iterable[Pool], quotas: dict[str, float]) -> dict[str, int]:
    """Return the number of machines of each pool that the quotas allow; pools without a quota are absent.

    Pools that share a quota share its vCPUs, in the given order and up to their desired sizes.

    Args:
        pools: the pools.
        quotas: vCPUs by code of the quota.
    """
    remaining = dict(quotas)
    result: dict[str, int] = {}
    for pool in pools:
        machine = INSTANCE_TYPES.get(pool.instance_types[0])
        account_quota = quota(pool.instance_types[0], spot=pool.capacity == "spot")
        if (
            pool.cloud != "aws"
            or machine is None
            or account_quota is None
            or account_quota.code not in remaining
        ):
            continue
        result[pool.key] = int(remaining[account_quota.code] // machine.vcpus)
        remaining[account_quota.code] -= min(result[pool.key], pool.desired_size) * machine.vcpus
    return result


def reason(pool: Pool) -> str:
    """Return EC2's error message for an exceeded quota."""
    return SPOT_EXCEEDED if pool.capacity == "spot" else ON_DEMAND_EXCEEDED
