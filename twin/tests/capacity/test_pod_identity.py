"""Variables of EKS Pod Identity, which pods get on a real API server."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloudtwin.capacity import pod_identity
from cloudtwin.capacity.pod_identity import (
    DELAY_SECONDS,
    VARIABLES,
    PodIdentity,
    PodIdentityInjector,
    PodIdentityStore,
)
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.layout import Layout

from tests.waiting import wait_until

IDENTITY = PodIdentity("default", "default")
SECONDS = 120.0


class Clock:
    """The time of the store."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pod_identity, "time", clock)
    return clock


def test_an_association_takes_effect_some_seconds_after_its_creation(
    tmp_path: Path, clock: Clock
) -> None:
    store = PodIdentityStore(tmp_path)
    store.put(IDENTITY)
    assert store.effective() == set()

    clock.now += DELAY_SECONDS
    assert store.effective() == {IDENTITY}


def test_an_update_of_an_association_does_not_interrupt_it(tmp_path: Path, clock: Clock) -> None:
    store = PodIdentityStore(tmp_path)
    store.put(IDENTITY)
    clock.now += DELAY_SECONDS

    store.put(IDENTITY)

    assert store.effective() == {IDENTITY}


def test_an_association_that_is_created_again_is_late_again(tmp_path: Path, clock: Clock) -> None:
    store = PodIdentityStore(tmp_path)
    store.put(IDENTITY)
    clock.now += DELAY_SECONDS
    store.delete(IDENTITY)
    store.delete(IDENTITY)

    store.put(IDENTITY)

    assert store.effective() == set()


@pytest.fixture
def api(control_plane: Path) -> Iterator[KubernetesClient]:
    """Yield a client of a control plane, in which a test leaves no policy."""
    api = admin_client(Layout(control_plane.parent))
    yield api
    for kind in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
        api.delete(f"{pod_identity.API}/{kind}/{IDENTITY.policy}")


NAMES = itertools.count()


def variables(api: KubernetesClient, account: str = "default") -> list[dict[str, str]]:
    """Return the variables that each container of a new pod gets; the pod is not stored."""
    containers = [
        {"name": "first", "image": "any", "env": [{"name": "OWN", "value": "1"}]},
        {"name": "second", "image": "any"},
    ]
    body = {
        "metadata": {"name": f"pod-{next(NAMES)}"},
        "spec": {"serviceAccountName": account, "containers": containers},
    }
    pod = api.post("/api/v1/namespaces/default/pods?dryRun=All", body)
    return [
        {variable["name"]: variable["value"] for variable in container.get("env", [])}
        for container in pod["spec"]["containers"]
    ]


@pytest.mark.twin
@pytest.mark.timeout(900)
def test_new_pods_of_the_service_account_have_the_variables_while_it_is_associated(
    api: KubernetesClient, tmp_path: Path, clock: Clock
) -> None:
    store = PodIdentityStore(tmp_path)
    injector = PodIdentityInjector(api, store)
    injected = [{"OWN": "1", **VARIABLES}, VARIABLES]
    api.apply("/api/v1/namespaces/default/serviceaccounts/other", ACCOUNT)

    store.put(IDENTITY)
    injector.sync()
    assert variables(api) == [{"OWN": "1"}, {}]

    clock.now += DELAY_SECONDS
    injector.sync()
    wait_until(lambda: variables(api) == injected, "new pods have the variables", SECONDS)
    assert variables(api, "other") == [{"OWN": "1"}, {}]

    store.delete(IDENTITY)
    PodIdentityInjector(api, store).sync()  # of a restarted daemon
    wait_until(lambda: variables(api) == [{"OWN": "1"}, {}], "no pod has the variables", SECONDS)


ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other"}}
