"""The folder of a run, which an earlier run may have used."""

from pathlib import Path

from trainer.run_folder import open_run
from trainer.settings import RESULT_FILE, parse


def test_an_earlier_run_is_moved_although_a_user_has_removed_one_before_it(tmp_path: Path) -> None:
    arguments = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", "/data"]
    (tmp_path / "previous-2").mkdir()
    (tmp_path / "journal").mkdir()
    for name in ("first", "second"):
        (tmp_path / RESULT_FILE).write_text(f'{{"accuracy": "{name}"}}')
        assert open_run(parse([*arguments, "--run", str(tmp_path)])) is None

    moved = {path.parent.name: path.read_text() for path in tmp_path.glob(f"*/{RESULT_FILE}")}
    assert moved == {
        "previous-1": '{"accuracy": "first"}',
        "previous-3": '{"accuracy": "second"}',
    }
