"""Files that a worker writes during training."""

import resource
from pathlib import Path

from everstep.elastic.accounting.journal import Journal
from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.training.checkpoints import LEDGER_FILE, note_commit

COMMITS = 2000
OPEN_FILES = 256


def test_commits_do_not_use_up_the_file_descriptors(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal" / "w0.jsonl")
    manifest = Manifest(1, 1, {}, {"samples": 4, "digest": "00"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + OPEN_FILES, hard))
    try:
        for _ in range(COMMITS):
            note_commit(tmp_path, journal, manifest, 0.1, 100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    journal.close()

    assert len((tmp_path / LEDGER_FILE).read_text().splitlines()) == COMMITS
