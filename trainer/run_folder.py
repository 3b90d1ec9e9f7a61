"""The folder of one run: opened by rank 0 before the first step, and closed with its result."""

import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

from everstep.errors import EverstepError
from trainer.settings import RESULT_FILE, Settings, any_result, result

log = logging.getLogger(__name__)

RUN_FILE = "run.json"
LEDGER_FILE = "ledger.jsonl"


def open_run(settings: Settings, samples: int) -> bool:
    """Make the folder ready for a set of so many samples, another run's files moved aside.

    False where this run is finished already.

    Raises:
        EverstepError: the folder cannot be written.
    """
    try:
        return _open(settings, samples)
    except OSError as error:
        raise EverstepError(
            f"the run's folder {settings.run} cannot be written: {error}",
            "Make room on its disk, or mount it writable; then start the job again.",
        ) from error


def _open(settings: Settings, samples: int) -> bool:
    settings.run.mkdir(parents=True, exist_ok=True)
    if result(settings):
        return False
    _move_old_run_aside(settings)
    if not (settings.run / RUN_FILE).exists():
        began = {
            "began": time.time(),
            "samples": samples,
            "fingerprint": settings.fingerprint,
        }
        _write_json(settings.run / RUN_FILE, began)
    return True


def note_samples(settings: Settings, step: int, samples: int) -> None:
    """From the step after `step` on the run is trained on so many samples; written down where that is new.

    What `verify` reckons depends on it, and whoever runs the job may have accepted other data.
    """
    said = json.loads((settings.run / RUN_FILE).read_text())
    changes = said.get("data_changes", [])
    due = [said["samples"], *(c["samples"] for c in changes if c["step"] <= step)][-1]
    if due != samples:
        said["data_changes"] = [*changes, {"step": step, "samples": samples}]
        _write_json(settings.run / RUN_FILE, said)


def write_result(settings: Settings, steps: int, accuracy: float, sha256: str) -> dict[str, Any]:
    """Write down that the run is complete; gives what was written."""
    began = json.loads((settings.run / RUN_FILE).read_text())["began"]
    summary = {
        "job": settings.job,
        "model": settings.model,
        "dataset": settings.dataset,
        "steps": steps,
        "epochs": settings.epochs,
        "accuracy": accuracy,
        "sha256": sha256,
        "seconds": round(time.time() - began, 2),
        "max_steps": settings.max_steps,
        "fingerprint": settings.fingerprint,
    }
    _write_json(settings.run / RESULT_FILE, summary)
    return summary


def _move_old_run_aside(settings: Settings) -> None:
    """A finished run with other settings, or any run under another --fresh word, makes room."""
    try:
        word = json.loads((settings.run / RUN_FILE).read_text())["fingerprint"]["fresh"]
    except (OSError, ValueError, KeyError):
        word = settings.fresh
    if any_result(settings.run) is None and word == settings.fresh:
        return
    number = 1 + sum(1 for _ in settings.run.glob("previous-*"))
    aside = settings.run / f"previous-{number}"
    aside.mkdir()
    for entry in list(settings.run.iterdir()):
        if not entry.name.startswith("previous-") and entry.name != "journal":
            shutil.move(str(entry), aside / entry.name)
    shutil.copytree(settings.run / "journal", aside / "journal", dirs_exist_ok=True)
    for file in (settings.run / "journal").glob("*.jsonl"):
        file.unlink()
    log.warning("the earlier run in %s was moved to %s", settings.run, aside)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all."""
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    with aside.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
