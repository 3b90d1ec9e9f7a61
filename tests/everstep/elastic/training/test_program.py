"""The version of a program."""

import shutil
from pathlib import Path

from everstep.elastic.training import program


def test_a_digest_depends_on_the_content_and_the_names_of_the_sources(tmp_path: Path) -> None:
    sources = tmp_path / "program"
    sources.mkdir()
    (sources / "a.py").write_text("x = 1\n")
    first_digest = program.digest(sources)

    (sources / "a.py").write_text("x = 2\n")
    second_digest = program.digest(sources)
    (sources / "a.py").rename(sources / "b.py")

    assert len({first_digest, second_digest, program.digest(sources)}) == 3


def test_a_digest_does_not_depend_on_the_location_of_the_sources(tmp_path: Path) -> None:
    (tmp_path / "program" / "package").mkdir(parents=True)
    (tmp_path / "program" / "package" / "a.py").write_text("x = 1\n")
    shutil.copytree(tmp_path / "program", tmp_path / "image" / "program")

    assert program.digest(tmp_path / "program") == program.digest(tmp_path / "image" / "program")
