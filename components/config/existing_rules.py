"""Rules across the keys of an existing cluster."""

from components.config.existing import TolerationConfig
from components.config.faults import ConfigFault
from components.config.rules import ConfigRule

_PATHS = ("cluster.gpuPool.tolerations", "cluster.systemPool.tolerations")


def _exists_without_value(*pools: tuple[TolerationConfig, ...]) -> list[ConfigFault]:
    """Check that a toleration with `Exists` has no value: the API server would refuse the pods."""
    return [
        ConfigFault(
            f"{path}[{index}].value",
            toleration.value,
            "is set, but the operator Exists compares no value",
            "remove it, or set the operator to Equal",
        )
        for path, tolerations in zip(_PATHS, pools, strict=True)
        for index, toleration in enumerate(tolerations)
        if toleration.operator == "Exists" and toleration.value
    ]


RULES = (ConfigRule(_PATHS, _exists_without_value, {"cluster": ("existing",)}),)
