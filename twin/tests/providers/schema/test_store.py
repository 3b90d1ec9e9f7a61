"""The cache of schemas."""

from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.providers.aws.network import VPC
from cloudtwin.providers.schema.store import SchemaStore


def test_an_extraction_that_takes_too_long_is_repeated_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTWIN_CACHE", str(tmp_path))

    with monkeypatch.context() as patch:
        patch.setattr("cloudtwin.providers.schema.store.EXTRACT_SECONDS", 0.01)
        with pytest.raises(TwinError, match=r"pulumi_aws were not read within 0\.01 s") as error:
            SchemaStore("aws", (VPC,)).load(VPC)

    assert str(tmp_path) in error.value.fix
    assert SchemaStore("aws", (VPC,)).load(VPC).token == VPC
