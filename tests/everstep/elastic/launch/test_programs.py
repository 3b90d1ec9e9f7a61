"""The program that a worker runs, as a process."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.everstep.elastic.launch.launched import REPOSITORY, WAIT_SECONDS

CODE = "from everstep.elastic.launch.programs import run_program; run_program(*{arguments})"
PRINT_AND_DIE = "import os; print('step 7'); os.kill(os.getpid(), 9)"


@pytest.mark.parametrize("arguments", [("script", "program.py"), ("module", "program")])
def test_a_killed_program_has_printed_its_lines(arguments: tuple[str, str], tmp_path: Path) -> None:
    """In a pod the output is a pipe, whose lines would stay in a buffer of 8 KiB."""
    (tmp_path / "program.py").write_text(PRINT_AND_DIE)

    result = subprocess.run(
        [sys.executable, "-c", CODE.format(arguments=arguments)],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{REPOSITORY}:{tmp_path}"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert result.stdout == "step 7\n"


START_PROCESSES = """
import multiprocessing
print(multiprocessing.get_start_method() == multiprocessing.get_all_start_methods()[0])
"""


def test_a_program_starts_processes_by_the_default_method_of_the_interpreter(
    tmp_path: Path,
) -> None:
    """With `forkserver`, DataLoader workers run a script without a `__main__` guard again and pickle the data set."""
    (tmp_path / "program.py").write_text(START_PROCESSES)
    code = CODE.format(arguments=("script", "program.py"))

    result = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import multiprocessing; multiprocessing.set_start_method('forkserver'); {code}",
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert result.stdout == "True\n"
