"""Which API server, as which user.

Read from a kubeconfig, by content, by path, or where kubectl looks.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twin.pulumi.kubernetes.settings import Settings, content
from twin.pulumi.provider.errors import ProviderError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

POOL_SIZE = 32


@dataclass(frozen=True)
class Connection:
    """A client with its credentials, and the namespace that the kubeconfig's context prefers."""

    client: "ApiClient"
    namespace: str | None


def connect(settings: Settings) -> Connection:
    """Read the kubeconfig; nothing is sent.

    Raises:
        ProviderError: there is none, or it cannot be used.
    """
    # Half a second, which a program that never comes to touch the cluster need not pay.
    from kubernetes.config import ConfigException

    if settings.cluster:
        raise ProviderError(
            "the stand-in kubernetes provider has no `cluster` argument; name a context"
        )
    try:
        connection = _connect(settings)
    except (ConfigException, OSError, TypeError, ValueError) as error:
        raise ProviderError(
            f"no cluster to talk to: {_where(settings)}: {error}. Give the Provider `kubeconfig` "
            "(a path or its content), or set KUBECONFIG to a file that exists."
        ) from None
    connection.client.configuration.connection_pool_maxsize = POOL_SIZE
    return connection


def _connect(settings: Settings) -> Connection:
    from kubernetes import config

    given, context = settings.kubeconfig, settings.context
    found = content(given) if given else None
    if found is not None:
        client = config.new_client_from_config_dict(  # type: ignore[no-untyped-call]
            found, context=context, persist_config=False
        )
        return Connection(
            client, _namespace(found["contexts"], context or found["current-context"])
        )
    path = str(Path(given).expanduser()) if given else None
    client = config.new_client_from_config(path, context, persist_config=False)  # type: ignore[no-untyped-call]
    contexts, active = config.list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
    return Connection(client, _namespace(contexts, context or active["name"]))


def _namespace(contexts: list[Any], chosen: str) -> str | None:
    return next(
        (one["context"].get("namespace") for one in contexts if one["name"] == chosen), None
    )


def _where(settings: Settings) -> str:
    """Name a kubeconfig by its path; content may hold credentials."""
    if settings.kubeconfig is None:
        return "KUBECONFIG or ~/.kube/config"
    return settings.kubeconfig if content(settings.kubeconfig) is None else "the kubeconfig"
