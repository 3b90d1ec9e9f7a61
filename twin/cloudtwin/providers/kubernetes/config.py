"""The provider's arguments, checked. Pure, except that `parse` reads environment variables."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.values import Object, PropertyValue, has_unknown, plain

SUPPORTED_ARGUMENTS = {
    "kubeconfig", "context", "namespace", "clusterIdentifier", "enablePatchForce",
    "upsertExistingObjects", "enableServerSideApply",
}  # fmt: skip
# Arguments that the stand-in accepts and ignores.
IGNORED_ARGUMENTS = {
    "version", "pluginDownloadURL", "suppressDeprecationWarnings", "suppressHelmHookWarnings",
    "kubeClientSettings", "helmReleaseSettings",
}  # fmt: skip
IDENTIFIER = "clusterIdentifier"
# The official provider's environment variables, used where the argument is absent.
FORCE_VARIABLE = "PULUMI_K8S_ENABLE_PATCH_FORCE"
UPSERT_VARIABLE = "PULUMI_K8S_UPSERT_EXISTING_OBJECTS"


@dataclass(frozen=True)
class KubernetesConfig:
    """The provider's arguments.

    Attributes:
        kubeconfig: content or path; None for kubectl's default.
        context: context of the kubeconfig; None for its current one.
        namespace: default namespace; None for the context's.
        cluster_identifier: identity of the cluster; None to compare the clusters of kubeconfigs.
        force: True to take fields over from other field managers.
        upsert: True if a create may update an object that exists.
    """

    kubeconfig: str | None = field(default=None, repr=False)
    context: str | None = None
    namespace: str | None = None
    cluster_identifier: str | None = None
    force: bool = False
    upsert: bool = False


def parse(arguments: Mapping[str, PropertyValue]) -> KubernetesConfig:
    """Return the provider's configuration.

    Args:
        arguments: arguments as the SDK sends them, with booleans as JSON text.

    Raises:
        ProviderError: an argument is invalid, or only the official provider supports it.
    """
    settings = {key: plain(value) for key, value in arguments.items() if value is not None}
    for name, value in settings.items():
        if name not in SUPPORTED_ARGUMENTS | IGNORED_ARGUMENTS and value not in (
            "",
            "false",
            False,
        ):
            raise ProviderError(
                f"{name} is not supported by the stand-in kubernetes provider; "
                "install the official plugin"
            )
    if not _boolean(settings, "enableServerSideApply", default=True):
        raise ProviderError(
            "the stand-in kubernetes provider always uses server-side apply; "
            "leave enableServerSideApply out, or install the official plugin"
        )
    return KubernetesConfig(
        kubeconfig=_kubeconfig(settings.get("kubeconfig")),
        context=settings.get("context") or None,
        namespace=settings.get("namespace") or None,
        cluster_identifier=settings.get(IDENTIFIER) or None,
        force=_boolean(settings, "enablePatchForce", default=_is_set(FORCE_VARIABLE)),
        upsert=_boolean(settings, "upsertExistingObjects", default=_is_set(UPSERT_VARIABLE)),
    )


def _kubeconfig(value: PropertyValue) -> str | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true")


def _boolean(settings: Mapping[str, PropertyValue], name: str, *, default: bool = False) -> bool:
    value = settings.get(name)
    if value in (None, ""):
        return default
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ProviderError(f"{name} must be true or false; it is {value!r}")


def content(kubeconfig: str) -> dict[str, Any] | None:
    """Return a kubeconfig's content, or None if the text is a path or damaged content."""
    try:
        document = yaml.safe_load(kubeconfig)
    except yaml.YAMLError:
        return None
    return document if isinstance(document, dict) else None


def replacing_arguments(old: KubernetesConfig, new: KubernetesConfig) -> list[str]:
    """Return the changed arguments that select another cluster, so that every object is replaced.

    If both have a cluster identifier, only its change counts. Otherwise a change of the cluster's entry, such as its
    server or certificate, counts (pulumi-kubernetes, `DiffConfig`), but not a change of credentials.
    """
    if old.cluster_identifier and new.cluster_identifier:
        return [IDENTIFIER] if old.cluster_identifier != new.cluster_identifier else []
    old_cluster, new_cluster = _cluster(old), _cluster(new)
    return ["kubeconfig"] if old_cluster and new_cluster and old_cluster != new_cluster else []


def unknown_arguments(old: Object, new: Object) -> list[str]:
    """Return the arguments that may select another cluster because they are unknown until the update.

    Empty if the cluster identifier stays the same (pulumi-kubernetes, `DiffConfig`). A cluster that is replaced has
    an unknown identifier, so that its objects are deleted before it and created again in the new cluster.
    """
    identifier = old.get(IDENTIFIER)
    if identifier and new.get(IDENTIFIER) == identifier:
        return []
    keys = [*([IDENTIFIER] if identifier else []), "kubeconfig", "context"]
    return [key for key in keys if has_unknown(new.get(key))]


def _cluster(config: KubernetesConfig) -> Mapping[str, Any] | None:
    """Return the current cluster of a kubeconfig given by content; None for a path, whose file may have changed."""
    kubeconfig = content(config.kubeconfig) if config.kubeconfig else None
    if kubeconfig is None:
        return None
    try:
        contexts = {entry["name"]: entry["context"] for entry in kubeconfig.get("contexts") or ()}
        context = contexts.get(config.context or kubeconfig.get("current-context"), {})
        clusters = {
            entry["name"]: dict(entry["cluster"]) for entry in kubeconfig.get("clusters") or ()
        }
        return clusters.get(context.get("cluster"))
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ):  # the first operation reports the damage
        return None
