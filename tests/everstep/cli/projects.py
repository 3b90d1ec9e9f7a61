"""Temporary projects with given stack files, and the stack files of the repository."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[3]


def enter_project(folder: Path, monkeypatch: pytest.MonkeyPatch, stacks: Mapping[str, str]) -> None:
    """Write a project with these stack files, by name, to a folder, and make it the current folder."""
    monkeypatch.setattr(sys, "path", sys.path[:])  # each command adds its project
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: everstep\n")
    for name, text in stacks.items():
        (folder / "stacks" / f"Pulumi.{name}.yaml").write_text(text)
    monkeypatch.chdir(folder)


def shipped_stack(name: str) -> dict[str, Any]:
    """Return the content of a stack file of the repository."""
    content: dict[str, Any] = yaml.safe_load(
        (REPOSITORY / f"stacks/Pulumi.{name}.yaml").read_text()
    )
    return content
