"""The checks of `everstep doctor`, their presentation and its exit code."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from cloudtwin.facade import Leftover, RunningTwin, program_status
from cloudtwin.toolchain import packages, tools
from cloudtwin.toolchain.binaries import PROGRAMS
from cloudtwin.toolchain.gobuild import find_go
from rich.console import Console

from everstep.cli.commands.doctor import as_value, blocks_up, screen
from everstep.cli.engine import prerequisites
from everstep.cli.engine.host_checks import HostCheck, may_install

ROOT = HostCheck("root", passed=True, observed="uid 0")
DISK = HostCheck("disk", passed=False, observed="1 GiB free", fix="Free some.", fatal=False)
TO_BUILD = HostCheck("etcd", passed=True, observed="not built yet", fix="`up` does.", pending=True)
NO_RUNC = HostCheck("runc", passed=False, observed="missing", fix="apt-get install runc")
LEFTOVER = Leftover("process", "123 kubelet", "kill -9 123")


def render(
    checks: Mapping[str, list[HostCheck]],
    leftovers: Sequence[Leftover] = (),
    twins: Sequence[RunningTwin] = (),
) -> str:
    output = io.StringIO()
    Console(file=output, width=100, color_system=None).print(screen(checks, leftovers, twins))
    return output.getvalue()


def test_each_check_has_a_symbol_for_its_status() -> None:
    text = render({"machine": [ROOT, DISK], "programs": [TO_BUILD, NO_RUNC]})

    marks = {line.split()[1]: line[0] for line in text.splitlines() if line[0:1] in set("✓○!✗")}
    assert marks == {"root": "✓", "disk": "!", "etcd": "○", "runc": "✗", "no": "✓"}


def test_only_checks_that_need_action_show_their_fix() -> None:
    text = render(
        {"machine": [HostCheck("root", passed=True, observed="uid 0", fix="Use sudo."), DISK]}
    )

    assert "Free some." in text
    assert "Use sudo." not in text


def test_leftovers_are_listed_with_the_command_that_removes_them() -> None:
    assert "kill -9 123" in render({}, [LEFTOVER])
    assert as_value({"machine": [ROOT]}, [LEFTOVER]) == {
        "checks": [
            {"part": "machine", "name": "root", "passed": True, "observed": "uid 0", "fix": "",
             "fatal": True, "pending": False}
        ],
        "twins": [],
        "leftovers": [
            {"kind": "process", "what": "123 kubelet", "how_to_remove": "kill -9 123"}
        ],
    }  # fmt: skip


def test_brackets_in_a_path_are_not_taken_for_markup() -> None:
    command = "EVERSTEP_STATE='/srv/[red]a' everstep down"
    leftover = Leftover("state", "/srv/[red]a/one", command)
    twin = RunningTwin(state="/srv/[red]a/two", age_seconds=1, machines=(), how_to_remove=command)

    leftovers, twins = render({}, [leftover]), render({}, twins=[twin])

    assert "/srv/[red]a/one" in leftovers
    assert "/srv/[red]a/two" in twins
    for text in (leftovers, twins):
        assert command in text


def test_running_twins_are_listed_with_their_age_and_the_command_that_takes_them_down() -> None:
    twin = RunningTwin("/tmp/test/default", 3725, ("gpu-0",), "everstep down")

    row = next(line for line in render({}, [], [twin]).splitlines() if twin.state in line)
    assert row.split() == ["/tmp/test/default", "1:02:05", "gpu-0", "everstep", "down"]
    assert as_value({}, [], [twin])["twins"][0]["age_seconds"] == 3725


def test_only_a_fatal_check_that_up_cannot_fix_blocks_up() -> None:
    assert [blocks_up(check) for check in (ROOT, DISK, TO_BUILD, NO_RUNC)] == [
        False,
        False,
        False,
        True,
    ]


def test_a_missing_package_blocks_up_only_if_up_may_not_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing_package = packages.PACKAGES[:1]
    monkeypatch.setattr(packages, "missing", lambda: missing_package)

    installed_check, missing_check = prerequisites.packages(may_install=False)
    assert (
        installed_check.observed
        == f"{len(packages.PACKAGES) - 1} of {len(packages.PACKAGES)} are installed"
    )
    assert blocks_up(missing_check)
    assert missing_package[0].name in missing_check.fix
    assert not blocks_up(prerequisites.packages(may_install=True)[1])
    assert not may_install([HostCheck("root", passed=False, observed="uid 1000")])


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a host without built programs and without programs on PATH."""
    monkeypatch.setenv("CLOUDTWIN_CACHE", str(tmp_path))
    monkeypatch.setattr(tools, "on_path", lambda name: None)
    return tmp_path


@pytest.mark.usefixtures("empty_machine")
def test_on_a_new_host_all_programs_and_images_are_pending() -> None:
    checks = [*prerequisites.programs(), *prerequisites.images()]

    assert {check.name for check in checks if check.pending} == {*prerequisites.TOOLS, "images"}
    assert not any(blocks_up(check) for check in checks if check.name != "go")


def test_a_missing_go_blocks_up_if_programs_are_pending(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(empty_machine))

    (go_check,) = [check for check in prerequisites.programs() if check.name == "go"]
    assert blocks_up(go_check)
    assert go_check.fix


def test_a_built_program_is_found_by_the_key_of_its_sources(
    empty_machine: Path,
) -> None:
    module = PROGRAMS["pause"]
    key = tools.module_key(module, find_go().version)
    folder = empty_machine / "toolchain" / f"{module.name}-{key}"
    folder.mkdir(parents=True)
    (folder / "pause").touch()

    assert program_status("pause").built == folder / "pause"
    assert program_status("etcd").built is None


def test_a_program_of_the_twin_is_shown_without_a_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tools, "on_path", lambda name: tmp_path / name)

    observed = {check.name: check.observed for check in prerequisites.programs()}

    assert observed["pause"] == f"Everstep's own, {tmp_path / 'pause'}"
    assert observed["etcd"][0].isdigit()
