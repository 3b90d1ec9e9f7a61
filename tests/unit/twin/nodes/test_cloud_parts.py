"""The smaller pure parts of a cloud's machine: ids, aliases, notices, load, taints."""

import re
import time

import pytest

from everstep.errors import EverstepError
from twin.images.recipes import stand_in_for
from twin.nodes import agent, gpu_load, image_aliases, instance, machine_config, notices
from twin.nodes.gpu_load import Meter
from twin.nodes.layout import MachineLayout
from twin.nodes.model import MachineSpec, Role, Taint
from twin.nodes.notices import Notice

AWS = MachineSpec(
    "gpu-3", Role.GPU, zone="us-east-1a", region="us-east-1", cloud="aws", group="gpu"
)
AZURE = MachineSpec("t4-12", Role.GPU, region="eastus", cloud="azure", group="t4")
PLAIN = MachineSpec("gpu-0", Role.GPU)


@pytest.fixture
def folder(tmp_path):
    return MachineLayout(tmp_path)


def test_ids_have_the_form_that_programs_parse():
    assert re.fullmatch(r"aws:///us-east-1a/i-0[0-9a-f]{16}", instance.provider_id(AWS))
    assert re.fullmatch(
        r"azure:///subscriptions/[^/]+/resourceGroups/mc_everstep_eastus/providers"
        r"/Microsoft\.Compute/virtualMachineScaleSets/aks-t4-\d+-vmss/virtualMachines/12",
        instance.provider_id(AZURE),
    )
    assert instance.provider_id(PLAIN) == ""


def test_a_machine_of_a_cloud_has_exactly_the_taints_that_were_given():
    tainted = MachineSpec("x", Role.GPU, cloud="aws", taints=(Taint("a"),))

    assert machine_config.taints(tainted) == (Taint("a"),)
    assert machine_config.taints(AWS) == ()
    assert machine_config.labels(AZURE) == {"topology.kubernetes.io/region": "eastus"}


@pytest.mark.parametrize(
    ("published", "local"),
    [
        ("nvcr.io/nvidia/k8s-device-plugin:v0.18.0", "localhost/everstep/gpu-plugin:local"),
        ("nvcr.io/nvidia/k8s/dcgm-exporter@sha256:0123", "localhost/everstep/gpu-metrics:local"),
        ("registry:5000/autoscaling/cluster-autoscaler", "localhost/everstep/autoscaler:local"),
        ("docker.io/library/busybox:1", None),
    ],
)
def test_published_images_have_stand_ins_by_the_last_part_of_their_names(published, local):
    assert stand_in_for(published) == local


def test_aliases_of_one_image_are_one_command_and_an_image_is_no_alias_of_itself():
    commands = image_aliases.commands({"b:1": "x:local", "a:1": "x:local", "x:local": "x:local"})

    assert [command[-4:] for command in commands] == [["--force", "x:local", "a:1", "b:1"]]


def test_a_notice_is_given_once_and_may_become_the_end(folder):
    warning = notices.give(AWS, folder, 60, take=False)

    assert notices.give(AWS, folder, 5, take=False) == warning
    final = notices.give(AWS, folder, 30, take=True)
    assert final != warning
    assert notices.give(AWS, folder, 1, take=True) == final == Notice.load(folder.notice)


def test_a_machine_is_due_when_its_time_is_over_or_it_has_agreed(folder):
    now = time.time()
    late, early = Notice("e", 0, now - 5, take=True), Notice("e", 0, now + 60, take=True)

    assert notices.is_due(folder, late)
    assert not notices.is_due(folder, late, late_seconds=10)
    assert not notices.is_due(folder, early)
    folder.acknowledgement.parent.mkdir(parents=True)
    folder.acknowledgement.write_text('{"event": "e"}')
    assert notices.is_due(folder, early)
    assert not notices.is_due(folder, Notice("other", 0, now + 60, take=True))


def test_a_machine_of_no_cloud_cannot_be_given_notice(folder):
    with pytest.raises(EverstepError, match="belongs to no cloud"):
        notices.give(PLAIN, folder, 30, take=True)


@pytest.mark.parametrize("text", ["", "{", '{"event": "e"}', '{"event": 1, "at": "x"}'])
def test_what_is_no_notice_announces_nothing(folder, text):
    folder.notice.parent.mkdir()
    folder.notice.write_text(text)

    assert Notice.load(folder.notice) is None


def test_a_taint_is_taken_off_alone_and_for_the_version_that_was_seen():
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    node = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}}

    patch = agent.without_taint(node, "b")

    assert patch == {"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints[:1]}}
    assert agent.without_taint(node, "c") is None


def test_the_load_of_pods_is_shared_by_the_gpus_and_warms_them():
    shown = gpu_load.exposition("gpu-0", gpus=2, utilisation=50.0, memory_bytes=2048 << 20)

    lines = [line for line in shown.splitlines() if not line.startswith("#")]
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
def test_load_is_read_from_the_cgroup_of_all_pods(tmp_path, usage, memory, content):
    for file in (usage, memory):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / usage).write_text(content)
    (tmp_path / memory).write_text("4096")
    meter = Meter(tmp_path)

    assert meter.utilisation() == 0.0, "the first look has nothing to compare with"
    (tmp_path / usage).write_text(content.replace("5", "9", 1))

    assert meter.utilisation() == 100.0, "four seconds of work in no time at all"
    assert meter.memory_bytes() == 4096


def test_a_machine_without_pods_has_no_load(tmp_path):
    assert Meter(tmp_path).utilisation() == 0.0
    assert Meter(tmp_path).memory_bytes() == 0
