"""The wire between hosts that are far apart: forwards IP packets between TUN devices, each after a delay. Needs root.

    unshare -n python -m benchmarks.far_router DELAY_MS PID...

Makes one TUN device for each process and moves it into that process's network namespace, as `far0` with the address
10.77.0.N, N counted from 1; says `ready` when all are up. No packet leaves these namespaces. Where the kernel has netem, that
delays the packets instead (on the way out of each device), and this process only forwards.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import selectors
import struct
import subprocess
import sys
import time

NETWORK = "10.77.0."
DEVICE = "far0"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_LARGEST_PACKET = 65_536
_DESTINATION = slice(16, 20)
_IPV4 = 4


def address(number: int) -> str:
    return f"{NETWORK}{number}"


def attach(pid: int, number: int) -> int:
    """The device's file; what is read from it the host has sent, what is written to it the host receives."""
    name = f"far-{number}"
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    _run("ip", "link", "set", name, "netns", str(pid))
    inside = ("nsenter", "-t", str(pid), "-n", "ip")
    _run(*inside, "link", "set", name, "name", DEVICE)
    _run(*inside, "addr", "add", f"{address(number)}/24", "dev", DEVICE)
    for up in (DEVICE, "lo"):
        _run(*inside, "link", "set", up, "up")
    return device


def netem(pid: int, delay_ms: float) -> bool:
    """Whether the kernel delays by itself now."""
    command = ("nsenter", "-t", str(pid), "-n", "tc", "qdisc", "add", "dev", DEVICE, "root", "netem", "delay", f"{delay_ms}ms")
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def forward(devices: dict[bytes, int], delay_s: float) -> None:
    """Until killed."""
    selector = selectors.DefaultSelector()
    for device in devices.values():
        selector.register(device, selectors.EVENT_READ)
    waiting: list[tuple[float, int, int, bytes]] = []
    count = 0
    while True:
        timeout = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
        for key, _ in selector.select(timeout):
            for packet in _packets(key.fd):
                to = devices.get(packet[_DESTINATION])
                if to is not None and packet[0] >> 4 == _IPV4:
                    count += 1
                    heapq.heappush(waiting, (time.monotonic() + delay_s, count, to, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, to, packet = heapq.heappop(waiting)
            _write(to, packet)


def _packets(device: int) -> list[bytes]:
    packets: list[bytes] = []
    try:
        while True:
            packets.append(os.read(device, _LARGEST_PACKET))
    except BlockingIOError:
        return packets


def _write(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except OSError:
        return  # its queue is full: a packet is lost, as on any line


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    delay_ms, pids = float(sys.argv[1]), [int(pid) for pid in sys.argv[2:]]
    devices = {bytes(map(int, address(number).split("."))): attach(pid, number) for number, pid in enumerate(pids, 1)}
    by_kernel = all(netem(pid, delay_ms) for pid in pids)
    print("ready by netem" if by_kernel else "ready by a delay queue", flush=True)
    forward(devices, 0.0 if by_kernel else delay_ms / 1e3)


if __name__ == "__main__":
    main()
