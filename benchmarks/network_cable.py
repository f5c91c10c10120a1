"""A cable between two network interfaces that can lose and delay frames: two TAP devices and a thread between them."""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_LARGEST_FRAME = 65_536


class Cable:
    """Carries frames from each end to the other, in their order, until it is closed.

    Args:
        name: What the names of its ends begin with.

    Attributes:
        ends: The names of two interfaces, which may be moved to other namespaces and renamed.
        lost: The shares of frames that are lost from the first end to the second, and back.
        delay_seconds: How long each frame takes.
    """

    def __init__(self, name: str):
        self.ends = (f"{name}a", f"{name}b")
        self.lost = (0.0, 0.0)
        self.delay_seconds = 0.0
        self._files = [_tap(end) for end in self.ends]
        self._stop, self._stopped = os.pipe()
        self._random = random.Random(name)
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Removes both ends."""
        os.close(self._stopped)
        self._thread.join()
        for file in (*self._files, self._stop):
            os.close(file)

    def _carry(self) -> None:
        ready = select.poll()
        for file in (*self._files, self._stop):
            ready.register(file, select.POLLIN)
        waiting: list[tuple[float, int, int, bytes]] = []
        number = 0
        while True:
            pause = max(0.0, 1000 * (waiting[0][0] - time.monotonic())) if waiting else None
            found = [file for file, _ in ready.poll(pause)]
            if self._stop in found:
                return
            now = time.monotonic()
            for file in found:
                way = self._files.index(file)
                with contextlib.suppress(OSError):  # The interface is down.
                    frame = os.read(file, _LARGEST_FRAME)
                    if self._random.random() >= self.lost[way]:
                        number += 1
                        heapq.heappush(waiting, (now + self.delay_seconds, number, self._files[1 - way], frame))
            while waiting and waiting[0][0] <= time.monotonic():
                with contextlib.suppress(OSError):
                    os.write(waiting[0][2], waiting[0][3])
                heapq.heappop(waiting)


def _tap(name: str) -> int:
    """The file of a new TAP device, which lives as long as the file is open."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except OSError:
        os.close(file)
        raise
    return file
