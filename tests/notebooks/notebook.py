"""The notebooks of the lab as data, and their execution."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
CHOICE_TAG = "parameters"
"""Tag of the cell with the user's choices."""


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook.

    Attributes:
        id: its identifier, unique in the notebook.
        is_code: True if it is executed.
        source: its text.
        tags: its tags.
        execution_count: its position in the order of execution; None before the first execution.
        output: text of its outputs; empty before the first execution.
    """

    id: str
    is_code: bool
    source: str
    tags: tuple[str, ...]
    execution_count: int | None
    output: str


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a notebook."""
    return [_cell(cell) for cell in json.loads(path.read_text())["cells"]]


def _cell(value: Mapping[str, Any]) -> Cell:
    return Cell(
        id=value["id"],
        is_code=value["cell_type"] == "code",
        source="".join(value["source"]),
        tags=tuple(value["metadata"].get("tags", ())),
        execution_count=value.get("execution_count"),
        output="".join(map(_text, value.get("outputs", ()))),
    )


def _text(output: Mapping[str, Any]) -> str:
    """Return the text of an output: of a stream, of a value, or the name of an error."""
    text = output.get("text") or output.get("data", {}).get("text/plain") or output.get("ename", "")
    return text if isinstance(text, str) else "".join(text)


def copy_notebooks(folder: Path, cloud: str) -> list[Path]:
    """Copy the notebooks and their module into a folder, for a cloud; return the notebooks."""
    folder.mkdir(parents=True)
    shutil.copy(FOLDER / "lab.py", folder)
    return [_copy_with_cloud(path, folder / path.name, cloud) for path in PATHS]


def _copy_with_cloud(path: Path, target: Path, cloud: str) -> Path:
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if CHOICE_TAG in cell["metadata"].get("tags", ()):
            cell["source"] = "".join(cell["source"]).replace('"eks"  #', f'"{cloud}"  #')
    target.write_text(json.dumps(notebook))
    return target


def execute(path: Path, environment: Mapping[str, str], cell_seconds: float) -> None:
    """Execute a notebook from the first cell to the last; its outputs are written into it.

    Args:
        path: the notebook.
        environment: environment variables in addition to this process's.
        cell_seconds: time limit of each cell, in seconds.

    Raises:
        AssertionError: a cell failed; contains the error output.
    """
    program = Path(sys.executable).with_name("jupyter-execute")
    arguments: Sequence[str] = [
        "--inplace",
        "--kernel_name=python3",
        f"--timeout={cell_seconds:.0f}",
    ]
    result = subprocess.run(
        [program, *arguments, str(path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{path.name}\n{result.stderr[-8000:]}"
