"""How the command ends: every way out has one exit code, one voice, and no traceback unasked.

0    done
1    something the user can put right, or a job that failed: `error:` and the remedy
2    the command line itself was wrong (typer says so)
70   a fault of Everstep's own: one line, and a crash log to send along
130  Ctrl-C
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

from rich.markup import escape
from rich.text import Text

from everstep.cli.console import people
from everstep.errors import EverstepError

FAILED = 1
BUG = 70  # EX_SOFTWARE of sysexits.h
REMEDIES = {
    errno.ENOSPC: "Free some space there and run the same command again: it goes on where it was.",
    errno.EDQUOT: "Your quota there is used up: free some space and run the same command again.",
    errno.EACCES: "You may not do that: run it as root, or set EVERSTEP_STATE to a folder of yours.",
    errno.EPERM: "You may not do that: run it as root, or set EVERSTEP_STATE to a folder of yours.",
    errno.EROFS: "That is mounted read-only: set EVERSTEP_STATE to a folder that can be written.",
}
"""What the operating system refuses for reasons that only the user can put right."""

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def guarded(action: Callable[[], None], *, debug: bool) -> int:
    """Run an action and turn whatever escapes it into an exit code and words for a person."""
    try:
        action()
    except EverstepError as error:
        if debug:
            people.print_exception()
        show_error(error)
        return FAILED
    except KeyboardInterrupt:
        people.print(Text("interrupted", style="yellow"))
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # or Python complains at exit
        return 0
    except OSError as error:
        if debug:
            people.print_exception()
        if error.errno not in REMEDIES:
            show_bug(error)
            return BUG
        show_error(
            EverstepError(f"{error.filename or ''}: {error.strerror}", REMEDIES[error.errno])
        )
        return FAILED
    except Exception as error:  # the outermost frame: here a bug is turned into words
        if debug:
            people.print_exception()
        show_bug(error)
        return BUG
    return 0


def show_error(error: EverstepError) -> None:
    """Print what was wrong, and the remedy indented under it."""
    people.print(f"[bold red]error:[/] {escape(error.what)}")
    for line in error.remedy.splitlines():
        people.print(Text(f"  {line}"))


def show_bug(error: Exception) -> None:
    """Say that this is a fault of ours, and where its full story is."""
    log = write_crash_log(error)
    people.print(
        f"[bold red]bug:[/] {escape(type(error).__name__)}: {escape(str(error))}\n"
        f"  This is a fault of Everstep's own; nothing you did should end like this.\n"
        f"  The full story is in {log}; `everstep --debug ...` prints it."
    )


def write_crash_log(error: Exception) -> Path:
    """Keep the traceback in a file of its own; only the command's name is kept of the arguments."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    handle, name = tempfile.mkstemp(prefix=f"everstep-crash-{stamp}-", suffix=".log")
    with os.fdopen(handle, "w") as log:
        log.write(f"everstep {' '.join(sys.argv[1:2])}\n{platform.platform()}\n")
        log.write(f"Python {platform.python_version()}\n\n")
        log.writelines(traceback.format_exception(error))
    return Path(name)
