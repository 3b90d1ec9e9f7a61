"""Every way out has one exit code and words for a person; a traceback only with --debug."""

import subprocess
import sys
from pathlib import Path

import pytest

from everstep.cli.failures import BUG, FAILED, INTERRUPTED, guarded
from everstep.cli.names import unknown
from everstep.errors import EverstepError

EVERSTEP = str(Path(sys.executable).parent / "everstep")


def failing(error: BaseException):
    def action() -> None:
        raise error

    return action


def test_an_error_a_user_can_put_right_is_said_with_its_remedy(capfd):
    code = guarded(failing(EverstepError("the disk is full", "Free 2 GiB.\nOr [a]")), debug=False)

    assert code == FAILED
    assert capfd.readouterr().err == "error: the disk is full\n  Free 2 GiB.\n  Or [a]\n"


def test_a_fault_of_ours_says_that_it_is_one_and_where_its_story_is(capfd, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert guarded(failing(ZeroDivisionError("by zero")), debug=False) == BUG

    said = capfd.readouterr().err
    (log,) = tmp_path.glob("everstep-crash-*.log")
    assert "ZeroDivisionError: by zero" in said
    assert str(log) in said
    assert "Traceback" not in said
    assert "Traceback" in log.read_text()


def test_debug_shows_the_traceback(capfd):
    guarded(failing(EverstepError("x")), debug=True)

    assert "Traceback" in capfd.readouterr().err


def test_ctrl_c_ends_as_a_shell_expects(capfd):
    assert guarded(failing(KeyboardInterrupt()), debug=False) == INTERRUPTED


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version"], 0, "everstep "),
        (["--help"], 0, "drain"),
        (["dran", "gpu-1"], 2, "dran"),
        (["drain"], 2, "NODE"),
        (["status", "--stack", "lcoal"], 1, "Did you mean local?"),
    ],
)
def test_the_command_line_ends_with_a_code_and_a_word_that_tell(arguments, code, said):
    done = subprocess.run([EVERSTEP, *arguments], capture_output=True, text=True, check=False)

    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_results_are_on_standard_output_and_words_on_standard_error(tmp_path):
    done = subprocess.run(
        [EVERSTEP, "report"],
        capture_output=True,
        text=True,
        check=False,
        env={"EVERSTEP_STATE": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )

    assert done.returncode == FAILED
    assert done.stdout == ""
    assert "has not begun" in done.stderr


def test_an_unknown_name_with_nothing_near_is_answered_with_all_there_are():
    error = unknown("node", "zzz", ["gpu-1", "gpu-0"])

    assert error.remedy == "There are: gpu-0, gpu-1."
