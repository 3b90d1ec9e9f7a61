"""The commands of docs/tutorial.md, from `git clone` to `everstep down`, in the order of the page.

The clone comes from this repository instead of the page's address; everything else runs as it is written. Between two
commands the test waits, like a reader who watches the training.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest
from cloudtwin.facade import DEFAULT_TWIN
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout

from everstep.cli.report.readers import FolderReader
from everstep.cli.report.report import Report, build
from everstep.progress import Silent
from tests.e2e.life_cycle import holds_now
from tests.guides.shell import Shell
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
ADDRESS = "https://github.com/everstep/everstep"
BLOCK = re.compile(r"(?:^    .+\n)+", re.MULTILINE)
COMMAND_SECONDS, TRAIN_SECONDS = 1800, 900
WORKERS = 3
EVENTS = ("drain gpu-0", "return gpu-0", "vanish gpu-2", "return gpu-2")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]


def commands() -> list[str]:
    """Return the commands of the page's steps, which are indented."""
    steps = PAGE.read_text().partition("\n## All at once")[0]
    return [line for block in BLOCK.findall(steps) for line in dedent(block).splitlines()]


@dataclass
class TutorialRun:
    """The run of the page's commands by a reader.

    Attributes:
        shell: the reader's shell.
        state: folder of the reader's twins.
        outputs: output of each command; of a repeated command, the last.
        steps_lost: steps that each loss of a machine cost; None if no step followed it.
    """

    shell: Shell
    state: Path
    outputs: dict[str, str] = field(default_factory=dict)
    steps_lost: dict[str, int | None] = field(default_factory=dict)

    @property
    def clone(self) -> Path:
        """Folder of the reader's clone."""
        return self.shell.folder / "everstep"

    def run_all(self) -> None:
        """Run all commands of the page."""
        for command in commands():
            self.wait_before(command)
            if command.startswith("everstep down"):
                events = self.report().events
                self.steps_lost = {e.kind: e.steps_lost for e in events if e.kind != "return"}
            self.outputs[command] = self.shell.run(command, COMMAND_SECONDS)

    def wait_before(self, command: str) -> None:
        """Wait for the state of the training in which the page runs this command."""
        if command in ("everstep drain gpu-0", "everstep vanish gpu-2"):
            self.wait_for_workers(WORKERS)
        elif command.startswith("everstep return"):
            self.wait_for_workers(WORKERS - 1)

    def wait_for_workers(self, number: int) -> None:
        """Wait until this number of workers has taken a step."""

        def trains() -> bool:
            sizes = self.report().world_sizes
            return bool(sizes) and sizes[-1].world_size == number

        wait_until(
            lambda: holds_now(trains), f"{number} workers train", TRAIN_SECONDS, interval_seconds=1
        )

    def report(self) -> Report:
        """Return the report of the run."""
        twin = self.state / DEFAULT_TWIN
        return build(
            FolderReader(twin / "shared" / "runs" / "fashion", twin / "events.jsonl").read()
        )

    def output_of(self, command: str) -> str:
        """Return the output of a command on the page."""
        assert command in self.outputs, f"the page has no command {command}"
        return self.outputs[command]


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TutorialRun]:
    """Run the commands of the page once; the twin is always taken down."""
    folder = tmp_path_factory.mktemp("tutorial")
    state = folder / "state"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CLOUDTWIN_")},
        "EVERSTEP_STATE": str(state),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{ROOT}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
    }
    environment.pop("VIRTUAL_ENV", None)
    tutorial = TutorialRun(Shell(folder, environment, folder / "log"), state)
    try:
        tutorial.run_all()
        yield tutorial
    finally:
        if (state / DEFAULT_TWIN).exists():
            Twin(Layout(state / DEFAULT_TWIN)).down(Silent())


def test_the_page_drains_and_loses_a_machine_and_takes_everything_down() -> None:
    beginnings = ["git clone", "make built", "everstep up", "everstep drain", "everstep vanish"]
    beginnings += ["everstep follow", "everstep report", "everstep pulumi", "everstep down"]

    order = [next((b for b in beginnings if line.startswith(b)), "") for line in commands()]

    assert list(dict.fromkeys(filter(None, order))) == beginnings


def test_the_report_has_both_machines_and_the_end_of_the_training(tutorial: TutorialRun) -> None:
    report = tutorial.output_of("everstep report")

    for text in ("fashion", "finished", "accuracy", *EVENTS):
        assert text in report
    assert (tutorial.clone / "report.html").read_text().startswith("<!doctype html>")


def test_the_recovery_costs_no_step(tutorial: TutorialRun) -> None:
    report = build(FolderReader(tutorial.clone / "my-run", tutorial.clone / "no-events").read())

    assert report.finished
    assert tutorial.steps_lost == {"drain": 0, "vanish": 0}


def test_following_ends_with_the_training(tutorial: TutorialRun) -> None:
    assert "finished" in tutorial.output_of("everstep follow")


def test_the_preview_of_a_changed_job_updates_the_job_only(tutorial: TutorialRun) -> None:
    preview = tutorial.output_of("everstep pulumi preview")

    assert "training-job-fashion" in preview
    assert "1 to update" in preview


def test_the_run_is_kept_and_nothing_else(tutorial: TutorialRun) -> None:
    assert not (tutorial.state / DEFAULT_TWIN).exists()
    doctor = tutorial.shell.run("everstep doctor --json", COMMAND_SECONDS)
    leftovers = json.loads(doctor[doctor.index("{") :])["leftovers"]
    assert [entry for entry in leftovers if str(tutorial.state) in entry["what"]] == []
    assert "finished" in tutorial.shell.run("everstep report --run my-run", COMMAND_SECONDS)
