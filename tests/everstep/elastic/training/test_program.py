"""The version of a program."""

from pathlib import Path

from everstep.elastic.training import program


def test_a_program_version_changes_with_any_line_of_its_sources(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    first_digest = program.digest(tmp_path)
    assert program.digest(tmp_path) == first_digest

    (tmp_path / "a.py").write_text("x = 2\n")
    second_digest = program.digest(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")

    assert len({first_digest, second_digest, program.digest(tmp_path)}) == 3
