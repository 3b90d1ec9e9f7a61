"""Pure functions for machines of a cloud: ids, aliases, notices, load, taints."""

import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.files import DamagedFileError
from cloudtwin.images.recipes import stand_in_for
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes.layout import MachineLayout
from cloudtwin.nodes.machine import agent, configuration, image_aliases
from cloudtwin.nodes.metadata import gpu_load, instance, notices
from cloudtwin.nodes.metadata.gpu_load import Meter
from cloudtwin.nodes.metadata.notices import Notice
from cloudtwin.nodes.model import MachineSpec, Role

AWS = MachineSpec(
    "gpu-3", Role.GPU, zone="us-east-1a", region="us-east-1", cloud="aws", group="gpu"
)
AZURE = MachineSpec("t4-12", Role.GPU, region="eastus", cloud="azure", group="t4")
LOCAL_MACHINE = MachineSpec("gpu-0", Role.GPU)


@pytest.fixture
def folder(tmp_path: Path) -> MachineLayout:
    return MachineLayout(tmp_path)


def test_ids_have_the_form_that_programs_parse() -> None:
    assert re.fullmatch(r"aws:///us-east-1a/i-0[0-9a-f]{16}", instance.provider_id(AWS))
    assert re.fullmatch(
        r"azure:///subscriptions/[^/]+/resourceGroups/mc_cloudtwin_none_eastus/providers"
        r"/Microsoft\.Compute/virtualMachineScaleSets/aks-t4-\d+-vmss/virtualMachines/12",
        instance.provider_id(AZURE),
    )
    assert instance.provider_id(LOCAL_MACHINE) == ""


def test_a_cloud_labels_its_machines_with_their_location() -> None:
    assert configuration.labels(AZURE) == {"topology.kubernetes.io/region": "eastus"}


@pytest.mark.parametrize(
    ("published", "local"),
    [
        ("nvcr.io/nvidia/k8s-device-plugin:v0.18.0", "localhost/cloudtwin/gpu-plugin:local"),
        ("nvcr.io/nvidia/k8s/dcgm-exporter@sha256:0123", "localhost/cloudtwin/gpu-metrics:local"),
        ("registry:5000/autoscaling/cluster-autoscaler", "localhost/cloudtwin/autoscaler:local"),
        ("docker.io/library/busybox:1", None),
    ],
)
def test_published_images_have_stand_ins_by_the_last_part_of_their_names(
    published: str, local: str | None
) -> None:
    assert stand_in_for(published) == local


def test_aliases_of_one_image_are_one_command_without_the_image_itself() -> None:
    commands = image_aliases.commands({"b:1": "x:local", "a:1": "x:local", "x:local": "x:local"})

    assert [command[-4:] for command in commands] == [["--force", "x:local", "a:1", "b:1"]]


def test_a_notice_is_announced_once_and_may_become_a_termination(folder: MachineLayout) -> None:
    notice = notices.announce(AWS, folder, 60, terminate=False)

    assert notices.announce(AWS, folder, 5, terminate=False) == notice
    termination = notices.announce(AWS, folder, 30, terminate=True)
    assert termination != notice
    assert (
        notices.announce(AWS, folder, 1, terminate=True)
        == termination
        == Notice.load(folder.notice)
    )


def test_a_machine_is_due_at_its_deadline_or_after_its_acknowledgement(
    folder: MachineLayout,
) -> None:
    now = time.time()
    past_deadline, before_deadline = (
        Notice("e", 0, now - 5, terminate=True),
        Notice("e", 0, now + 3600, terminate=True),
    )

    assert notices.is_due(folder, past_deadline)
    assert not notices.is_due(folder, past_deadline, late_seconds=3600)
    assert not notices.is_due(folder, before_deadline)
    folder.acknowledgement.parent.mkdir(parents=True)
    folder.acknowledgement.write_text('{"event": "e"}')
    assert notices.is_due(folder, before_deadline)
    assert not notices.is_due(folder, Notice("other", 0, now + 3600, terminate=True))


def test_a_machine_without_a_cloud_gets_no_notice(folder: MachineLayout) -> None:
    with pytest.raises(TwinError, match="belongs to no cloud"):
        notices.announce(LOCAL_MACHINE, folder, 30, terminate=True)


@pytest.mark.parametrize("text", ["", "{", '{"event": "e"}', '{"event": 1, "announced_at": "x"}'])
def test_an_invalid_notice_is_an_error(folder: MachineLayout, text: str) -> None:
    folder.notice.parent.mkdir()
    folder.notice.write_text(text)

    with pytest.raises(DamagedFileError, match=re.escape(str(folder.notice))):
        Notice.load(folder.notice)


def test_a_damaged_acknowledgement_is_none(folder: MachineLayout) -> None:
    notice = notices.announce(AWS, folder, 60, terminate=True)
    folder.acknowledgement.parent.mkdir(parents=True)
    folder.acknowledgement.write_text("{")

    assert not notices.is_acknowledged(folder, notice)


def test_a_damaged_list_of_drivers_keeps_the_drivers_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "ACCOUNT", tmp_path)
    (tmp_path / "drivers.json").write_text('{"drivers": [')

    class Drivers(agent.RunningDrivers):
        def update(self, drivers: Sequence[str]) -> None:
            raise AssertionError(f"changed to {drivers}")

    drivers = Drivers("gpu-0", KubernetesClient(tmp_path, "agent", "127.0.0.1", 1), tmp_path)

    assert f"{tmp_path / 'drivers.json'} is damaged" in agent.update_drivers(drivers)


def test_a_single_taint_is_removed_for_the_version_that_was_read() -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    node = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}}

    patch = agent.without_taint(node, "b")

    assert patch == {"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints[:1]}}
    assert agent.without_taint(node, "c") is None


def test_the_load_of_pods_is_shared_by_the_gpus_and_raises_their_temperature() -> None:
    exposition = gpu_load.exposition("gpu-0", gpus=2, utilization=50.0, memory_bytes=2048 << 20)

    lines = [line for line in exposition.splitlines() if not line.startswith("#")]
    values = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines}
    assert len(lines) == 2 * len(gpu_load.FIELDS)
    assert values["DCGM_FI_DEV_GPU_UTIL"] == "50"
    assert values["DCGM_FI_DEV_FB_USED"] == "1024"
    assert 34 < int(values["DCGM_FI_DEV_GPU_TEMP"]) < 71
    assert values["DCGM_FI_DEV_XID_ERRORS"] == "0"


@pytest.mark.parametrize(
    ("usage", "memory", "content"),
    [
        ("cpuacct/kubepods/cpuacct.usage", "memory/kubepods/memory.usage_in_bytes", "5000000000"),
        ("kubepods/cpu.stat", "kubepods/memory.current", "usage_usec 5000000"),
    ],
    ids=["cgroup 1", "cgroup 2"],
)
def test_load_is_read_from_the_cgroup_of_all_pods(
    tmp_path: Path, usage: str, memory: str, content: str
) -> None:
    for file in (usage, memory):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / usage).write_text(content)
    (tmp_path / memory).write_text("4096")
    meter = Meter(tmp_path)

    assert meter.utilization() == 0.0, (
        "the first measurement has no earlier measurement to compare with"
    )
    (tmp_path / usage).write_text(f"{content}000")

    assert meter.utilization() == 100.0, "5000 s of work in almost no time"
    assert meter.memory_bytes() == 4096


def test_a_machine_without_pods_has_no_load(tmp_path: Path) -> None:
    assert Meter(tmp_path).utilization() == 0.0
    assert Meter(tmp_path).memory_bytes() == 0
