"""The record of a run in its folder, `run.json`: its identity, start time, samples and settings."""

import json
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everstep.errors import EverstepError
from everstep.files import READABLE, write_atomically

RUN_FILE = "run.json"


def open_record(folder: Path, samples: int, fingerprint: Mapping[str, Any]) -> None:
    """Write the record of a new run; keep the record of a run that continues.

    Raises:
        EverstepError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / RUN_FILE).exists():
            write_json(folder / RUN_FILE, new_record(samples, fingerprint))
    except OSError as error:
        raise not_writable(folder, error) from error


def new_record(samples: int, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a run that begins."""
    return {
        "id": secrets.token_hex(8),
        "began": time.time(),
        "samples": samples,
        "fingerprint": dict(fingerprint),
    }


def not_writable(folder: Path, error: OSError) -> EverstepError:
    """Return the error for a run's folder that cannot be written."""
    return EverstepError(
        f"the run's folder {folder} cannot be written: {error}",
        "Free space on its disk, or mount it writable; then start the job again.",
    )


def run_id(folder: Path) -> str:
    """Return the identity of the run in this folder; empty if there is no valid record, or it has no identity.

    A commit in etcd contains this identity: a run of the same name in another folder has another identity.

    Raises:
        OSError: the record cannot be read: without it, the run's own commit would count as another run's.
    """
    try:
        record = json.loads((folder / RUN_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return ""
    return str(record.get("id", "")) if isinstance(record, dict) else ""


def note_samples(folder: Path, step: int, samples: int, generation: int) -> None:
    """Record the number of samples from the step after `step` on, if it has changed."""
    record = json.loads((folder / RUN_FILE).read_text())
    updated_record = with_samples(record, step, samples, generation)
    if updated_record != record:
        write_json(folder / RUN_FILE, updated_record)


def with_samples(
    record: Mapping[str, Any], step: int, samples: int, generation: int
) -> dict[str, Any]:
    """Return a record in which the steps after `step` have this number of samples.

    `trainer.verify` needs this number, which changes if a user accepts other data. A run may restore a checkpoint
    from before a change. The new change then replaces that one in later commits, and both stay in the record:
    the ledger has commits of both histories. Generation and time tell which changes precede a commit.

    Args:
        record: the record.
        step: completed steps of the restored state.
        samples: size of the data set.
        generation: generation that restores the state; 0 if it has no agent.
    """
    changes = record.get("data_changes", [])
    edges = [step, *(change["step"] for change in changes if change["step"] > step)]
    if all(_samples_after(record, edge) == samples for edge in edges):
        return dict(record)
    change = {"step": step, "samples": samples, "generation": generation, "at": time.time()}
    return {**record, "data_changes": [*changes, change]}


def _samples_after(record: Mapping[str, Any], step: int) -> int:
    """Return the recorded number of samples of the step after `step`: the latest change at or before it counts."""
    changes = record.get("data_changes", [])
    return int([record["samples"], *(c["samples"] for c in changes if c["step"] <= step)][-1])


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file atomically; other users may read it."""
    write_atomically(path, json.dumps(content, indent=1), READABLE)
