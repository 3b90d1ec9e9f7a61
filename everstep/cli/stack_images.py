"""The keys of a stack file that name Everstep's own images: their use by a stack, and the edits that write digests.

A stack file is edited as text, so that its comments and its order do not change.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from everstep.cli.engine.stack_file import PREFIX, read_stack_file
from everstep.files import write_atomically

if TYPE_CHECKING:
    from components.config import StackConfig

KEYS: Mapping[str, str] = {
    "trainer": "job.image",
    "controller": "controller.image",
    "spot": "platform.spot.image",
    "etcd-rejoin": "etcd.rejoinImage",
}
"""Image -> its key in a stack file, without `everstep:`."""


def images_of_stack(config: "StackConfig") -> list[str]:
    """Return the names of Everstep's own images that pods of the stack use."""
    is_used = {
        "trainer": True,
        "controller": config.controller.kind == "maintained",
        "spot": config.platform.spot.enabled,
        "etcd-rejoin": config.etcd.rejoins or config.etcd.has_users,
    }
    return [name for name in KEYS if is_used[name]]


def write_images(stack_file: Path, references: Mapping[str, str]) -> list[str]:
    """Write images into a stack file; return the keys whose value changed.

    Concurrent calls wait for each other, so that none overwrites the images of another one.

    Args:
        stack_file: the stack file.
        references: image -> reference, such as `registry.example/trainer@sha256:...`.

    Raises:
        EverstepError: the file is not a stack configuration.
    """
    read_stack_file(stack_file)
    with _locked_folder(stack_file.parent):
        old_text = text = stack_file.read_text()
        changed_keys = []
        for name, reference in references.items():
            section, *keys = KEYS[name].split(".")
            new_text = set_value(text, ["config", PREFIX + section, *keys], reference)
            changed_keys += [KEYS[name]] if new_text != text else []
            text = new_text
        if text != old_text:
            write_atomically(stack_file, text, stack_file.stat().st_mode & 0o777)
    return changed_keys


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder instead of a file in it: a write replaces the file, which would make a lock on it useless."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def set_value(text: str, path: Sequence[str], value: str) -> str:
    """Return a YAML text with a plain value set; all other characters stay the same.

    Args:
        text: a YAML mapping.
        path: keys, outermost first; missing keys are added.
        value: a string that YAML reads as itself without quotes.

    Raises:
        ValueError: the text is not a YAML mapping.
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("the text is not a YAML mapping")
    for depth, key in enumerate(path):
        existing_node = next((value for name, value in node.value if name.value == key), None)
        if existing_node is None:
            return _insert(text, node, path[depth:], value)
        if (
            isinstance(existing_node, yaml.MappingNode)
            and existing_node.value
            and depth < len(path) - 1
        ):
            node = existing_node
            continue
        return _replace(text, node, existing_node, path[depth + 1 :], value)
    return text


def _insert(text: str, node: yaml.MappingNode, path: Sequence[str], value: str) -> str:
    """Return the text with keys added before the first key of a mapping."""
    if not node.value:  # {}
        return (
            f"{text[: node.start_mark.index]}{{{_flow(path, value)}}}{text[node.end_mark.index :]}"
        )
    start = node.value[0][0].start_mark
    if node.flow_style:
        insertion = f"{_flow(path, value)}, "
    else:
        insertion = f"{_block(path, value, start.column)}\n{' ' * start.column}"
    return text[: start.index] + insertion + text[start.index :]


def _replace(
    text: str, parent: yaml.MappingNode, node: yaml.Node, missing_keys: Sequence[str], value: str
) -> str:
    """Return the text with a scalar, or an empty section, replaced."""
    start, end = node.start_mark.index, node.end_mark.index
    if not missing_keys:
        replacement = value
    elif parent.flow_style or start != end:
        replacement = f"{{{_flow(missing_keys, value)}}}"
    else:
        column = parent.value[0][0].start_mark.column + 2
        replacement = f"\n{' ' * column}{_block(missing_keys, value, column)}"
    if start == end and not replacement.startswith("\n"):
        replacement = f" {replacement}"  # after the colon of an empty value
    return text[:start] + replacement + text[end:]


def _block(path: Sequence[str], value: str, column: int) -> str:
    lines = [f"{' ' * (column + 2 * depth)}{key}:" for depth, key in enumerate(path)]
    return f"{chr(10).join(lines).lstrip()} {value}"


def _flow(path: Sequence[str], value: str) -> str:
    return ": {".join(path) + f": {value}" + "}" * (len(path) - 1)
