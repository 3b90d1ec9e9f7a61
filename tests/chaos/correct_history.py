"""A small, correct history of a chaos run in the checker's formats, which tests corrupt."""

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SAMPLES, BATCH, STEPS_PER_EPOCH = 128, 32, 4
FIRST_COMMITS, SECOND_COMMITS = (3, 6), (9, 10)
Entry = dict[str, Any]


def counts(step: int) -> npt.NDArray[np.float32]:
    """Return how often each sample was applied after a number of steps; shape (SAMPLES,)."""
    epochs, part = divmod(step, STEPS_PER_EPOCH)
    result = np.full(SAMPLES, epochs, np.float32)
    result[: part * BATCH] += 1
    return result


def weights(step: int) -> npt.NDArray[np.float32]:
    """Return the weights after a number of steps."""
    return np.arange(8, dtype=np.float32) * step


def digest(step: int) -> str:
    """Return the digest of the state after a number of steps."""
    return hashlib.sha256(counts(step).tobytes() + weights(step).tobytes()).hexdigest()[:16]


def write_history(folder: Path) -> None:
    """Write a run of two workers: both crash after step 11, w0 restores step 6, and both train until step 10."""
    (folder / "run" / "journal").mkdir(parents=True)
    for worker in ("w0", "w1"):
        lines = [_generation_entry(1, 0), *(_applied_entry(step, 100) for step in range(1, 12))]
        restore_entries = [{"kind": "restore", "step": 6, "path": "-"}] if worker == "w0" else []
        lines += [
            *restore_entries,
            _generation_entry(2, 6),
            *(_applied_entry(step, 200) for step in range(7, 11)),
        ]
        _write(folder / "run" / "journal" / f"{worker}.jsonl", lines)
    etcd = [_etcd_entry("generation", 2, {"number": 1, "members": ["w0-1", "w1-1"]})]
    etcd += [_commit_entry(3 + index, 1, step) for index, step in enumerate(FIRST_COMMITS)]
    etcd += [_etcd_entry("generation", 8, {"number": 2, "members": ["w0-2", "w1-2"]})]
    etcd += [_commit_entry(9 + index, 2, step) for index, step in enumerate(SECOND_COMMITS)]
    _write(folder / "etcd.jsonl", etcd)
    for step in FIRST_COMMITS:
        write_checkpoint(folder, step, 1)
    for step in SECOND_COMMITS:
        write_checkpoint(folder, step, 2)
    ledger = [{"kind": "commit", "step": s, "samples": s * BATCH} for s in (3, 6, 9, 10)]
    _write(folder / "run" / "ledger.jsonl", ledger)
    _write(
        folder / "faults.jsonl",
        [
            {"at": 10.0, "event": "begin", "fault": "0-0", "type": "kill-all"},
            {"at": 12.0, "event": "faults_end", "bound": 60},
            {"at": 20.0, "event": "recovered"},
            {"at": 21.0, "event": "drain_all"},
            {"at": 22.0, "event": "left", "target": "w0", "code": 143},
            {"at": 22.0, "event": "left", "target": "w1", "code": 143},
        ],
    )


def write_checkpoint(
    folder: Path, step: int, generation: int, **changes: npt.NDArray[np.float32]
) -> None:
    """Write a complete checkpoint; `changes` replaces the counts or the weights."""
    values = {"counts": counts(step), "weights": weights(step)} | changes
    header, offset = {}, 0
    for name, value in values.items():
        header[f"model.{name}"] = {"data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    header_bytes = json.dumps(header).encode()
    data = len(header_bytes).to_bytes(8, "little") + header_bytes
    data += b"".join(value.tobytes() for value in values.values())
    path = folder / "run" / "checkpoints" / f"step-{step:08d}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "state.safetensors").write_bytes(data)
    manifest = {"step": step, "generation": generation, "extra": {"samples": step * BATCH}}
    manifest |= {"bytes": len(data), "checksum": zlib.crc32(data)}
    (path / "manifest.json").write_text(json.dumps(manifest))


def edit(path: Path, change: Callable[[list[Entry]], list[Entry]]) -> None:
    """Apply a change to the entries of a file."""
    _write(path, change([json.loads(line) for line in path.read_text().splitlines()]))


def _write(path: Path, lines: list[Entry]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _generation_entry(number: int, step: int) -> Entry:
    return {"kind": "generation", "generation": number, "world_size": 2, "step": step}


def _applied_entry(step: int, process: int) -> Entry:
    states = {"before": digest(step - 1), "after": digest(step)}
    return {"kind": "applied", "step": step, "process": process, **states}


def _etcd_entry(key: str, revision: int, value: Entry) -> Entry:
    return {"key": key, "revision": revision, "value": value}


def _commit_entry(revision: int, generation: int, step: int) -> Entry:
    value = {"agreed_generation": generation, "step": step, "generation": generation}
    return _etcd_entry("committed", revision, value)
