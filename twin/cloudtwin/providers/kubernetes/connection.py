"""A connection to an API server, from a kubeconfig given by content, by path or by default."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtwin.providers.kubernetes.config import KubernetesConfig, content
from cloudtwin.providers.protocol.errors import ProviderError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

POOL_SIZE = 32


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
    except (ConfigException, OSError, TypeError, ValueError) as error:
        raise ProviderError(
            f"no cluster to connect to: {_source(config)}: {error}. Set `kubeconfig` of the "
            "Provider (a path or its content), or KUBECONFIG to a file that exists."
        ) from None
    connection.client.configuration.connection_pool_maxsize = POOL_SIZE
    return connection


def _connect(provider: KubernetesConfig) -> Connection:
    from kubernetes import config

    text, context = provider.kubeconfig, provider.context
    kubeconfig = content(text) if text else None
    if kubeconfig is not None:
        client = config.new_client_from_config_dict(  # type: ignore[no-untyped-call]
            kubeconfig, context=context, persist_config=False
        )
        contexts, name = kubeconfig["contexts"], context or kubeconfig["current-context"]
    else:
        path = str(Path(text).expanduser()) if text else None
        client = config.new_client_from_config(path, context, persist_config=False)  # type: ignore[no-untyped-call]
        contexts, active_context = config.list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
        name = context or active_context["name"]
    return Connection(client, _namespace(contexts, name))


def _namespace(contexts: list[Any], name: str) -> str | None:
    return next(
        (context["context"].get("namespace") for context in contexts if context["name"] == name),
        None,
    )


def _source(config: KubernetesConfig) -> str:
    """Return the source of the kubeconfig. Content is not shown: it may contain credentials."""
    if config.kubeconfig is None:
        return "KUBECONFIG or ~/.kube/config"
    return config.kubeconfig if content(config.kubeconfig) is None else "the kubeconfig"
