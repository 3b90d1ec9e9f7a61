"""The checked-in data files of cloudfacts are complete and current."""

import json
import re
from pathlib import Path

import pytest
from cloudfacts import aws, azure
from cloudfacts.data import FOLDER

from facts import update


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_every_file_names_its_source(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content.get("source") or content.get("sources"), (
        "a value without a source cannot be checked"
    )


def test_the_files_from_botocore_are_current() -> None:
    for name, text in update.generated_files().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name}: run make catalog"


def test_every_described_instance_type_exists_in_the_api_of_ec2() -> None:
    assert set(aws.INSTANCE_TYPES) <= aws.INSTANCE_TYPE_NAMES


def test_zones_are_known_only_for_regions_that_exist() -> None:
    letters = json.loads((FOLDER / "aws_zones.json").read_text(encoding="utf-8"))["zones"]
    assert set(letters) <= set(aws.REGIONS)
    assert aws.zones("us-west-2") == ("us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d")
    assert aws.zones("nowhere-1") == ()


def test_the_registry_of_addons_has_the_account_of_its_region() -> None:
    assert aws.addon_registry("us-east-1") == "602401143452.dkr.ecr.us-east-1.amazonaws.com"
    assert aws.addon_registry("me-south-1") == "558608220178.dkr.ecr.me-south-1.amazonaws.com"
    accounts = json.loads((FOLDER / "aws_addon_registries.json").read_text(encoding="utf-8"))
    assert set(accounts["accounts"]) <= set(aws.REGIONS)


def test_gpus_have_a_model_and_memory() -> None:
    machines: list[aws.InstanceType | azure.VmSize] = [
        *aws.INSTANCE_TYPES.values(),
        *azure.VM_SIZES.values(),
    ]
    for machine in machines:
        assert bool(machine.gpus) == bool(machine.gpu_model) == bool(machine.gpu_memory_mib), (
            machine
        )


def test_every_vm_size_supports_premium_disks() -> None:
    names = [
        name for name in azure.VM_SIZES if not re.match(r"Standard_([A-Z]+\d+[a-z]*s|DS)", name)
    ]
    assert names == [], "components.aks_disks takes a Premium SSD for each size of the table"


def test_every_size_with_gpus_has_a_local_disk() -> None:
    assert [
        size.name for size in azure.VM_SIZES.values() if size.gpus and not size.local_disk_gib
    ] == []


def test_local_disks_of_a_series_belong_to_a_described_series() -> None:
    table = json.loads((FOLDER / "azure_vm_sizes.json").read_text(encoding="utf-8"))
    series = set(table["memory_gib_per_vcpu_of_series"])
    assert set(table["local_disk_gib_of_series"]) <= series
    with_d = {name for name in series if re.search(r"}[a-z]*d[a-z]*s", name)}
    assert with_d <= set(table["local_disk_gib_of_series"]), "a `d` in the name is a local disk"


def test_retired_vm_sizes_are_not_listed() -> None:
    assert [name for name in azure.VM_SIZES if azure.retired(name)] == []
    assert azure.retired("Standard_NC6s_v3") == "in September 2025"


@pytest.mark.parametrize(
    ("vm_size", "has_gpus"),
    [
        ("Standard_NC4as_T4_v3", True),
        ("Standard_NG32ads_V620_v1", True),  # not in the table, like all of its series
        ("standard_nd128isr_gb300_v6", True),
        ("Standard_NP10s", False),  # FPGAs
        ("Standard_D4s_v5", False),
    ],
)
def test_sizes_outside_the_table_have_the_gpus_of_their_series(
    vm_size: str, has_gpus: bool
) -> None:
    assert azure.has_gpus(vm_size) is has_gpus


def test_gpu_families_include_those_whose_hardware_is_not_described() -> None:
    families = aws.gpu_families()

    assert {"g4ad", "g5", "gr6", "p3", "p6-b300", "p6e-gb200"} <= families
    assert families.isdisjoint({"m6i", "c7g", "t3"})
