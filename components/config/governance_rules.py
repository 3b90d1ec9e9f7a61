"""Governance rules, some of them only for stacks on a cloud: tags, deletion protection, images, prices, quotas."""

import re
from collections.abc import Mapping

from components.config import on_demand_nodes
from components.config.aks import AksConfig
from components.config.eks import EksConfig
from components.config.faults import ConfigFault, close_names
from components.config.platform import PriceConfig
from components.config.registry_rules import IMAGES
from components.config.rules import ConfigRule, Flag
from components.config.section import Section
from components.config.workload import JobConfig
from everstep.catalog.names import PRODUCTION, REQUIRED_TAGS

OTHER_PODS = 3
"""Pods of the job's namespace besides workers and etcd: the controller, and the Jobs of data and credentials."""

RESERVED_TAGS = ("managed-by", "stack")
OTHER_NAMES_OF_PRODUCTION = ("live", "prd", "production")
MAX_ENVIRONMENT_LENGTH = 20
MAX_TAGS = 40  # both clouds allow 50; some are set by Everstep and some by the services
MAX_TAG_NAME_LENGTH = 128  # limit of AWS and of Azure's storage accounts

_ENVIRONMENT = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_TAG_NAME = re.compile(r"[\w .:=+@-]+")  # Azure does not allow a slash
_RESERVED_PREFIXES = ("aws:", "microsoft", "azure", "windows")
_ACR_NAME = re.compile(r"[a-z0-9]{5,50}")
REGISTRY_KINDS = {"eks": "ecr", "aks": "acr"}


def _tags_complete(tags: Mapping[str, str]) -> list[ConfigFault]:
    """Check that the tags identify the owner of the costs, and that there are not too many."""
    faults = []
    for name in REQUIRED_TAGS:
        if name not in tags:
            similar = close_names(name, tuple(tags))
            fix = f"rename {similar[0]}" if similar else "add it"
            faults.append(ConfigFault(f"tags.{name}", None, "is missing", fix))
    if len(tags) > MAX_TAGS:
        rule = f"has {len(tags)} tags; the maximum is {MAX_TAGS}"
        faults.append(ConfigFault("tags", "...", rule, "remove some"))
    return faults


def _environment_valid(tags: Mapping[str, str]) -> list[ConfigFault]:
    """Check that the environment is a short name, and that production is named `prod`: its rules need that name."""
    path, environment = "tags.environment", tags.get("environment")
    if environment is None:
        return []
    if environment.lower() in OTHER_NAMES_OF_PRODUCTION:
        rule = f"looks like production, whose rules apply only to {PRODUCTION}"
        return [ConfigFault(path, environment, rule, f"use {PRODUCTION}, or another name")]
    if _ENVIRONMENT.fullmatch(environment) and len(environment) <= MAX_ENVIRONMENT_LENGTH:
        return []
    rule = (
        f"is not a name of up to {MAX_ENVIRONMENT_LENGTH} lower-case letters, digits and dashes that "
        "begins with a letter and does not end with a dash"
    )
    return [ConfigFault(path, environment, rule, f"use one such as dev, staging or {PRODUCTION}")]


def _tag_names_valid(tags: Mapping[str, str]) -> list[ConfigFault]:
    """Check that both clouds accept the tags' names and that none is reserved."""
    faults = []
    for name in tags:
        rule = _violated_rule(name)
        if rule:
            faults.append(ConfigFault(f"tags.{name}", tags[name], rule, "choose another name"))
    return faults


def _tag_names_differ(tags: Mapping[str, str]) -> list[ConfigFault]:
    """Check that no two names differ only in case, which IAM and Azure ignore."""
    return [
        ConfigFault(f"tags.{name}", tags[name], f"differs from {other} only in case", "remove one")
        for name in tags
        for other in list(tags)[: list(tags).index(name)]
        if name.lower() == other.lower()
    ]


def _violated_rule(name: str) -> str:
    """Return the rule that the name of a tag violates; empty if it is valid."""
    if name.lower() in RESERVED_TAGS:  # IAM and Azure ignore case
        return "is a tag that Everstep sets itself"
    if name.lower().startswith(_RESERVED_PREFIXES):
        return "starts with a prefix that a cloud reserves"
    if len(name) > MAX_TAG_NAME_LENGTH:
        return f"has more than {MAX_TAG_NAME_LENGTH} characters"
    return (
        "" if _TAG_NAME.fullmatch(name) else "has characters that one of the clouds does not allow"
    )


def _production_protected(tags: Mapping[str, str], protect: Flag) -> list[ConfigFault]:
    """Check that a production stack is protected against deletion."""
    if protect or tags.get("environment") != PRODUCTION:
        return []
    rule = "does not protect a stack whose tags.environment is prod"
    return [ConfigFault("protect", "false", rule, "set everstep:protect to true")]


