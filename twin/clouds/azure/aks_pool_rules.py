"""What Azure Kubernetes Service demands of node pools, inline in a cluster or apart. Pure.

Sources: AKS documentation ("Use system node pools", "Spot node pools", "Use GPUs"), the AKS REST
API's errors; terraform-provider-azurerm #26465 and #31129 for surge on Spot. Read 2026-11.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from twin.clouds.azure.machines import GPUS, RETIRED, SIZES
from twin.clouds.model import Inputs
from twin.clouds.rules import at, known
from twin.clouds.wire.check import Mistake

POOL_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")


TAINT = re.compile(r"([^=:]+)=([^=:]*):(NoSchedule|PreferNoSchedule|NoExecute)")


SPOT_KEY = "kubernetes.azure.com/scalesetpriority"


SPOT_TAINT = f"{SPOT_KEY}=spot:NoSchedule"


MOST_DECIMALS = 5


MOST_NODES = 1000


ZONES = ("1", "2", "3")


def inline(check: Callable[[Inputs], Iterable[Mistake]]) -> Callable[[Inputs], Iterable[Mistake]]:
    """Return the rule of a pool for the pools inline in a cluster."""

    def broken(inputs: Inputs) -> Iterable[Mistake]:
        pools = inputs.get("agentPoolProfiles")
        for position, pool in enumerate(pools if isinstance(pools, list) else []):
            for mistake in check(_Inline(pool)):
                path = ("name",) if mistake.path == ("agentPoolName",) else mistake.path
                yield Mistake(("agentPoolProfiles", position, *path), mistake.reason)

    return broken


class _Inline(Mapping[str, Any]):
    """An inline pool under the names of a pool apart; nothing is looked at before it is asked for."""

    def __init__(self, pool: Mapping[str, Any]) -> None:
        self._pool = pool

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401  inputs are of any type
        return self._pool["name" if key == "agentPoolName" else key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pool)

    def __len__(self) -> int:
        return len(self._pool)


def pool_name(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a name that a Linux pool cannot have."""
    name = inputs.get("agentPoolName")
    if isinstance(name, str) and not POOL_NAME.fullmatch(name):
        said = "1 to 12 lower-case letters and digits, a letter first"
        yield at("agentPoolName", f"{name!r} cannot name a Linux pool: {said}")


def pool_counts(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse counts that contradict."""
    count, least, most = (inputs.get(each) for each in ("count", "minCount", "maxCount"))
    scales = inputs.get("enableAutoScaling")
    if not scales and (least is not None or most is not None):
        yield at("minCount", "minCount and maxCount need enableAutoScaling")
    if scales and (least is None or most is None):
        yield at("minCount", "enableAutoScaling needs minCount and maxCount")
    numbers = [each for each in (least, count, most) if isinstance(each, int)]
    if numbers != sorted(numbers):
        yield at("count", f"minCount <= count <= maxCount must hold: {numbers}")
    if any(not 0 <= each <= MOST_NODES for each in numbers):
        yield at("count", f"a pool has 0 to {MOST_NODES} nodes")
    if inputs.get("mode") == "System" and any(each == 0 for each in numbers):
        yield at("count", "a System pool has at least one node")


def pool_spot(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse what a Spot pool cannot have, and what only a Spot pool has."""
    spot = inputs.get("scaleSetPriority") == "Spot"
    if not spot:
        for name in ("scaleSetEvictionPolicy", "spotMaxPrice"):
            if known(inputs.get(name)):
                yield at(name, "only a pool with scaleSetPriority Spot has it")
        return
    if inputs.get("mode") == "System":
        yield at("mode", "a System pool cannot be Spot")
    if inputs.get("type", "VirtualMachineScaleSets") != "VirtualMachineScaleSets":
        yield at("type", "a Spot pool is of VirtualMachineScaleSets")
    settings = inputs.get("upgradeSettings") or {}
    for name in ("maxSurge", "maxUnavailable"):
        if known(settings.get(name)):
            yield at(f"upgradeSettings.{name}", "a Spot pool has none: leave upgradeSettings out")


def pool_price(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a price that is none, or finer than the market's."""
    price = inputs.get("spotMaxPrice")
    if not isinstance(price, int | float) or isinstance(price, bool) or price == -1:
        return
    if price <= 0:
        yield at("spotMaxPrice", f"{price}: -1 (whatever on demand costs) or more than 0")
    elif round(price, MOST_DECIMALS) != price:
        yield at("spotMaxPrice", f"{price} has more than {MOST_DECIMALS} decimals")


def pool_size(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a size of machine that Azure does not have any more, or the twin does not know."""
    size = inputs.get("vmSize")
    if isinstance(size, str) and size not in SIZES:
        why = "Azure has retired it" if size in RETIRED else "the twin knows no such size"
        yield at("vmSize", f"{size!r}: {why}")


def pool_taints(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse what is no taint."""
    taints = inputs.get("nodeTaints")
    for position, taint in enumerate(taints if isinstance(taints, list) else []):
        if isinstance(taint, str) and not TAINT.fullmatch(taint):
            yield at(
                f"nodeTaints[{position}]", f"{taint!r} is not of the form key=value:NoSchedule"
            )


def pool_gpu(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a GPU driver where there is no GPU, and MIG where there is nothing to divide."""
    size = str(inputs.get("vmSize"))
    if size in SIZES and size not in GPUS and inputs.get("gpuProfile"):
        yield at("gpuProfile", f"{size} has no GPU")
    divisible = any(mark in size for mark in ("A100", "H100", "H200", "asr_v4"))
    if known(inputs.get("gpuInstanceProfile")) and not divisible:
        yield at("gpuInstanceProfile", f"the GPUs of {size} cannot be divided")


def pool_zones(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse zones that no location has."""
    zones = inputs.get("availabilityZones")
    for position, zone in enumerate(zones if isinstance(zones, list) else []):
        if known(zone) and zone not in ZONES:
            yield at(f"availabilityZones[{position}]", f"{zone!r}: zones are 1, 2 and 3")


POOL_CHECKS: Mapping[str, Any] = {
    "name of a pool": pool_name,
    "counts of a pool": pool_counts,
    "what Spot forbids": pool_spot,
    "price of a Spot pool": pool_price,
    "size of a pool's machines": pool_size,
    "taints of a pool": pool_taints,
    "GPUs of a pool": pool_gpu,
    "zones of a pool": pool_zones,
}
