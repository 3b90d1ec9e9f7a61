"""Files that a worker writes during training."""

import resource
from pathlib import Path

from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.training.run_storage import LEDGER_FILE, FolderStorage

COMMITS = 2000
OPEN_FILES = 256


def test_commits_do_not_use_up_the_file_descriptors(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    manifest = Manifest(1, 1, {}, {"samples": 4, "digest": "00"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors + OPEN_FILES, hard))
    try:
        for _ in range(COMMITS):
            storage.note_commit(manifest)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert len((tmp_path / LEDGER_FILE).read_text().splitlines()) == COMMITS
