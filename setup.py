"""Build step that adds files from the repository's top folder to wheels, as data of the package everstep.

`everstep.resources` finds them there, and next to the package in a clone. All other metadata is in
pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DATA = ("Pulumi.yaml", "__main__.py", "manifests", "requirements", "stacks")


class BuildWithData(build_py):
    """Build command that also copies the data, except for an editable install."""

    def run(self) -> None:
        """Build the packages and their data."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "everstep" / "_data"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in DATA:
            copy = shutil.copytree if Path(name).is_dir() else shutil.copy
            copy(name, target / name)


setup(cmdclass={"build_py": BuildWithData})
