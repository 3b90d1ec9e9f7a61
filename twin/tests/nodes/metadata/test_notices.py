"""Termination notices in the folder of a machine."""

import re
import time
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.files import DamagedFileError
from cloudtwin.nodes.layout import MachineLayout
from cloudtwin.nodes.metadata import notices
from cloudtwin.nodes.metadata.notices import Notice
from cloudtwin.nodes.model import MachineSpec, Role

AWS = MachineSpec("gpu-3", Role.GPU, cloud="aws")


@pytest.fixture
def folder(tmp_path: Path) -> MachineLayout:
    return MachineLayout(tmp_path)


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
        notices.announce(MachineSpec("gpu-0", Role.GPU), folder, 30, terminate=True)


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
