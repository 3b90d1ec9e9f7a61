"""What `everstep doctor` finds, how it shows it, and when it exits with 1."""

import io

import pytest
from rich.console import Console

from everstep.cli import toolbox
from everstep.cli.commands.doctor import as_value, screen, stops_up
from everstep.cli.machine import Check, may_install
from twin.nodes import Leftover
from twin.toolchain import packages, tools

ROOT = Check("root", good=True, found="uid 0")
DISK = Check("disk", good=False, found="1 GiB free", remedy="Free some.", fatal=False)
TO_BUILD = Check("etcd", good=True, found="not built yet", remedy="`up` does.", pending=True)
NO_RUNC = Check("runc", good=False, found="missing", remedy="apt-get install runc")
LEFT = Leftover("process", "123 kubelet", "kill -9 123")


def drawn(found, left=()) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(screen(found, left))
    return console.file.getvalue()


def test_each_line_has_a_mark_that_tells_without_colour_how_it_is():
    shown = drawn({"machine": [ROOT, DISK], "programs": [TO_BUILD, NO_RUNC]})

    marks = {line.split()[1]: line[0] for line in shown.splitlines() if line[0:1] in set("✓○!✗")}
    assert marks == {"root": "✓", "disk": "!", "etcd": "○", "runc": "✗", "nothing": "✓"}


def test_a_remedy_is_shown_where_something_is_to_be_done_and_only_there():
    shown = drawn({"machine": [Check("root", good=True, found="uid 0", remedy="Use sudo."), DISK]})

    assert "Free some." in shown
    assert "Use sudo." not in shown


def test_what_is_left_over_is_listed_with_the_command_that_removes_it():
    assert "kill -9 123" in drawn({}, [LEFT])
    assert as_value({"machine": [ROOT]}, [LEFT]) == {
        "checks": [
            {"part": "machine", "what": "root", "good": True, "found": "uid 0", "remedy": "",
             "fatal": True, "pending": False}
        ],
        "leftovers": [
            {"kind": "process", "what": "123 kubelet", "how_to_remove": "kill -9 123"}
        ],
    }  # fmt: skip


def test_up_is_stopped_by_what_it_cannot_mend_itself():
    assert [stops_up(one) for one in (ROOT, DISK, TO_BUILD, NO_RUNC)] == [False, False, False, True]


def test_a_package_is_a_fault_only_where_up_may_not_install_it(monkeypatch):
    lacking = packages.PACKAGES[:1]
    monkeypatch.setattr(packages, "missing", lambda: lacking)

    there, missing = toolbox.packages(may_install=False)
    assert there.found == f"{len(packages.PACKAGES) - 1} of {len(packages.PACKAGES)} are there"
    assert stops_up(missing)
    assert lacking[0].name in missing.remedy
    assert not stops_up(toolbox.packages(may_install=True)[1])
    assert not may_install([Check("root", good=False, found="uid 1000")])


@pytest.fixture
def empty_machine(tmp_path, monkeypatch):
    """No program on PATH, none built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tools, "on_path", lambda name: None)
    return tmp_path


def test_on_a_new_machine_every_program_and_the_images_are_still_to_be_built(
    empty_machine, monkeypatch
):
    found = [*toolbox.programs(), *toolbox.images()]

    assert {one.what for one in found if one.pending} == {*toolbox.TOOLS, "images"}
    assert not any(stops_up(one) for one in found if one.what != "go")


def test_without_go_what_is_to_be_built_cannot_be(empty_machine, monkeypatch):
    monkeypatch.setenv("PATH", str(empty_machine))

    (go,) = [one for one in toolbox.programs() if one.what == "go"]
    assert stops_up(go)
    assert go.remedy


def test_a_program_that_is_built_is_found_by_the_key_of_its_sources(empty_machine, monkeypatch):
    from twin.toolchain.binaries import PROGRAMS
    from twin.toolchain.gobuild import find_go

    module = PROGRAMS["pause"]
    key = tools.module_key(module, find_go().version)
    folder = empty_machine / "everstep" / "toolchain" / f"{module.name}-{key}"
    folder.mkdir(parents=True)
    (folder / "pause").touch()

    assert toolbox.built("pause") == folder / "pause"
    assert toolbox.built("etcd") is None
