"""Rules of Azure Kubernetes Service for node pools, inline in a cluster or separate. Pure.

Sources: AKS documentation ("Use system node pools", "Spot node pools", "Use GPUs"), errors of the AKS
REST API; terraform-provider-azurerm #26465 and #31129 for surge on Spot. Read 2026-11.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cloudfacts.azure import VM_SIZES, retired

from cloudtwin.providers.conditions import (
    failure_at,
    is_known,
    label_error,
    matches,
    one_of_values,
    section,
    value_rule,
)
from cloudtwin.providers.model import InputRule, Inputs
from cloudtwin.providers.schema.check import CheckFailure

TAINT = re.compile(r"([^=:]+)=([^=:]*):(NoSchedule|PreferNoSchedule|NoExecute)")
SPOT_KEY = "kubernetes.azure.com/scalesetpriority"
SPOT_TAINT = f"{SPOT_KEY}=spot:NoSchedule"
# AKS #1937, #2866; terraform-provider-azurerm #18567.
KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")
ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
ALLOWED_LABELS = frozenset({
    "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region", "failure-domain.kubernetes.io/zone", "kubernetes.io/arch",
    "kubernetes.io/hostname", "kubernetes.io/instance-type", "kubernetes.io/os",
})  # fmt: skip
AKS_DOMAIN = "kubernetes.azure.com"
MAX_DECIMALS, MAX_NODES = 5, 1000
MIG_SIZES = ("A100", "H100", "H200", "asr_v4")  # substrings of sizes whose GPUs support MIG
DOCS = "AKS documentation, node pools"


def gpus(size: str) -> int:
    """Return the number of GPUs of a size; 0 for an unknown size."""
    return VM_SIZES[size].gpus if size in VM_SIZES else 0


def inline_rule(rule: InputRule) -> InputRule:
    """Return a rule that applies a separate pool's rule to the inline pools of a cluster."""

    def violations(inputs: Inputs) -> Iterable[CheckFailure]:
        pools = inputs.get("agentPoolProfiles")
        for position, pool in enumerate(pools if isinstance(pools, list) else []):
            for failure in rule.violations(_InlinePool(pool)) if isinstance(pool, Mapping) else ():
                path = ("name",) if failure.path == ("agentPoolName",) else failure.path
                yield CheckFailure(("agentPoolProfiles", position, *path), failure.reason)

    return InputRule(f"inline: {rule.name}", rule.source, violations)


class _InlinePool(Mapping[str, Any]):
    """An inline pool with the input names of a separate pool; reads a value only on access."""

    def __init__(self, pool: Mapping[str, Any]) -> None:
        self._pool = pool

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401  inputs are of any type
        return self._pool["name" if key == "agentPoolName" else key]

    def __iter__(self) -> Iterator[str]:
        return ("agentPoolName" if key == "name" else key for key in self._pool)

    def __len__(self) -> int:
        return len(self._pool)


def _counts(inputs: Inputs) -> Iterable[CheckFailure]:
    count, low, high = (inputs.get(key) for key in ("count", "minCount", "maxCount"))
    scales = inputs.get("enableAutoScaling")
    if not scales and (low is not None or high is not None):
        yield failure_at("minCount", "minCount and maxCount need enableAutoScaling")
    if scales and (low is None or high is None):
        yield failure_at("minCount", "enableAutoScaling needs minCount and maxCount")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        yield failure_at("minCount", f"minCount {low} <= maxCount {high} must hold")
    numbers = [number for number in (low, count, high) if isinstance(number, int)]
    if any(not 0 <= number <= MAX_NODES for number in numbers):
        yield failure_at("count", f"a pool has 0 to {MAX_NODES} nodes")
    if inputs.get("mode") == "System" and any(number == 0 for number in numbers):
        yield failure_at("count", "a System pool has at least one node")


