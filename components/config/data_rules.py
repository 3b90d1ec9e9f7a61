"""Rules across the keys of the data and the cluster that reads their source."""

from components.config.data_source import parse
from components.config.faults import ConfigFault
from components.config.rules import ConfigRule
from components.config.workload import DataCacheConfig
from everstep.catalog.trainer_options import IMAGE_FOLDER

READERS = {"s3": ("eks",)}
"""Kind of a store -> kinds of clusters whose pods get an identity for it."""

CACHE_READERS = {"s3": ("eks", "existing")}
"""Kind of a store -> kinds of clusters whose workers can read it. On an existing cluster, the environment variables of
workers may contain credentials."""


def _source_needs_photographs(source: str | None, dataset: str) -> list[ConfigFault]:
    """Check that only a data set that is not part of the image has a source."""
    if source is None or dataset == IMAGE_FOLDER:
        return []
    rule = f"is a source of photographs, and data.dataset is {dataset}, which the image contains"
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
    rule = f"is a cache of shards of photographs, and data.dataset is {dataset}"
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
    rule = "is prepared on the volume, and workers read the shards of data.cache.source instead"
    fix = "remove one of the two: make shards of photographs once, and copy them to the store"
    return [ConfigFault("data.source", source, rule, fix)]


RULES: tuple[ConfigRule, ...] = (
    ConfigRule(("data.source", "data.dataset"), _source_needs_photographs),
    ConfigRule(("data.source", "cluster.kind"), _source_can_be_read),
    ConfigRule(("data.cache", "data.dataset"), _cache_needs_photographs),
    ConfigRule(("data.cache", "cluster.kind"), _cache_can_be_read),
    ConfigRule(("data.cache", "data.source"), _cache_or_source),
)
