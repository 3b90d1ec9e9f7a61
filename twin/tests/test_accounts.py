"""The IDs of the twin's accounts."""

from pathlib import Path

import cloudtwin
import pytest
from cloudtwin import accounts
from cloudtwin.capacity import shortage
from cloudtwin.nodes.metadata.instance import provider_id

from twin.tests.capacity.builders import pool


@pytest.mark.parametrize("identity", [accounts.AWS_ACCOUNT, accounts.AZURE_SUBSCRIPTION])
def test_one_module_has_the_id_of_an_account(identity: str) -> None:
    package = Path(cloudtwin.__file__).parent
    modules = [path for path in package.rglob("*.py") if identity in path.read_text()]

    assert [path.name for path in modules] == ["accounts.py"]


def test_machines_and_messages_name_the_same_subscription() -> None:
    spot_pool = pool(cloud="azure", region="eastus", zone="")

    assert f"'{accounts.AZURE_SUBSCRIPTION}'" in shortage.reason(spot_pool, 1)
    assert f"/subscriptions/{accounts.AZURE_SUBSCRIPTION}/" in provider_id(
        spot_pool.machine("spot-0")
    )
