"""A slow, lossy wire in user space, for kernels without netem: frames wait, some never arrive.

Two interfaces, and a thread that carries Ethernet frames between them with packet sockets. The
kernel's own header (PACKET_VNET_HDR) goes along, so that large frames and checksums that hardware
would have filled in pass through as they are.
"""

import heapq
import random
import select
import socket
import threading
import time

SOL_PACKET = 263
PACKET_VNET_HDR = 15
OUTGOING = 4
EVERYTHING = 0x0003
LARGEST = 70_000


class Relay:
    """Carries frames both ways until it is closed. Times in seconds, `loss` as a share of 1."""

    def __init__(self, one: str, other: str, delay_s: tuple[float, float], loss: float) -> None:
        self.lost = 0
        self.carried = 0
        self._delay_s = delay_s
        self._loss = loss
        self._chance = random.Random(16)
        self._ends = (self._open(one), self._open(other))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @staticmethod
    def _open(interface: str) -> socket.socket:
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
        end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
        end.bind((interface, EVERYTHING))
        end.setblocking(False)
        return end

    def _run(self) -> None:
        there = {self._ends[0]: self._ends[1], self._ends[1]: self._ends[0]}
        waiting: list[tuple[float, int, socket.socket, bytes]] = []
        last_s = dict.fromkeys(self._ends, 0.0)
        count = 0
        while not self._stop.is_set():
            wait_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.1
            for end in select.select(self._ends, (), (), min(wait_s, 0.1))[0]:
                frame, address = end.recvfrom(LARGEST)
                if address[2] == OUTGOING:
                    continue
                if self._chance.random() < self._loss:
                    self.lost += 1
                    continue
                due_s = time.monotonic() + self._chance.uniform(*self._delay_s)
                # In order, as on most wires: what is late keeps back what follows.
                due_s = last_s[end] = max(due_s, last_s[end])
                count += 1
                heapq.heappush(waiting, (due_s, count, there[end], frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, target, frame = heapq.heappop(waiting)
                try:
                    target.send(frame)
                    self.carried += 1
                except OSError:  # its queue is full, or it is gone
                    self.lost += 1

    def close(self) -> int:
        """End it; return how many frames were lost."""
        self._stop.set()
        self._thread.join(5)
        for end in self._ends:
            end.close()
        return self.lost
