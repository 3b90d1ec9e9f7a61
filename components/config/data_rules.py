"""Rules across the keys of the data and the cluster that reads their source."""

from collections.abc import Iterator

from components.config.data_source import DataSource, parse
from components.config.faults import ConfigFault
from components.config.rules import ConfigRule
from components.config.workload import DataCacheConfig
from everstep.catalog.trainer_options import IMAGE_FOLDER

READERS = {"s3": ("eks",), "az": ("aks",)}
"""Kind of a store -> kinds of clusters whose pods get an identity for it."""

CACHE_READERS = {"s3": ("eks", "existing"), "az": ("aks",)}
"""Kind of a store -> kinds of clusters whose workers can read it. On an existing cluster, the environment variables of
workers may contain credentials."""


def _source_needs_photographs(source: str | None, dataset: str) -> list[ConfigFault]:
    """Check that only a data set that is not part of the image has a source."""
    if source is None or dataset == IMAGE_FOLDER:
        return []
    rule = f"is a source of photographs, but data.dataset is {dataset}, which the image contains"
    fix = f"set data.dataset to {IMAGE_FOLDER}, or remove this key"
    return [ConfigFault("data.source", source, rule, fix)]


def _source_can_be_read(source: str | None, cluster: str) -> list[ConfigFault]:
    """Check that pods of the cluster can get an identity for the source."""
    if source is None or (kind := parse(source).kind) == "tar" or cluster in READERS.get(kind, ()):
        return []
    rule = f"cannot be read on a cluster of kind {cluster}: its pods get no identity for it"
    fix = (
        "name a .tar archive of it on the volume, such as uploads/photos.tar, or copy it there with "
        "`everstep data stage` and remove this key"
    )
    return [ConfigFault("data.source", source, rule, fix)]


def _cache_needs_photographs(cache: DataCacheConfig | None, dataset: str) -> list[ConfigFault]:
    """Check that only photographs are read through a cache."""
    if cache is None or dataset == IMAGE_FOLDER:
        return []
    rule = f"is a cache of shards of photographs, but data.dataset is {dataset}"
    fix = f"set data.dataset to {IMAGE_FOLDER}, or remove this section"
    return [ConfigFault("data.cache", cache.source, rule, fix)]


def _cache_can_be_read(cache: DataCacheConfig | None, cluster: str) -> list[ConfigFault]:
    """Check that workers of the cluster can read the store."""
    if cache is None or cluster in CACHE_READERS.get(cache.origin.kind, ()):
        return []
    rule = f"cannot be read on a cluster of kind {cluster}: its workers get no identity for it"
    fix = "keep the shards on the volume, and remove this section"
    return [ConfigFault("data.cache.source", cache.source, rule, fix)]


def _cache_or_source(cache: DataCacheConfig | None, source: str | None) -> list[ConfigFault]:
    """Check that photographs are not prepared on a volume that no worker reads."""
    if cache is None or source is None:
        return []
    rule = "is prepared on the volume, but workers read the shards of data.cache.source instead"
    fix = "remove one of the two: make shards of photographs once, and copy them to the store"
    return [ConfigFault("data.source", source, rule, fix)]


def _sources(
    source: str | None, group: str | None, cache: DataCacheConfig | None
) -> Iterator[tuple[str, str, DataSource | None, str | None]]:
    """Yield section, source, its parts if it is a container, and the resource group of its account."""
    settings = {"data": (source, group)}
    if cache is not None:
        settings["data.cache"] = (cache.source, cache.source_resource_group)
    for section, (text, account_group) in settings.items():
        origin = parse(text) if text else None
        container = origin if origin and origin.kind == "az" else None
        yield section, text or "", container, account_group


def _group_needs_account(
    source: str | None, group: str | None, cache: DataCacheConfig | None
) -> list[ConfigFault]:
    """Check that a resource group is set only for a storage account."""
    rule = "applies only to a source in Blob Storage, az://ACCOUNT/CONTAINER/PREFIX"
    return [
        ConfigFault(f"{section}.sourceResourceGroup", account_group, rule, "remove this key")
        for section, _, container, account_group in _sources(source, group, cache)
        if account_group and container is None
    ]


def _account_needs_group(
    source: str | None, group: str | None, cache: DataCacheConfig | None, cluster_group: str | None
) -> list[ConfigFault]:
    """Check that the resource group of an account is set if it cannot be the cluster's, which the stack creates."""
    rule = "is missing: without cluster.resourceGroup the stack creates a group, which does not contain the account {}"
    fix = "set it to the group of the account: az storage account list --output table"
    return [
        ConfigFault(f"{section}.sourceResourceGroup", None, rule.format(container.account), fix)
        for section, _, container, account_group in _sources(source, group, cache)
        if container and not (account_group or cluster_group)
    ]


def _not_the_volume(
    source: str | None, cache: DataCacheConfig | None, account: str | None, volume: str
) -> list[ConfigFault]:
    """Check that the source is not the container of the volume, which the stack itself declares."""
    rule = "is in the container of the volume, which storage.account and storage.container name"
    fixes = {
        "data": "name another container, or a .tar archive on the volume, such as uploads/photos.tar",
        "data.cache": "name another container, or keep the shards on the volume and remove this section",
    }
    return [
        ConfigFault(f"{section}.source", text, rule, fixes[section])
        for section, text, container, _ in _sources(source, None, cache)
        if container and (container.account, container.bucket) == (account, volume)
    ]


RULES: tuple[ConfigRule, ...] = (
    ConfigRule(("data.source", "data.dataset"), _source_needs_photographs),
    ConfigRule(("data.source", "cluster.kind"), _source_can_be_read),
    ConfigRule(("data.cache", "data.dataset"), _cache_needs_photographs),
    ConfigRule(("data.cache", "cluster.kind"), _cache_can_be_read),
    ConfigRule(("data.cache", "data.source"), _cache_or_source),
    ConfigRule(("data.source", "data.sourceResourceGroup", "data.cache"), _group_needs_account),
    ConfigRule(
        ("data.source", "data.sourceResourceGroup", "data.cache", "cluster.resourceGroup"),
        _account_needs_group,
        {"cluster": ("aks",)},
    ),
    ConfigRule(
        ("data.source", "data.cache", "storage.account", "storage.container"),
        _not_the_volume,
        {"storage": ("blob",)},
    ),
)
