"""The etcd of one launcher."""

import pytest

from everstep.elastic.launch.local_etcd import PROGRAM_VARIABLE, LocalEtcd
from everstep.errors import EverstepError


def test_an_etcd_that_ends_without_output_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAM_VARIABLE, "true")

    with pytest.raises(EverstepError, match="true does not start: it printed nothing"), LocalEtcd():
        pass
