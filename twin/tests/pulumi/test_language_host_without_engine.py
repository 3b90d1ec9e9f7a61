"""The language host without the engine."""

import subprocess
import sys
from unittest.mock import Mock

from cloudtwin.pulumi.language_host import LanguageHost
from google.protobuf.empty_pb2 import Empty
from grpc import ServicerContext


def test_a_program_that_starts_during_an_interrupt_is_ended() -> None:
    host = LanguageHost("", "1")
    host.Cancel(Empty(), Mock(spec=ServicerContext))
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    with host._registered(child):
        assert child.wait(timeout=30) < 0
