"""The disks that AKS creates: ephemeral or managed, and the types of its StorageClasses."""

import pytest
from cloudfacts import azure
from cloudfacts.prices import HOURS_PER_MONTH
from hypothesis import given
from hypothesis import strategies as st

from components.aks_disks import os_disk, volume

GIB = st.integers(min_value=30, max_value=4096)


@pytest.mark.parametrize(
    ("vm_size", "gib", "name"),
    [
        ("Standard_DS2_v2", 86, "ephemeral disk of 86 GiB"),
        ("Standard_DS2_v2", 87, "Premium SSD of 87 GiB"),
        ("Standard_D8ds_v5", 300, "ephemeral disk of 300 GiB"),
        ("Standard_D4s_v5", 64, "Premium SSD of 64 GiB"),  # neither a cache nor a temporary disk
        ("Standard_NC24ads_A100_v4", 128, "ephemeral disk of 128 GiB"),  # in the cache of 256 GiB
    ],
)
def test_aks_takes_an_ephemeral_os_disk_if_the_machine_can_hold_it(
    vm_size: str, gib: int, name: str
) -> None:
    assert os_disk(vm_size, gib).name == name


@given(vm_size=st.sampled_from(sorted(azure.VM_SIZES)), gib=GIB)
def test_only_an_ephemeral_disk_is_free(vm_size: str, gib: int) -> None:
    disk = os_disk(vm_size, gib)

    assert (disk.usd_per_hour == 0) == disk.name.startswith("ephemeral")


@pytest.mark.parametrize(
    ("gib", "usd_per_month"), [(30, 5.28), (64, 10.21), (65, 19.71), (129, 38.02), (1024, 135.17)]
)
def test_a_managed_disk_is_billed_as_the_next_size(gib: int, usd_per_month: float) -> None:
    assert os_disk("Standard_D4s_v5", gib).usd_per_hour == pytest.approx(
        usd_per_month / HOURS_PER_MONTH
    )


def test_the_price_of_a_disk_beyond_the_table_is_unknown() -> None:
    assert os_disk("Standard_D4s_v5", 2048).usd_per_hour is None


@pytest.mark.parametrize(
    ("storage_class", "name"),
    [
        (None, "Standard SSD of 1 GiB"),
        ("managed-csi", "Standard SSD of 1 GiB"),
        ("managed-csi-premium", "Premium SSD of 1 GiB"),
        ("fast", "volume of 1 GiB, StorageClass fast"),
    ],
)
def test_a_claim_gets_the_disk_of_its_class(storage_class: str | None, name: str) -> None:
    assert volume(storage_class, 1, ["1"]).name == name


def test_in_several_zones_the_disks_of_claims_are_zone_redundant_and_their_price_has_no_source() -> (
    None
):
    disk = volume(None, 1, ["1", "2"])

    assert (disk.name, disk.usd_per_hour) == ("Standard SSD ZRS of 1 GiB", None)
