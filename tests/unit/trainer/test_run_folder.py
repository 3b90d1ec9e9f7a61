import json

import pytest

from trainer.run_folder import note_samples, open_run
from trainer.settings import Settings


@pytest.fixture
def settings(tmp_path):
    chosen = Settings(model="resnet18", dataset="imagefolder", data=tmp_path, run=tmp_path / "run")
    open_run(chosen, 50)
    return chosen


def changes(settings):
    return json.loads((settings.run / "run.json").read_text()).get("data_changes")


def test_unchanged_data_are_not_noted(settings):
    note_samples(settings, 4, 50)

    assert changes(settings) is None


def test_other_data_are_noted_once_with_their_step(settings):
    note_samples(settings, 4, 30)
    note_samples(settings, 9, 30)

    assert changes(settings) == [{"step": 4, "samples": 30}]


def test_a_run_that_goes_back_before_a_change_notes_what_it_is_trained_on_there(settings):
    note_samples(settings, 4, 30)
    note_samples(settings, 2, 30)

    assert changes(settings)[-1] == {"step": 2, "samples": 30}
