"""Errors that a user can act on, made from failed Pulumi commands."""

import re
from pathlib import Path

from everstep.cli.engine.events import EventLog
from everstep.cli.engine.image_check import NOT_PULLED
from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError

_NOT_PULLED = re.compile("|".join(sorted(NOT_PULLED)))
_EXISTS = re.compile(r"already ?exists", re.IGNORECASE)  # also EntityAlreadyExists and the like
# The messages of EKS for a creation and for an update, and the one of the twin.
_SIZES = re.compile(
    r"(minimum capacity|maximum capacity|minSize|maxSize).*desired ?Size|desired ?Size.*maxSize",
    re.IGNORECASE,
)
_IMAGE = re.compile(r"""image \\?"([^"\\]+)\\?\"""")


def engine_failure(
    verb: str, workspace: Workspace, events: EventLog, output: Path
) -> EverstepError:
    """Return the error of a failed Pulumi command, with all diagnostics of the engine."""
    details = "\n".join(events.errors) or output.read_text(errors="replace").strip()
    images = images_not_pulled(details)
    if images:
        details += (
            f"\n\nNo node can pull the image {', '.join(images)}. Correct its name in "
            f"{workspace.stack_file}, or push it to a registry from which the nodes can pull it."
        )
    if _EXISTS.search(details):
        details += (
            "\n\nAn earlier update may have been killed before it recorded what it created. docs/operations.md, "
            "'An update that was killed', has the commands that import it."
        )
    if _SIZES.search(details):
        details += (
            "\n\nA node group cannot have fewer nodes than its new minimum or more than its new maximum, and under "
            "autoscaling an update sends the number in Pulumi's state. docs/configuration.md, 'Sizes under "
            "autoscaling', has the commands that change it."
        )
    return EverstepError(
        f"`pulumi {verb}` of stack {workspace.stack} failed",
        f"{details}\n\nThe complete output is in {output}. Resources created so far are kept: fix the "
        f"cause and run the same command again.",
    )


def images_not_pulled(text: str) -> list[str]:
    """Return the images that pods cannot pull, as the kubelet names them in the engine's diagnostics."""
    lines = [line for line in text.splitlines() if _NOT_PULLED.search(line)]
    images = [image for line in lines for image in _IMAGE.findall(line)]
    return list(dict.fromkeys(images))
