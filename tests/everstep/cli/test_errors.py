"""Each kind of exit has one code and a readable message; tracebacks only with --debug."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep.cli.errors import BUG, FAILED, run_guarded
from everstep.cli.main import main
from everstep.errors import EverstepError
from everstep.spelling import unknown_name

EVERSTEP = str(Path(sys.executable).parent / "everstep")


def failing_action(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


def test_a_user_error_is_shown_with_its_fix(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = run_guarded(
        failing_action(EverstepError("the disk is full", "Free 2 GiB.\nOr [a]")), debug=False
    )

    assert code == FAILED
    assert capfd.readouterr().err == "error: the disk is full\n  Free 2 GiB.\n  Or [a]\n"


def test_a_bug_is_reported_with_the_path_of_its_log(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert run_guarded(failing_action(ZeroDivisionError("by zero")), debug=False) == BUG

    message = capfd.readouterr().err
    (log,) = tmp_path.glob("everstep-crash-*.log")
    assert "ZeroDivisionError: by zero" in message
    assert str(log) in message
    assert "Traceback" not in message
    assert "Traceback" in log.read_text()


def test_a_bug_is_reported_even_if_no_crash_log_can_be_written(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.mkstemp", refuse)

    assert run_guarded(failing_action(ZeroDivisionError("by zero")), debug=False) == BUG

    message = capfd.readouterr().err
    assert "ZeroDivisionError: by zero" in message
    assert "`everstep --debug ...` prints the traceback" in message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/x/y"), "/x/y: Not a directory"),
        (FileExistsError(errno.EEXIST, "File exists", "/x"), "/x: File exists"),
        (
            OSError(errno.ELOOP, "Too many levels of symbolic links", "/x"),
            "/x: Too many levels of symbolic links",
        ),
        (OSError(errno.ENAMETOOLONG, "File name too long", "/x"), "/x: File name too long"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/x"), "/x: Is a directory"),
        (OSError(errno.EIO, "Input/output error", "/x"), "/x: Input/output error"),
        (OSError(errno.ESTALE, "Stale file handle", "/x"), "/x: Stale file handle"),
    ],
    ids=[
        *("without a file", "with a file", "below a file", "dangling link", "loop", "long name"),
        *("folder", "failing disk", "stale file"),
    ],
)
def test_an_error_of_the_operating_system_is_shown_with_its_file_if_it_has_one(
    capfd: pytest.CaptureFixture[str], error: OSError, message: str
) -> None:
    assert run_guarded(failing_action(error), debug=False) == FAILED

    assert capfd.readouterr().err.startswith(f"error: {message}\n  ")


def test_an_error_of_control_groups_does_not_suggest_another_disk(
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = "/sys/fs/cgroup/memory/cloudtwin-default"
    error = OSError(errno.EROFS, "Read-only file system", path)

    assert run_guarded(failing_action(error), debug=False) == FAILED

    message = capfd.readouterr().err
    assert "--privileged" in message
    assert "disk" not in message


def test_debug_shows_the_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    run_guarded(failing_action(EverstepError("x")), debug=True)

    assert "Traceback" in capfd.readouterr().err


def test_ctrl_c_ends_as_a_shell_expects(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_guarded(failing_action(KeyboardInterrupt()), debug=False) == 128 + signal.SIGINT

    assert capfd.readouterr().err == "interrupted\n"


def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["everstep", "--version"])
    monkeypatch.setattr(
        "everstep.cli.twin_settings.configure_twin", failing_action(KeyboardInterrupt())
    )

    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--version"], 0, "everstep "),
        (["--help"], 0, "drain"),
        (["dran", "gpu-1"], 2, "dran"),
        (["drain"], 2, "NODE"),
        (["status", "--stack", "lcoal"], 1, "Did you mean local?"),
    ],
)
def test_commands_exit_with_a_code_and_a_message(
    arguments: list[str], code: int, expected: str
) -> None:
    result = subprocess.run([EVERSTEP, *arguments], capture_output=True, text=True, check=False)

    assert result.returncode == code, result.stderr
    assert expected in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_results_go_to_standard_output_and_messages_to_standard_error(tmp_path: Path) -> None:
    result = subprocess.run(
        [EVERSTEP, "report"],
        capture_output=True,
        text=True,
        check=False,
        env={"EVERSTEP_STATE": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )

    assert result.returncode == FAILED
    assert result.stdout == ""
    assert "has not begun" in result.stderr
    assert "`everstep up` starts it" in result.stderr


def test_a_reader_that_closes_its_pipe_ends_a_command_without_a_message() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [EVERSTEP, "--version"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)

    assert (result.returncode, result.stderr) == (1, "")


def test_an_unknown_name_without_similar_names_lists_all_names() -> None:
    error = unknown_name("node", "zzz", ["gpu-1", "gpu-0"])

    assert error.fix == "Known names: gpu-0, gpu-1."
