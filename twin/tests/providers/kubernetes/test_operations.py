"""Operations on objects, without a cluster."""

from typing import Any

import pytest
from cloudtwin.providers.kubernetes.client import ClusterClient
from cloudtwin.providers.kubernetes.config import KubernetesConfig
from cloudtwin.providers.kubernetes.errors import RefusedError, UnknownKindError
from cloudtwin.providers.kubernetes.objects import ObjectReference
from cloudtwin.providers.kubernetes.operations import KubernetesOperations
from cloudtwin.providers.protocol.engine_client import EngineClient
from cloudtwin.providers.protocol.values import Object

INPUTS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n"}}


class Empty(ClusterClient):
    """A cluster without objects."""

    def __init__(self, *, has_kind: bool) -> None:
        """Connect to nothing."""
        self.has_kind = has_kind

    def probe(self) -> None:
        """Respond."""

    def get(self, reference: ObjectReference) -> Object | None:
        """Return no object."""
        if not self.has_kind:
            raise UnknownKindError(str(reference))
        return None

    def apply(self, reference: ObjectReference, body: Object, **options: Any) -> Object:
        """Fail: no object may be created."""
        raise AssertionError(f"{reference} would be created: {body} {options}")


@pytest.mark.parametrize("has_kind", [True, False])
def test_an_update_does_not_create_an_object_that_another_client_deleted(has_kind: bool) -> None:
    operations = KubernetesOperations(KubernetesConfig(), EngineClient(""))
    operations._client = Empty(has_kind=has_kind)

    with pytest.raises(RefusedError, match=r"ConfigMap n/m was deleted .* --refresh"):
        operations.update("urn", INPUTS, INPUTS, 1, [])
