import pytest

from everstep.elastic.bounds import read_bounds


@pytest.mark.parametrize(("said", "bounds"), [("1:3", (1, 3)), ("2:2\n", (2, 2)), ("4", (4, 4))])
def test_the_file_says_how_few_and_how_many(tmp_path, said, bounds):
    (tmp_path / "nnodes").write_text(said)

    assert read_bounds(str(tmp_path / "nnodes")) == bounds


@pytest.mark.parametrize("said", ["", "3:1", "0:2", "one:two", "::", "-1:2"])
def test_what_makes_no_sense_changes_nothing(tmp_path, said):
    (tmp_path / "nnodes").write_text(said)

    assert read_bounds(str(tmp_path / "nnodes")) is None


def test_without_a_file_the_bounds_stay(tmp_path):
    assert read_bounds(str(tmp_path / "nowhere")) is None
