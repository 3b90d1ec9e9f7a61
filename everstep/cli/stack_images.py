"""The keys of a stack file that name Everstep's own images: which a stack uses, and the edits that write digests.

A stack file is edited as text, so that its comments and its order do not change.
"""

from collections.abc import Mapping, Sequence
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

    Args:
        stack_file: the stack file.
        references: image -> reference, such as `registry.example/trainer@sha256:...`.

    Raises:
        EverstepError: the file is not a stack configuration.
    """
    read_stack_file(stack_file)
    before = text = stack_file.read_text()
    changed = []
    for name, reference in references.items():
        section, *keys = KEYS[name].split(".")
        edited = set_value(text, ["config", PREFIX + section, *keys], reference)
        changed += [KEYS[name]] if edited != text else []
        text = edited
    if text != before:
        write_atomically(stack_file, text, stack_file.stat().st_mode & 0o777)
    return changed


def set_value(text: str, path: Sequence[str], value: str) -> str:
    """Return a YAML text with a plain value set; all other characters stay.

    Args:
        text: a YAML mapping.
        path: keys from the outermost on; missing ones are added.
        value: a text that YAML reads as itself without quotes.
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("the text is not a YAML mapping")
    for depth, key in enumerate(path):
        existing = next((value for name, value in node.value if name.value == key), None)
        if existing is None:
            return _inserted(text, node, path[depth:], value)
        if isinstance(existing, yaml.MappingNode) and existing.value and depth < len(path) - 1:
            node = existing
            continue
        return _replaced(text, node, existing, path[depth + 1 :], value)
    return text


def _inserted(text: str, node: yaml.MappingNode, path: Sequence[str], value: str) -> str:
    """Return the text with keys added before the first key of a mapping."""
    start = node.value[0][0].start_mark
    if node.flow_style:
        added = f"{_flow(path, value)}, "
    else:
        added = f"{_block(path, value, start.column)}\n{' ' * start.column}"
    return text[: start.index] + added + text[start.index :]


def _replaced(
    text: str, parent: yaml.MappingNode, node: yaml.Node, missing_keys: Sequence[str], value: str
) -> str:
    """Return the text with a scalar, or an empty section, replaced."""
    start, end = node.start_mark.index, node.end_mark.index
    if not missing_keys:
        new = value
    elif parent.flow_style or start != end:
        new = f"{{{_flow(missing_keys, value)}}}"
    else:
        column = parent.value[0][0].start_mark.column + 2
        new = f"\n{' ' * column}{_block(missing_keys, value, column)}"
    if start == end and not new.startswith("\n"):
        new = f" {new}"  # after the colon of an empty value
    return text[:start] + new + text[end:]


def _block(path: Sequence[str], value: str, column: int) -> str:
    lines = [f"{' ' * (column + 2 * depth)}{key}:" for depth, key in enumerate(path)]
    return f"{chr(10).join(lines).lstrip()} {value}"


def _flow(path: Sequence[str], value: str) -> str:
    return ": {".join(path) + f": {value}" + "}" * (len(path) - 1)
