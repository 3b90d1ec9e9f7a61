"""Text of a screen, as a terminal shows it."""

import io

from rich.console import Console, RenderableType


def terminal_text(screen: RenderableType, width: int = 100) -> str:
    """Return the characters of a screen on a terminal of `width` columns without color."""
    output = io.StringIO()
    Console(file=output, width=width, no_color=True).print(screen)
    return output.getvalue()
