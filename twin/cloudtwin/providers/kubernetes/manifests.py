"""YAML of the SDK's ConfigFile and ConfigGroup (function `kubernetes:yaml:decode`)."""

import yaml

from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.values import Object, PropertyValue


def decode(text: str) -> list[Object]:
    """Return the objects of a multi-document YAML text. A List is replaced by its items.

    Raises:
        ProviderError: the text is not valid YAML, or a document is not a Kubernetes object.
    """
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise ProviderError(f"the text is not valid YAML: {error}") from None
    return [item for document in documents if document is not None for item in _objects(document)]


def _objects(document: PropertyValue) -> list[Object]:
    if not isinstance(document, dict) or not document.get("apiVersion") or not document.get("kind"):
        raise ProviderError(f"a document has no apiVersion or no kind: {str(document)[:80]!r}")
    if document["kind"] == "List":
        return [
            item
            for document_item in document.get("items") or ()
            for item in _objects(document_item)
        ]
    return [document]


class _Loader(yaml.SafeLoader):
    """A loader that reads dates as text, as Kubernetes does: JSON has no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
