"""Rules across the keys of the data and the cluster that reads their source."""

from components.config.data_source import parse
from components.config.faults import ConfigFault
from components.config.rules import ConfigRule
from everstep.catalog.trainer_options import IMAGE_FOLDER

READERS = {"s3": "eks"}
"""Kind of a store -> kind of cluster whose pods get an identity for it."""


def _source_is_photographs(source: str | None, dataset: str) -> list[ConfigFault]:
    """Check that only a data set that is not part of the image has a source."""
    if source is None or dataset == IMAGE_FOLDER:
        return []
    rule = f"is a source of photographs, and data.dataset is {dataset}, which the image contains"
    fix = f"set data.dataset to {IMAGE_FOLDER}, or remove this key"
    return [ConfigFault("data.source", source, rule, fix)]


def _source_can_be_read(source: str | None, cluster: str) -> list[ConfigFault]:
    """Check that pods of the cluster can get an identity for the source."""
    if source is None or (kind := parse(source).kind) == "tar" or READERS.get(kind) == cluster:
        return []
    rule = f"cannot be read on a cluster of kind {cluster}: its pods get no identity for it"
    fix = "copy it to the volume with `everstep data stage`, and remove this key"
    return [ConfigFault("data.source", source, rule, fix)]


RULES: tuple[ConfigRule, ...] = (
    ConfigRule(("data.source", "data.dataset"), _source_is_photographs),
    ConfigRule(("data.source", "cluster.kind"), _source_can_be_read),
)
