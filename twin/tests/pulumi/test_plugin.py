"""The end of a plugin process."""

import subprocess
import sys

SIGNAL_TO_A_THREAD = """
import os, select, signal, threading
from cloudtwin.pulumi import plugin

ended = plugin.pipe_of_signals(signal.SIGINT)
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # so the kernel delivers it to the other thread
os.kill(os.getpid(), signal.SIGINT)
print(bool(select.select([ended], [], [], 50)[0]))
"""


def test_a_signal_that_another_thread_receives_ends_the_wait_of_the_main_thread() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SIGNAL_TO_A_THREAD],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert result.stdout == "True\n", result.stderr
