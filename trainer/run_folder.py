"""The folder of one run: opened by one worker before the first step, and closed with its result."""

import json
import logging
import shutil
import time
from typing import Any

from everstep.elastic.training.run_record import RUN_FILE, not_writable, write_json
from trainer.settings import RESULT_FILE, Settings, any_result, result

log = logging.getLogger(__name__)

RESULT_RETRY_SECONDS = 5.0
_MOVED_LAST = {RUN_FILE: 1, RESULT_FILE: 2}


def open_run(settings: Settings) -> dict[str, Any] | None:
    """Prepare the folder: move another run's files away; return the result of a run that is complete.

    Raises:
        EverstepError: the folder cannot be written.
    """
    try:
        settings.run.mkdir(parents=True, exist_ok=True)
        if earlier_result := result(settings):
            return earlier_result
        _move_old_run(settings)
    except OSError as error:
        raise not_writable(settings.run, error) from error
    return None


def write_result_when_possible(
    settings: Settings, steps: int, accuracy: float, sha256: str
) -> dict[str, Any]:
    """Write the result; retry while that fails, for instance on a full disk, so that a complete run is not lost."""
    while True:
        try:
            return write_result(settings, steps, accuracy, sha256)
        except OSError as error:
            log.error("the run is complete, but its result cannot be written: %s; retrying", error)
            time.sleep(RESULT_RETRY_SECONDS)


def write_result(settings: Settings, steps: int, accuracy: float, sha256: str) -> dict[str, Any]:
    """Write the result of a complete run; return it."""
    started_at = json.loads((settings.run / RUN_FILE).read_text())["began"]
    summary = {
        "job": settings.job,
        "model": settings.model,
        "dataset": settings.dataset,
        "steps": steps,
        "epochs": settings.epochs,
        "accuracy": accuracy,
        "sha256": sha256,
        "seconds": round(time.time() - started_at, 2),
        "max_steps": settings.max_steps,
        "fingerprint": settings.fingerprint,
    }
    write_json(settings.run / RESULT_FILE, summary)
    return summary


def _move_old_run(settings: Settings) -> None:
    """Move away a finished run with other settings, or any run with another value of --fresh."""
    try:
        old_fresh = json.loads((settings.run / RUN_FILE).read_text())["fingerprint"]["fresh"]
    except (OSError, ValueError, KeyError):
        old_fresh = settings.fresh
    if any_result(settings.run) is None and old_fresh == settings.fresh:
        return
    number = 1
    while (target := settings.run / f"previous-{number}").exists():
        number += 1
    target.mkdir()
    journal = settings.run / "journal"
    if journal.is_dir():  # a run that ended early may have none
        shutil.copytree(journal, target / journal.name)
        for file in journal.glob("*.jsonl"):
            file.unlink()
    entries = [
        entry
        for entry in settings.run.iterdir()
        if not entry.name.startswith("previous-") and entry != journal
    ]
    # The files that are read above are moved last: if this process is killed, the next start moves the other entries.
    for entry in sorted(entries, key=lambda entry: _MOVED_LAST.get(entry.name, 0)):
        shutil.move(str(entry), target / entry.name)
    log.warning("the earlier run in %s was moved to %s", settings.run, target)
