"""`everstep report --wandb`: rows of a run, and the output of the real client, offline and to a stand-in server."""

import importlib.util
import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from everstep.cli.report.wandb_export import TIME, export, rows
from everstep.errors import EverstepError
from tests.everstep.cli.recorded_run import RecordedRun
from tests.everstep.cli.report.wandb_server import ENTITY, PROJECT, RunStore, serve

HEADER_BYTES = 7  # header size of a file, and of each chunk of a record
BLOCK_BYTES = 32 * 1024


def test_rows_are_ordered_by_step_without_duplicates(drill_run: RecordedRun) -> None:
    values = list(rows(drill_run.run(), 0))

    assert [step for step, _ in values] == list(range(1, 301))
    assert values[-1][1]["evaluation/accuracy"] == 0.8912
    assert values[-1][1]["training/loss"] == pytest.approx(2.3 * 0.99**300)


def test_a_later_export_continues_after_the_exported_steps(drill_run: RecordedRun) -> None:
    values = list(rows(drill_run.run(), 298))

    assert [step for step, _ in values] == [298, 299, 300]


def test_the_last_step_of_an_unfinished_run_waits_for_its_evaluation(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form("gpu-0").train(2)
    first_steps = [step for step, _ in rows(recorded_run.run(), 0)]
    recorded_run.write("gpu-0", "evaluation", step=2, epoch=1, accuracy=0.5, loss=1.0)

    later_rows = dict(rows(recorded_run.train(1).run(), first_steps[-1] + 1))

    assert first_steps == [1]
    assert list(later_rows) == [2]
    assert later_rows[2]["evaluation/accuracy"] == 0.5


def test_rows_have_the_times_of_the_journal(recorded_run: RecordedRun) -> None:
    run = recorded_run.form("gpu-0").train(2).finish().run()

    assert [row[TIME] for _, row in rows(run, 0)] == [1_790_000_000.5, 1_790_000_001.0]


@pytest.fixture
def client_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder into which the client writes; it reads its settings from the environment."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    pytest.importorskip("wandb", reason="`make test-trackers` installs wandb")
    end_client_process()  # it reads the environment when it starts
    return tmp_path / "wandb"


def end_client_process() -> None:
    """End the process of the client, which may write the last rows after its run has finished."""
    import wandb

    wandb.teardown()


def records(folder: Path) -> Iterator[Any]:
    """Yield the messages of the only file of a run: a log in the format of LevelDB."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("offline-run-*/*.wandb")
    content, position, message = path.read_bytes(), HEADER_BYTES, b""
    while position < len(content):
        if BLOCK_BYTES - position % BLOCK_BYTES < HEADER_BYTES:  # the end of a block is padded
            position += BLOCK_BYTES - position % BLOCK_BYTES
        _, length, kind = struct.unpack("<IHB", content[position : position + HEADER_BYTES])
        message += content[position + HEADER_BYTES : position + HEADER_BYTES + length]
        position += HEADER_BYTES + length
        if kind in (1, 4):  # the whole message, or its last chunk
            yield wandb_internal_pb2.Record.FromString(message)
            message = b""


def history(all_records: Sequence[Any]) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a file, without the fields that the client adds."""
    steps = [
        (
            record.history.step.num,
            {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in record.history.item
            },
        )
        for record in all_records
        if record.WhichOneof("record_type") == "history"
    ]
    client_fields = ("_runtime", "_step")
    return [(n, {k: v for k, v in row.items() if k not in client_fields}) for n, row in steps]


@pytest.mark.filterwarnings("ignore")  # raised by the client's own imports
def test_the_client_writes_every_row_and_nothing_about_this_machine(
    client_folder: Path, drill_run: RecordedRun
) -> None:
    location = export("team/curves", drill_run.run())
    end_client_process()

    messages = list(records(client_folder))
    assert history(messages) == [(step, dict(row)) for step, row in rows(drill_run.run(), 0)]
    (run,) = [record.run for record in messages if record.WhichOneof("record_type") == "run"]
    assert (run.entity, run.project) == ("team", "curves")
    assert (run.run_id, run.run_group) == ("fashion-1790000000000", "fashion")
    assert not any(record.HasField("stats") for record in messages)
    assert Path(location).parent == client_folder
    assert not list(Path(location).glob("files/requirements.txt"))


@pytest.mark.usefixtures("client_folder")
@pytest.mark.filterwarnings("ignore")
def test_a_later_export_resumes_the_run_and_writes_each_step_once(
    recorded_run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore()
    with serve(store) as address:
        monkeypatch.setenv("WANDB_MODE", "online")
        monkeypatch.setenv("WANDB_BASE_URL", address)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        for run in (
            recorded_run.form("gpu-0").train(5).run(),
            recorded_run.train(5).finish().run(),
            recorded_run.run(),
        ):
            location = export(f"{ENTITY}/{PROJECT}", run)
            end_client_process()

    assert location == f"{address}/{ENTITY}/{PROJECT}/runs/{store.name}"
    assert [row["_step"] for row in store.rows] == list(range(1, 11))
    assert store.offsets[0] == 0
    assert 4 in store.offsets, "the second export continues after the four rows of the first"
    assert store.rows[-1]["evaluation/accuracy"] == 0.8912


@pytest.mark.usefixtures("client_folder")
@pytest.mark.filterwarnings("ignore")
def test_a_project_that_the_client_refuses_is_named(recorded_run: RecordedRun) -> None:
    run = recorded_run.form("gpu-0").train(1).run()

    with pytest.raises(EverstepError, match=r"--wandb team/a\?b: .*\nRun `wandb login`"):
        export("team/a?b", run)


def test_without_the_client_the_error_has_the_command_that_installs_it(
    recorded_run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(EverstepError, match=r"needs the package wandb.*\n.*make trackers"):
        export("curves", recorded_run.form("gpu-0").run())
