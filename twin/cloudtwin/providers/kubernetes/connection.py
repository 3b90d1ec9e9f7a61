"""A connection to an API server, from a kubeconfig given by content, by path or by default."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cloudtwin.providers.kubernetes.config import KubernetesConfig, content
from cloudtwin.providers.protocol.errors import ProviderError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

POOL_SIZE = 32
"""Number of connections that stay open. Pulumi creates objects in parallel; a smaller pool would close the others."""


@dataclass(frozen=True)
class Connection:
    """A connection that is not open yet.

    Attributes:
        client: the official client, with credentials.
        namespace: default namespace of the kubeconfig's context.
    """

    client: "ApiClient"
    namespace: str | None


def connect(config: KubernetesConfig) -> Connection:
    """Read the kubeconfig; nothing is sent.

    Raises:
        ProviderError: there is no kubeconfig, or it is not usable.
    """
    # Imported here: it takes half a second, and a program may never use the cluster.
    from kubernetes.config import ConfigException

    try:
        connection = _connect(config)
    except (ConfigException, OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ProviderError(
            f"no cluster to connect to: {_source(config)}: {error}. Set `kubeconfig` of the "
            "Provider (a path or its content), or KUBECONFIG to a file that exists."
        ) from None
    return connection


def _connect(config: KubernetesConfig) -> Connection:
    from kubernetes import config as kube_config
    from kubernetes.client import Configuration

    text, context = config.kubeconfig, config.context
    configuration = Configuration()
    configuration.connection_pool_maxsize = POOL_SIZE
    options = {
        "context": context, "client_configuration": configuration, "persist_config": False,
    }  # fmt: skip
    kubeconfig = content(text) if text else None
    if kubeconfig is not None:
        client = kube_config.new_client_from_config_dict(kubeconfig, **options)  # type: ignore[no-untyped-call]
        contexts, name = kubeconfig["contexts"], context or kubeconfig["current-context"]
    elif text and not _is_path(text):
        raise ValueError("its content is not a YAML mapping")
    else:
        path = str(Path(text).expanduser()) if text else None
        client = kube_config.new_client_from_config(path, **options)  # type: ignore[no-untyped-call]
        contexts, active_context = kube_config.list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
        name = context or active_context["name"]
    return Connection(client, _namespace(contexts, name))


def _is_path(text: str) -> bool:
    """Return True if a kubeconfig is given by its path, False if this is its content, which may be damaged."""
    return "\n" not in text and not text.lstrip().startswith("{")


def _namespace(contexts: list[Any], name: str) -> str | None:
    return next(
        (context["context"].get("namespace") for context in contexts if context["name"] == name),
        None,
    )


def _source(config: KubernetesConfig) -> str:
    """Return the source of the kubeconfig. Content is not shown: it may contain credentials."""
    if config.kubeconfig is None:
        return "KUBECONFIG or ~/.kube/config"
    return config.kubeconfig if _is_path(config.kubeconfig) else "the kubeconfig"