def _spot(inputs: Inputs) -> Iterable[CheckFailure]:
    if inputs.get("scaleSetPriority") != "Spot":
        for name in ("scaleSetEvictionPolicy", "spotMaxPrice"):
            if is_known(inputs.get(name)):
                yield failure_at(name, "requires scaleSetPriority Spot")
        return
    if inputs.get("mode") == "System":
        yield failure_at("mode", "a System pool cannot be Spot")
    if inputs.get("type", "VirtualMachineScaleSets") != "VirtualMachineScaleSets":
        yield failure_at("type", "a Spot pool must be of type VirtualMachineScaleSets")
    settings = section(inputs, "upgradeSettings")
    for name in ("maxSurge", "maxUnavailable"):
        if is_known(settings.get(name)):
            reason = "a Spot pool does not support it: leave upgradeSettings out"
            yield failure_at(f"upgradeSettings.{name}", reason)


def _price(price: object) -> str | None:
    if not isinstance(price, int | float) or isinstance(price, bool) or price == -1:
        return None
    if price <= 0:
        return f"{price} is not a price: it must be -1 (up to the on-demand price) or more than 0"
    is_too_precise = round(price, MAX_DECIMALS) != price
    return f"{price} has more than {MAX_DECIMALS} decimal places" if is_too_precise else None


def _size(size: object) -> str | None:
    if not isinstance(size, str) or size in VM_SIZES:
        return None
    return f"{size!r}: {'Azure has retired it' if retired(size) else 'the twin has no such size'}"


def _labels(inputs: Inputs) -> Iterable[CheckFailure]:
    for key, value in section(inputs, "nodeLabels").items():
        if reason := label_error(key, value) or _reserved_label(key):
            yield failure_at("nodeLabels", reason)


def _reserved_label(key: str) -> str | None:
    """Return the reason why AKS reserves a label; None if a pool may have it."""
    domain = key.rpartition("/")[0]
    if _is_in_domain(domain, AKS_DOMAIN) and key != SPOT_KEY:
        return (
            f"Invalid node label key {key}: AKS reserves the prefix {AKS_DOMAIN} for its own labels"
        )
    is_reserved = any(_is_in_domain(domain, reserved) for reserved in KUBERNETES_DOMAINS)
    is_allowed = any(_is_in_domain(domain, allowed) for allowed in ALLOWED_DOMAINS)
    if is_reserved and not is_allowed and key not in ALLOWED_LABELS:
        return (
            f"{key}: a label key in kubernetes.io or k8s.io must begin with an allowed prefix "
            f"({', '.join(ALLOWED_DOMAINS)}); use a domain of your own"
        )
    return None


def _is_in_domain(domain: str, parent: str) -> bool:
    return f".{domain}".endswith(f".{parent}")


def _gpu(inputs: Inputs) -> Iterable[CheckFailure]:
    size = str(inputs.get("vmSize"))
    if size in VM_SIZES and not gpus(size) and inputs.get("gpuProfile"):
        yield failure_at("gpuProfile", f"{size} has no GPU")
    if is_known(inputs.get("gpuInstanceProfile")) and not any(mark in size for mark in MIG_SIZES):
        yield failure_at("gpuInstanceProfile", f"the GPUs of {size} do not support MIG")


NODES_OR_SHARE = matches(
    r"[0-9]{1,4}|(100|[1-9]?[0-9])%", "is neither a number of nodes nor a percentage up to 100%"
)
POOL_RULES = (
    value_rule("name of a pool", "agentPoolName",
               matches("[a-z][a-z0-9]{0,11}", "is not a valid name of a Linux pool: 1 to 12 lower-case "
                       "letters and digits, starting with a letter"), DOCS),
    InputRule("counts of a pool", DOCS, _counts),
    InputRule("restrictions of Spot", DOCS, _spot),
    value_rule("price of a Spot pool", "spotMaxPrice", _price, DOCS),
    value_rule("size of a pool's machines", "vmSize", _size, DOCS),
    value_rule("taints of a pool", "nodeTaints.*",
               matches(TAINT.pattern, "is not of the form key=value:NoSchedule"), DOCS),
    InputRule("labels of a pool", "AKS #1937, #2866; aks-nvme-ssd-provisioner #5", _labels),
    *(value_rule(f"{name} of a pool", f"upgradeSettings.{name}", NODES_OR_SHARE, DOCS)
      for name in ("maxSurge", "maxUnavailable")),
    InputRule("GPUs of a pool", DOCS, _gpu),
    value_rule("zones of a pool", "availabilityZones.*", one_of_values("1", "2", "3"), DOCS),
)  # fmt: skip
