"""Exit codes of commands, and their error messages, without a traceback unless requested.

0    done
1    an error that the user can fix, or a failed job: `error:` and the fix; a failed check of `doctor` or a failed
     preview, whose own output has the message; a closed pipe, without a message
2    an invalid command line, reported by typer
70   a bug in Everstep: `bug:`, and a crash log to attach to the bug report
129  SIGHUP: the terminal was closed
130  Ctrl-C
143  SIGTERM
"""

import errno
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cloudtwin.facade import TwinError
from rich.markup import escape
from rich.text import Text

from everstep.cli.console import messages
from everstep.errors import EverstepError

FAILED = 1
BUG = 70  # EX_SOFTWARE of sysexits.h
STATE_FIX = "If it is Everstep's state, set EVERSTEP_STATE to a new folder of your own."
CGROUP_FOLDER = "/sys/fs/cgroup"
CGROUP_FIX = (
    "In a container, start it with --privileged: otherwise the control groups are read-only."
)
FIXES = {
    errno.ENOSPC: "Free some disk space and run the same command again: it continues where it stopped.",
    errno.EDQUOT: "Delete some of your files, or raise your quota, and run the same command again.",
    errno.EACCES: f"Allow this user to access it, or run it as root. {STATE_FIX}",
    errno.EPERM: f"Allow this user to access it, or run it as root. {STATE_FIX}",
    errno.EROFS: f"Choose a path on a writable disk. {STATE_FIX}",
    errno.ENOTDIR: f"A part of the path is a file: choose another path. {STATE_FIX}",
    errno.EEXIST: f"A file, or a link to a missing folder, has this path: choose another path. {STATE_FIX}",
    errno.ELOOP: f"Links on the path lead to each other: choose another path. {STATE_FIX}",
    errno.ENAMETOOLONG: f"Choose a shorter path. {STATE_FIX}",
    errno.EISDIR: f"A folder has the path of a file: remove it, or choose another path. {STATE_FIX}",
    errno.EIO: "The disk or its connection fails: check it, and run the same command again.",
    errno.ESTALE: "The file server has replaced the file: mount the file system again, and run the same command.",
}
"""Fixes for errors of the operating system that only the user can correct."""

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def run_guarded(action: Callable[[], None], *, debug: bool) -> int:
    """Run an action, print its error if there is one, and return the exit code."""
    try:
        action()
    except (EverstepError, TwinError) as error:
        if debug:
            messages.print_exception()
        show_error(error)
        return FAILED
    except KeyboardInterrupt:
        messages.print(Text("interrupted", style="yellow"))
        return INTERRUPTED
    except OSError as error:
        if debug:
            messages.print_exception()
        if error.errno not in FIXES:
            show_bug(error)
            return BUG
        location = f"{error.filename}: " if error.filename else ""  # a full disk names no file
        show_error(EverstepError(f"{location}{error.strerror}", _fix(error)))
        return FAILED
    except Exception as error:  # the outermost frame: any other error is a bug
        if debug:
            messages.print_exception()
        show_bug(error)
        return BUG
    return 0


def _fix(error: OSError) -> str:
    """Return the fix for an error that only the user can correct."""
    if str(error.filename).startswith(f"{CGROUP_FOLDER}/"):
        return CGROUP_FIX
    return FIXES[error.errno or 0]


def show_error(error: EverstepError | TwinError) -> None:
    """Print the problem, and the fix indented below it."""
    messages.print(f"[bold red]error:[/] {escape(error.problem)}")
    for line in error.fix.splitlines():
        messages.print(Text(f"  {line}"))


def show_bug(error: Exception) -> None:
    """Print that this is a bug in Everstep, and where the crash log is if it could be written."""
    try:
        location = (
            f"The traceback is in {write_crash_log(error)}; `everstep --debug ...` prints it."
        )
    except OSError:  # the disk is full or read-only
        location = "`everstep --debug ...` prints the traceback."
    messages.print(
        f"[bold red]bug:[/] {escape(type(error).__name__)}: {escape(str(error))}\n"
        f"  This is a bug in Everstep, not an error in your input; please report it.\n"
        f"  {location}"
    )


def write_crash_log(error: Exception) -> Path:
    """Write the traceback to a file; of the arguments, the file contains only the first one, such as `up`."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    descriptor, name = tempfile.mkstemp(prefix=f"everstep-crash-{stamp}-", suffix=".log")
    with os.fdopen(descriptor, "w") as log:
        log.write(f"everstep {' '.join(sys.argv[1:2])}\n{platform.platform()}\n")
        log.write(f"Python {platform.python_version()}\n\n")
        log.writelines(traceback.format_exception(error))
    return Path(name)
