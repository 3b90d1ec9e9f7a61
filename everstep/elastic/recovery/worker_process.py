"""The process of a worker: its connection to the agent that started it, and its end.

The agent's processes import this module, too; it needs no torch.
"""

import contextlib
import os
from typing import NoReturn

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.accounting.journal import flush_all
from everstep.elastic.transport import channel

RESTART = 75
"""Exit code of a worker that requests a restart in the next generation (EX_TEMPFAIL)."""

FAILED = 76
"""Exit code of a worker whose failure a restart would repeat; the agent has the reason."""

LAST_LINES_SECONDS = 0.5
"""Longest time to write the last lines of the journal before a process ends itself: the journal's disk may hang."""


def end_process(reason: str, code: int = RESTART, *, starts_again: bool = True) -> NoReturn:
    """Exit immediately, even inside a collective that waits for a dead peer.

    Args:
        reason: reason, for a line on stderr.
        code: exit code.
        starts_again: whether a worker that ends with `RESTART` can start again: not after the end of its agent.
    """
    purpose = ", to start again" if starts_again and code == RESTART else ""
    with contextlib.suppress(OSError):  # not the logging module: the main thread may hold its lock
        os.write(2, f"worker {os.getpid()} ends{purpose}: {reason}\n".encode())
    flush_all(LAST_LINES_SECONDS)
    os._exit(code)


def connect_to_agent() -> channel.MessageStream | None:
    """Connect to the agent that started this process; return None if no agent did.

    If the agent has died in the meantime, end this process, which would otherwise be a second writer or wait for peers
    that never connect.
    """
    path = os.environ.get(AGENT_VARIABLE)
    if not path:
        return None
    try:
        return channel.connect(path)
    except OSError as error:
        end_process(f"the node's agent is gone ({error})", starts_again=False)
