"""A controller under test that runs in the cluster from its image, on a dedicated machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubernetes import client, utils

from components.config import ControllerConfig
from components.interface import Placement
from components.platform.elastic_controller import (
    ControllerSettings,
    ElasticControllerArgs,
    controller_settings,
    definition,
)
from components.platform.manifests import read
from everstep.catalog.names import SYSTEM_NAMESPACE
from tests.components.recorder import event_loop
from tests.waiting import wait_until

NAME = "controller-under-test"
LABELS = {"app": NAME}
READY_SECONDS = 150.0


def install(api: client.ApiClient, namespace: str, *, upstream: bool) -> None:
    """Create the namespaces, the CRD of ElasticJobs and the permissions of the controller."""
    core: Any = client.CoreV1Api(api)  # the stubs accept no JSON bodies
    for name in sorted({namespace, SYSTEM_NAMESPACE}):
        core.create_namespace({"metadata": {"name": name}})
    with event_loop():  # Pulumi's outputs need one
        settings = _controller_settings(namespace, upstream=upstream)
    for part in [
        definition(status_subresource=settings.status_subresource),
        *read(settings.rbac),
    ]:
        utils.create_from_dict(api, part)  # type: ignore[no-untyped-call]  # the client has no types
    crds: Any = client.ApiextensionsV1Api(api)
    crd = "elasticjobs.elastic.pytorch.org"

    def is_served() -> bool:
        conditions = crds.read_custom_resource_definition(crd).status.conditions or ()
        return any(item.type == "Established" and item.status == "True" for item in conditions)

    wait_until(is_served, "the definition of ElasticJobs is served", READY_SECONDS)


def _controller_settings(namespace: str, *, upstream: bool) -> ControllerSettings:
    kind = "upstream" if upstream else "maintained"
    config = ControllerConfig(kind=kind, image="any")
    placement = Placement(selector={}, tolerations=())
    return controller_settings(
        ElasticControllerArgs(
            config=config,
            namespace=namespace,
            system_namespace=SYSTEM_NAMESPACE,
            placement=placement,
        )
    )


@dataclass(frozen=True)
class InCluster:
    """A Deployment of one pod, scaled to zero to stop it; `flags` are options of the maintained controller."""

    api: client.ApiClient
    namespace: str
    image: str
    upstream: bool
    flags: tuple[str, ...] = ()

    def deployed(self) -> Iterator["InCluster"]:
        """Yield the controller while it is deployed."""
        apps: Any = client.AppsV1Api(self.api)
        apps.create_namespaced_deployment(self.controller_namespace, self.manifest())
        self._wait_for_pods(1)
        yield self
        apps.delete_namespaced_deployment(NAME, self.controller_namespace)

    @property
    def controller_namespace(self) -> str:
        """The namespace in which the controller runs."""
        return SYSTEM_NAMESPACE if self.upstream else self.namespace

    def start(self) -> None:
        self._scale(1)

    def stop(self) -> None:
        self._scale(0)

    def manifest(self) -> dict[str, Any]:
        settings = _controller_settings(self.namespace, upstream=self.upstream)
        (account,) = (part for part in read(settings.rbac) if part["kind"] == "ServiceAccount")
        command = ["/manager"] if self.upstream else ["python3", "-m", "controller"]
        container = {
            "name": "controller",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": command,
            "args": [] if self.upstream else [f"--namespace={self.namespace}", *self.flags],
        }
        spec = {
            "serviceAccountName": account["metadata"]["name"],
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"everstep.dev/pool": "gpu-spot"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        return {
            "metadata": {"name": NAME},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": LABELS},
                "template": {"metadata": {"labels": LABELS}, "spec": spec},
            },
        }

    def _scale(self, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        client.AppsV1Api(self.api).patch_namespaced_deployment_scale(
            NAME, self.controller_namespace, body
        )
        self._wait_for_pods(replicas)

    def _wait_for_pods(self, replicas: int) -> None:
        core: Any = client.CoreV1Api(self.api)

        def has_expected_pods() -> bool:
            pods = core.list_namespaced_pod(
                self.controller_namespace, label_selector=f"app={NAME}"
            ).items
            return [pod.status.phase for pod in pods] == ["Running"] * replicas

        wait_until(has_expected_pods, f"{replicas} controllers run", READY_SECONDS)
