"""The provider's arguments, checked.

What to talk to and how. Pure, except that a kubeconfig may be a path.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from twin.pulumi.kubernetes.immutable import Mutable
from twin.pulumi.provider.convert import Plain, plain
from twin.pulumi.provider.errors import ProviderError

WITHOUT_EFFECT = {
    "version", "pluginDownloadURL", "suppressDeprecationWarnings", "suppressHelmHookWarnings",
    "kubeClientSettings", "helmReleaseSettings", "enableReplaceCRD", "enableDryRun", "helmDriver",
    "helmRegistryConfigPath", "helmRepositoryCache", "helmRepositoryConfigPath", "helmPluginsPath",
    "strictMode",
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What the program asked of the provider.

    Attributes:
        kubeconfig: content or path; None means what kubectl would use.
        force: take fields over from other managers.
        upsert: create may overwrite an object that others made.
    """

    kubeconfig: str | None = field(default=None, repr=False)
    context: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    cluster_identifier: str | None = None
    force: bool = False
    upsert: bool = False
    delete_unreachable: bool = False
    skip_update_unreachable: bool = False
    mutable: Mutable = field(default_factory=Mutable)


def parse(arguments: Mapping[str, Plain]) -> Settings:
    """Check the provider's arguments.

    Args:
        arguments: as the SDK sends them: booleans as JSON text.

    Raises:
        ProviderError: an argument that this provider cannot honour.
    """
    given = {key: plain(value) for key, value in arguments.items() if value is not None}
    for name in ("renderYamlToDirectory", "alwaysRender"):
        if given.get(name) not in (None, "", "false", False):
            raise ProviderError(
                f"{name} is not supported by the stand-in kubernetes provider; "
                "install the official plugin"
            )
    if not _boolean(given, "enableServerSideApply", default=True):
        raise ProviderError(
            "the stand-in kubernetes provider always uses server-side apply; "
            "leave enableServerSideApply out, or install the official plugin"
        )
    return Settings(
        kubeconfig=_kubeconfig(given.get("kubeconfig")),
        context=given.get("context") or None,
        cluster=given.get("cluster") or None,
        namespace=given.get("namespace") or None,
        cluster_identifier=given.get("clusterIdentifier") or None,
        force=_boolean(given, "enablePatchForce"),
        upsert=_boolean(given, "upsertExistingObjects"),
        delete_unreachable=_boolean(given, "deleteUnreachable"),
        skip_update_unreachable=_boolean(given, "skipUpdateUnreachable"),
        mutable=Mutable(
            _boolean(given, "enableConfigMapMutable"), _boolean(given, "enableSecretMutable")
        ),
    )


def _kubeconfig(value: Plain) -> str | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _boolean(given: Mapping[str, Plain], name: str, *, default: bool = False) -> bool:
    value = given.get(name)
    if value in (None, ""):
        return default
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ProviderError(f"{name} must be true or false; it is {value!r}")


def content(kubeconfig: str) -> dict[str, Any] | None:
    """Return a kubeconfig's content, or None where the text is a path."""
    try:
        found = yaml.safe_load(kubeconfig)
    except yaml.YAMLError:
        return None
    return found if isinstance(found, dict) else None


def must_replace(old: Settings, new: Settings) -> list[str]:
    """Decide whether another cluster is meant now, so that every object has to be made anew.

    A cluster identifier decides alone. Without one only another server counts: credentials are
    rotated, paths move.
    """
    if old.cluster_identifier or new.cluster_identifier:
        return ["clusterIdentifier"] if old.cluster_identifier != new.cluster_identifier else []
    before, after = _server(old), _server(new)
    return ["kubeconfig"] if before and after and before != after else []


def _server(settings: Settings) -> str | None:
    """Find the server's address in a kubeconfig given by content.

    What a path leads to may have changed since.
    """
    config = content(settings.kubeconfig) if settings.kubeconfig else None
    if config is None:
        return None
    contexts = {each["name"]: each["context"] for each in config.get("contexts") or ()}
    chosen = contexts.get(settings.context or config.get("current-context"), {})
    servers = {each["name"]: each["cluster"].get("server") for each in config.get("clusters") or ()}
    server = servers.get(settings.cluster or chosen.get("cluster"))
    return str(server) if server else None