def _registry_of_cloud(cluster: str, registry: str, name: str) -> list[ConfigFault]:
    """Check that the registry belongs to the cluster's cloud and has a valid name."""
    if registry == "none":
        return []
    expected = REGISTRY_KINDS.get(cluster)
    if registry != expected:
        fix = f"use {expected} or none" if expected else "use none"
        rule = f"cannot be created with a cluster of kind {cluster}"
        return [ConfigFault("registry.kind", registry, rule, fix)]
    if registry == "acr" and not _ACR_NAME.fullmatch(name):
        rule = "is not a name of an ACR: 5 to 50 lower-case letters and digits"
        return [ConfigFault("registry.name", name, rule, "use one such as everstepdev")]
    return []


def _image_can_be_pulled(path: str, clouds: tuple[str, ...] = ("eks", "aks")) -> ConfigRule:
    """Return the rule that nodes in a cloud can pull the image and that its tag is fixed."""

    def check(image: str | None) -> list[ConfigFault]:
        if image is None:
            return []
        if image.startswith(("localhost/", "localhost:")):
            fix = "push it to a registry and use that name"
            return [
                ConfigFault(
                    path, image, "is on this machine, from which a cloud cannot pull it", fix
                )
            ]
        tag = image.rpartition("/")[2].partition(":")[2]
        if "@sha256:" not in image and tag in {"", "latest"}:
            rule = "has no tag, so the image can change" if not tag else "has a tag that can move"
            return [ConfigFault(path, image, rule, "use a version or a digest")]
        return []

    return ConfigRule((path,), check, {"cluster": clouds})


def _prices_plausible(prices: Mapping[str, PriceConfig]) -> list[ConfigFault]:
    """Check that no spot price exceeds its on-demand price."""
    return [
        ConfigFault(
            f"cost.prices.{machine}.spot", price.spot, rule, "swap the two prices, or correct one"
        )
        for machine, price in prices.items()
        for rule in [f"is more than onDemand ({price.on_demand})"]
        if price.spot is not None and price.spot > price.on_demand
    ]


def _quota_fits_job(
    pods: int, gpus: int | None, job: JobConfig, cluster: Section, members: int
) -> list[ConfigFault]:
    """Check that the quota allows the maximum number of workers beside the other pods of the namespace.

    A worker that is bought on demand stands beside the pending spot worker, which counts too.
    """
    faults, extra_workers = [], 0
    if job.on_demand == "fallback" and isinstance(cluster, EksConfig | AksConfig):
        extra_workers = min(job.max_replicas, on_demand_nodes.in_use(job, cluster).nodes)
    workers = job.max_replicas + extra_workers
    bought = f", {extra_workers} that job.onDemand buys" if extra_workers else ""
    needed_pods = workers + members + OTHER_PODS
    if pods < needed_pods:
        rule = (
            f"is less than {needed_pods}: job.maxReplicas ({job.max_replicas}) workers{bought}, etcd.members "
            f"({members}) and {OTHER_PODS} for the controller and preparations"
        )
        fix = f"use {needed_pods + 20} or more"
        faults.append(ConfigFault("platform.quota.pods", pods, rule, fix))
    max_gpus = workers * job.gpus_per_worker
    if gpus is not None and gpus < max_gpus:
        rule = f"is less than the {max_gpus} GPUs of job.maxReplicas ({job.max_replicas}) workers{bought}"
        faults.append(ConfigFault("platform.quota.gpus", gpus, rule, "raise it, or remove it"))
    return faults


_CLOUDS = {"cluster": ("eks", "aks")}

RULES = (
    ConfigRule(("tags",), _tags_complete, _CLOUDS),
    ConfigRule(("tags",), _environment_valid),
    ConfigRule(("tags",), _tag_names_valid),
    ConfigRule(("tags",), _tag_names_differ),
    ConfigRule(("tags", "protect"), _production_protected),
    ConfigRule(("cluster.kind", "registry.kind", "registry.name"), _registry_of_cloud),
    *map(_image_can_be_pulled, IMAGES),
    _image_can_be_pulled("cluster.autoscaling.image", ("eks",)),
    _image_can_be_pulled("cluster.monitoring.image", ("eks",)),
    ConfigRule(("cost.prices",), _prices_plausible),
    ConfigRule(
        (
            "platform.quota.pods",
            "platform.quota.gpus",
            "job",
            "cluster",
            "etcd.members",
        ),
        _quota_fits_job,
        unless="platformStack",  # the quota of that stack limits its namespace
    ),
)
