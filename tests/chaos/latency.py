"""Delay every packet that an interface sends: `python3 latency.py INTERFACE MILLISECONDS`.

tc's netem does this in the kernel, but not every kernel includes it. Here the kernel redirects the packets to a TAP
device; this process reads them there and sends them on the interface after the delay.
It uses the standard library only. It prints `ready` when the redirection is active, and removes it at SIGTERM.
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
TAP_NAME = b"delay"
MAX_FRAME_BYTES = 65_600  # the largest IP packet, 64 KiB, and its header
MAX_QUEUED_FRAMES = 4000  # more are dropped, as in a full queue of an interface


def main() -> None:
    """Delay packets until SIGTERM."""
    interface, seconds = sys.argv[1], int(sys.argv[2]) / 1000
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", TAP_NAME, IFF_TAP | IFF_NO_PI))
    output = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    # Otherwise the filter would redirect the sent packets to the TAP device again.
    output.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    output.bind((interface, 0))
    _run(f"ip link set {TAP_NAME.decode()} up")
    _run(f"tc qdisc add dev {interface} clsact")
    _run(
        f"tc filter add dev {interface} egress protocol all u32 match u32 0 0 "
        f"action mirred egress redirect dev {TAP_NAME.decode()}"
    )
    signal.signal(signal.SIGTERM, lambda *_: _end(interface))
    print("ready", flush=True)
    _relay(tap, output, seconds)


def _relay(tap: int, output: socket.socket, seconds: float) -> None:
    queue: deque[tuple[float, bytes]] = deque()
    while True:
        wait_seconds = max(0.0, queue[0][0] - time.monotonic()) if queue else None
        if select.select([tap], [], [], wait_seconds)[0]:
            frame = os.read(tap, MAX_FRAME_BYTES)
            if len(queue) < MAX_QUEUED_FRAMES:
                queue.append((time.monotonic() + seconds, frame))
        while queue and queue[0][0] <= time.monotonic():
            try:
                output.send(queue.popleft()[1])
            except OSError:  # the link is full or down: the packet is lost
                continue


def _end(interface: str) -> None:
    _run(f"tc qdisc del dev {interface} clsact")
    os._exit(0)


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main()
