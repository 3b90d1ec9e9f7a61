"""Names that the provider invents where the program gives none, as the official providers do. Pure."""

import hashlib
from collections.abc import Mapping

from twin.clouds.model import ResourceType
from twin.pulumi.provider.convert import Object, Plain

DIGITS = {"aws": ("-", 7), "azure-native": ("", 8)}  # before the digits, and how many


def with_name(
    kind: ResourceType,
    cloud: str,
    resource: str,
    inputs: Object,
    old: Mapping[str, Plain],
    seed: bytes,
) -> Object:
    """Give a resource a name where the program does not; one that it has already is kept.

    Args:
        kind: says which property names it.
        cloud: decides the form.
        resource: the name of the program's resource.
        inputs: the new inputs.
        old: the last inputs; empty for a new or replaced resource.
        seed: the engine's, so that preview and update invent the same.
    """
    naming = kind.naming
    if naming is None or not naming.automatic or inputs.get(naming.property) is not None:
        return inputs
    prefixed = inputs.get(f"{naming.property}Prefix")
    name = old.get(naming.property)
    if name is None:
        separator, digits = DIGITS[cloud]
        digest = hashlib.sha256(seed + resource.encode()).hexdigest()[:digits]
        start = f"{prefixed}" if isinstance(prefixed, str) else f"{resource}{separator}"
        name = start + digest
    return {**inputs, naming.property: name}
