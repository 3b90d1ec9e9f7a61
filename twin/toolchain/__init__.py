"""The programs and Debian packages the twin needs: found, or else built or installed once."""

from twin.toolchain.packages import ensure_packages
from twin.toolchain.tools import ensure_tools

__all__ = ["ensure_packages", "ensure_tools"]
