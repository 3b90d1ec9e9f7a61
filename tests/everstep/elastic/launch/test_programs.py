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
