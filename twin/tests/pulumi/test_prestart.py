"""Programs that run in a process started before the engine requests their runs."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cloudtwin.pulumi.prestart import prestarted_program

from twin.tests.project import Project
from twin.tests.waiting import wait_until

pytestmark = pytest.mark.twin

SECONDS = 300.0  # for an interpreter to start or to end on a busy machine

SHOW_MODULE = """
import os, sys
print("imported before the run:", "palette" in sys.modules)
import palette
print("by process", palette.IMPORTED_BY, "in", os.getcwd(), "color", pulumi.Config().get("color"))
"""


@contextmanager
def prestarted(project: Project, *modules: str) -> Iterator[None]:
    """Prestart the project's program, and let its language hosts find the process."""
    (project.folder / "palette.py").write_text("import os\nIMPORTED_BY = os.getpid()\n")
    environment = project.environment
    with prestarted_program(project.folder, modules) as variables:
        project.environment = {**environment, **variables}
        yield
    project.environment = environment


def test_only_the_first_run_finds_its_modules_imported_and_all_find_their_configuration(
    project: Project,
) -> None:
    project.pulumi("config", "set", "color", "red")
    project.program(SHOW_MODULE)

    with prestarted(project, "palette"):
        first, second = project.pulumi("preview"), project.pulumi("preview")

    assert "imported before the run: True" in first
    assert f"in {project.folder} color red" in first
    assert f"in {project.folder} color red" in second
    assert "imported before the run: False" in second, "it starts a process of its own"


def test_a_module_that_cannot_be_imported_leaves_the_error_to_the_run(project: Project) -> None:
    project.program("import missing_module")

    with prestarted(project, "missing_module"):
        output = project.pulumi("preview", fails=True)

    assert "No module named 'missing_module'" in output
    assert "waiting_program" not in output


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys\nsys.exit(7)", "the program exited with code 7"),
        ("import os\nos._exit(7)", "the program ended without an exit code"),
        ("raise pulumi.RunError('no color')", "error: no color"),
        ("{}['color']", "KeyError: 'color'"),
    ],
)
def test_a_program_that_fails_fails_the_run(project: Project, program: str, message: str) -> None:
    project.program(program)

    with prestarted(project, "pulumi"):
        assert message in project.pulumi("preview", fails=True)


def test_an_interrupted_run_ends_the_process(project: Project) -> None:
    started = project.folder / "started"
    project.program(
        f"""
        import os, time
        from pathlib import Path
        Path({str(started)!r}).write_text(str(os.getpid()))
        time.sleep(600)
        """
    )

    with prestarted(project, "pulumi"):
        command = project.start("preview")
        wait_until(lambda: started.exists() and started.read_text(), "the program runs", SECONDS)
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=project.command_seconds)
        wait_until(lambda: has_ended(int(started.read_text())), "the program has ended", SECONDS)

    assert command.returncode != 0


def test_a_process_without_a_run_ends_with_its_command(project: Project) -> None:
    imported = project.folder / "imported"
    (project.folder / "slow.py").write_text(
        f"import os, pathlib\npathlib.Path({str(imported)!r}).write_text(str(os.getpid()))\n"
    )

    with prestarted(project, "slow"):
        wait_until(
            lambda: imported.exists() and imported.read_text(), "the module is imported", SECONDS
        )

    wait_until(lambda: has_ended(int(imported.read_text())), "the process has ended", SECONDS)


def test_a_program_of_another_interpreter_is_started_as_usual(project: Project) -> None:
    interpreter = project.use_virtual_environment()
    project.program("import sys\nprint('run by', sys.executable)")

    with prestarted(project, "pulumi"):
        assert f"run by {interpreter}" in project.pulumi("preview")


def has_ended(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
