"""The folder of a run, which an earlier run may have used."""

import resource
import shutil
from pathlib import Path

import pytest

from everstep.elastic.training.run_record import RUN_FILE
from everstep.errors import EverstepError
from trainer.run_folder import open_run, write_result_when_possible
from trainer.settings import RESULT_FILE, Settings, parse, result


def settings_of(run: Path) -> Settings:
    arguments = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", "/data"]
    return parse([*arguments, "--run", str(run)])


def test_an_earlier_run_is_moved_even_if_a_user_has_removed_one_before_it(tmp_path: Path) -> None:
    (tmp_path / "previous-2").mkdir()
    (tmp_path / "journal").mkdir()
    for name in ("first", "second"):
        (tmp_path / RESULT_FILE).write_text(f'{{"accuracy": "{name}"}}')
        assert open_run(settings_of(tmp_path)) is None

    moved = {path.parent.name: path.read_text() for path in tmp_path.glob(f"*/{RESULT_FILE}")}
    assert moved == {
        "previous-1": '{"accuracy": "first"}',
        "previous-3": '{"accuracy": "second"}',
    }


def test_an_earlier_run_without_a_journal_is_moved(tmp_path: Path) -> None:
    (tmp_path / RESULT_FILE).write_text('{"accuracy": 0.5}')

    assert open_run(settings_of(tmp_path)) is None

    assert [path.name for path in tmp_path.iterdir()] == ["previous-1"]


@pytest.mark.parametrize("moves", range(3))
def test_the_next_start_continues_an_interrupted_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / RUN_FILE).write_text('{"fingerprint": {"fresh": ""}}')
    (tmp_path / RESULT_FILE).write_text('{"accuracy": 0.5}')
    move, moved = shutil.move, list[str]()

    def move_some(source: str, target: Path) -> None:
        if len(moved) == moves:
            raise OSError("the machine vanished")
        moved.append(move(source, str(target)))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "move", move_some)
        with pytest.raises(EverstepError, match="the machine vanished"):
            open_run(settings_of(tmp_path))

    assert open_run(settings_of(tmp_path)) is None

    assert {path.name for path in tmp_path.iterdir()} == {"previous-1", "previous-2"}, (
        "a new run would find the checkpoints or the settings of the earlier one"
    )


def test_the_error_for_a_run_folder_that_cannot_be_created_has_a_fix(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file at the folder's path")

    with pytest.raises(EverstepError, match="cannot be written") as error:
        open_run(settings_of(tmp_path / "run"))

    assert "Free space" in error.value.fix


def test_a_result_is_written_as_soon_as_disk_space_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(tmp_path)
    (tmp_path / RUN_FILE).write_text('{"began": 0}')
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))  # the kernel lets no file grow beyond it
    monkeypatch.setattr(  # space is freed while it waits
        "trainer.run_folder.time.sleep",
        lambda _: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard)),
    )
    try:
        write_result_when_possible(settings, 1, 0.5, "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert "its result cannot be written" in caplog.text
    assert result(settings) is not None
