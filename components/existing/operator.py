"""Check that an existing cluster has the Prometheus operator that `platform.monitoring` needs.

Without it, Pulumi would create the namespace, etcd and the controller before the API server refuses the first
PodMonitor. This check asks the API server before anything is declared.
"""

from http import HTTPStatus
from typing import Any

import pulumi
import yaml

from components.config import ExistingClusterConfig, StackConfig, as_kind
from components.config.faults import ConfigurationError
from components.platform import operator_objects

TIMEOUT_SECONDS = (3, 5)  # to connect, to respond


def require_operator(config: StackConfig, kubeconfig: str) -> None:
    """Check that the cluster serves the kinds of objects that `platform.monitoring` needs.

    If the cluster does not respond or refuses the request, or the kubeconfig cannot be used, this is only a warning:
    the engine reports the error when it connects.

    Args:
        config: the whole configuration.
        kubeconfig: content of the kubeconfig file.

    Raises:
        ConfigurationError: the cluster lacks the operator's kinds.
    """
    if config.platform.monitoring.kind != "operator":
        return
    context = as_kind(config.cluster, ExistingClusterConfig).context
    try:
        served = _served_resources(kubeconfig, context)
    except OSError as error:
        pulumi.log.warn(f"cannot check whether the cluster has a Prometheus operator: {error}")
        return
    if missing := operator_objects.missing_kinds(served):
        raise ConfigurationError([operator_objects.operator_fault(missing)])


def _served_resources(kubeconfig: str, context: str | None) -> dict[str, Any]:
    """Return the API server's list of the operator's resources; empty if there is none.

    Raises:
        OSError: the API server does not respond or refuses the request, or the kubeconfig cannot be used.
    """
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError

    settings = client.Configuration()
    settings.retries = False
    try:
        config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]  # kubernetes has no types
            yaml.safe_load(kubeconfig), context, settings, persist_config=False
        )
        api = client.CustomObjectsApi(client.ApiClient(settings))
        group, _, version = operator_objects.API_VERSION.partition("/")
        served = api.get_api_resources(group, version, _request_timeout=TIMEOUT_SECONDS)
    except client.ApiException as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return {}
        raise OSError(f"{error.status} {error.reason}") from error
    except (HTTPError, ValueError, config.ConfigException) as error:  # ValueError: invalid base64
        raise OSError(str(error)) from error
    return dict(served.to_dict())
