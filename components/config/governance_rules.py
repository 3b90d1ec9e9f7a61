"""What every stack on a cloud must say of itself, and what it may bring: tags, guards, images."""

import re
from collections.abc import Mapping

from components.config.platform import PriceConfig
from components.faults import Fault, close_to
from components.rules import Flag, Rule

REQUIRED_TAGS = ("owner", "costCenter", "environment")
OUR_TAGS = ("managed-by", "stack")
ENVIRONMENTS = ("dev", "prod")
MOST_TAGS = 40  # both clouds take 50; some are our own and some the services'
LONGEST_TAG_NAME = 128  # AWS, and Azure's storage accounts

_TAG_NAME = re.compile(r"[\w .:=+@-]+")  # Azure takes no slash
_RESERVED = ("aws:", "microsoft", "azure", "windows")  # prefixes the clouds keep to themselves
_ACR_NAME = re.compile(r"[a-z0-9]{5,50}")
REGISTRY_OF = {"eks": "ecr", "aks": "acr"}


def _tags_complete(tags: Mapping[str, str]) -> list[Fault]:
    """Check that somebody can be asked about the bill."""
    faults = []
    for name in REQUIRED_TAGS:
        if name not in tags:
            close = close_to(name, tuple(tags))
            cure = f"rename {close[0]}" if close else "add it"
            faults.append(Fault(f"tags.{name}", None, "is missing", cure))
    if len(tags) > MOST_TAGS:
        rule = f"has {len(tags)} tags, and {MOST_TAGS} are the most"
        faults.append(Fault("tags", "...", rule, "remove some"))
    return faults


def _environment_known(tags: Mapping[str, str]) -> list[Fault]:
    """Check that a stack says whether it matters."""
    said = tags.get("environment")
    if said is None or said in ENVIRONMENTS:
        return []
    return [Fault("tags.environment", said, "is neither dev nor prod", "use dev or prod")]


def _tag_names_taken(tags: Mapping[str, str]) -> list[Fault]:
    """Check that both clouds take the tags' names, and that they are not ours or theirs."""
    faults = []
    for name in tags:
        rule = _wrong_with(name)
        if rule:
            faults.append(Fault(f"tags.{name}", tags[name], rule, "choose another name"))
    return faults


def _wrong_with(name: str) -> str:
    """Say what is wrong with the name of a tag; empty where nothing is."""
    if name in OUR_TAGS:
        return "is a tag that Everstep sets itself"
    if name.lower().startswith(_RESERVED):
        return "starts as only a cloud's own tags do"
    if len(name) > LONGEST_TAG_NAME:
        return f"has more than {LONGEST_TAG_NAME} characters"
    return "" if _TAG_NAME.fullmatch(name) else "has characters that not both clouds take"


def _production_protected(tags: Mapping[str, str], protect: Flag) -> list[Fault]:
    """Check that what matters cannot be destroyed by one word."""
    if protect or tags.get("environment") != "prod":
        return []
    rule = "leaves a stack tagged environment: prod open to destruction"
    return [Fault("protect", "false", rule, "set everstep:protect to true")]


def _registry_of_cloud(cluster: str, registry: str, name: str) -> list[Fault]:
    """Check that the registry is the cloud's own and has a name it takes."""
    if registry == "none":
        return []
    wanted = REGISTRY_OF.get(cluster)
    if registry != wanted:
        cure = f"use {wanted} or none" if wanted else "use none"
        rule = f"cannot be made beside a cluster of kind {cluster}"
        return [Fault("registry.kind", registry, rule, cure)]
    if registry == "acr" and not _ACR_NAME.fullmatch(name):
        rule = "is no name of an ACR: 5 to 50 lower-case letters and digits"
        return [Fault("registry.name", name, rule, "use one such as everstepdev")]
    return []


def _image_pulled(path: str, clouds: tuple[str, ...] = ("eks", "aks")) -> Rule:
    """Make the rule that nodes of a cloud can pull an image, and always the same one."""

    def check(image: str | None) -> list[Fault]:
        if image is None:
            return []
        if image.startswith(("localhost/", "localhost:")):
            cure = "push it to a registry and name that"
            return [Fault(path, image, "is on this machine, where a cloud cannot pull it", cure)]
        tag = image.rpartition("/")[2].partition(":")[2]
        if "@sha256:" not in image and tag in {"", "latest"}:
            rule = "is another image tomorrow: it has no tag" if not tag else "may change any day"
            return [Fault(path, image, rule, "name a version or a digest")]
        return []

    return Rule((path,), check, {"cluster": clouds})


def _prices_plausible(prices: Mapping[str, PriceConfig]) -> list[Fault]:
    """Check that no spot price is above the price it is a discount on."""
    return [
        Fault(f"cost.prices.{machine}.spot", price.spot, rule, "exchange them, or correct one")
        for machine, price in prices.items()
        for rule in [f"is more than onDemand ({price.on_demand})"]
        if price.spot is not None and price.spot > price.on_demand
    ]


def _quota_holds_job(pods: int, gpus: int | None, most: int, per_worker: int) -> list[Fault]:
    """Check that the namespace may hold the largest group of workers."""
    faults = []
    if pods < most:
        rule = f"is less than job.maxReplicas ({most})"
        faults.append(Fault("platform.quota.pods", pods, rule, f"use {most + 20} or more"))
    if gpus is not None and gpus < most * per_worker:
        rule = f"is less than the {most * per_worker} GPUs of job.maxReplicas ({most}) workers"
        faults.append(Fault("platform.quota.gpus", gpus, rule, "raise it, or leave it out"))
    return faults


_CLOUDS = {"cluster": ("eks", "aks")}
_IMAGES = (
    "job.image",
    "data.image",
    "controller.image",
    "etcd.image",
    "platform.gpuPlugin.image",
    "platform.metrics.image",
    "platform.spot.image",
)

RULES = (
    Rule(("tags",), _tags_complete, _CLOUDS),
    Rule(("tags",), _environment_known),
    Rule(("tags",), _tag_names_taken),
    Rule(("tags", "protect"), _production_protected),
    Rule(("cluster.kind", "registry.kind", "registry.name"), _registry_of_cloud),
    *map(_image_pulled, _IMAGES),
    _image_pulled("cluster.autoscaling.image", ("eks",)),
    Rule(("cost.prices",), _prices_plausible),
    Rule(
        (
            "platform.quota.pods",
            "platform.quota.gpus",
            "job.maxReplicas",
            "job.gpusPerWorker",
        ),
        _quota_holds_job,
    ),
)
