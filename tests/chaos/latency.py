"""Delay every packet that an interface sends: `python3 latency.py INTERFACE MILLISECONDS`.

tc's netem does it in the kernel, but not every kernel has it. Here the kernel redirects the packets to a TAP device;
this process reads them there and sends them on the interface when their time has come.
Standard library only. It prints a line when the redirection works, and removes it at SIGTERM.
"""

import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20  # linux/if_packet.h
TAP = b"delay"
MAX_FRAME = 65_600
MAX_WAITING = 4000  # frames; more are dropped, as in a full queue


def main() -> None:
    """Delay until SIGTERM."""
    interface, seconds = sys.argv[1], int(sys.argv[2]) / 1000
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", TAP, IFF_TAP | IFF_NO_PI))
    output = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    output.setsockopt(
        SOL_PACKET, PACKET_QDISC_BYPASS, 1
    )  # otherwise the redirection would delay it again
    output.bind((interface, 0))
    _run(f"ip link set {TAP.decode()} up")
    _run(f"tc qdisc add dev {interface} clsact")
    _run(
        f"tc filter add dev {interface} egress protocol all u32 match u32 0 0 "
        f"action mirred egress redirect dev {TAP.decode()}"
    )
    signal.signal(signal.SIGTERM, lambda *_: _end(interface))
    print("ready", flush=True)
    _relay(tap, output, seconds)


def _relay(tap: int, output: socket.socket, seconds: float) -> None:
    waiting: deque[tuple[float, bytes]] = deque()
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if select.select([tap], [], [], wait)[0]:
            frame = os.read(tap, MAX_FRAME)
            if len(waiting) < MAX_WAITING:
                waiting.append((time.monotonic() + seconds, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            try:
                output.send(waiting.popleft()[1])
            except OSError:  # the link is full or down: the packet is lost
                continue


def _end(interface: str) -> None:
    _run(f"tc qdisc del dev {interface} clsact")
    os._exit(0)


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main()
