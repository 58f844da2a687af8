"""What this machine's operations take beside what the simulator charges (`ottla/sim/costs.py`).

PYTHONPATH=src python benchmarks/simulator_costs.py
"""

import socket
import tempfile
import time

from ottla.log.files import OsFiles
from ottla.sim.costs import MEASURED


def each(times, call):
    """Return the least mean of three tries, in seconds."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(times):
            call()
        found.append((time.perf_counter() - began) / times)
    return min(found)


def of_files(folder):
    files = OsFiles()
    file = files.open(f"{folder}/costs", create=True)
    big = bytes(1 << 20)

    def sync():
        file.pwrite([b"x" * 4096], 0)
        file.fsync()

    def come_and_go():
        files.open(f"{folder}/other", create=True).close()
        files.remove(f"{folder}/other")

    found = {
        "file_s": each(2000, lambda: file.pwrite([b"x" * 100], 0)),
        "write_byte_s": each(20, lambda: file.pwrite([big], 0)) / len(big),
        "read_byte_s": each(20, lambda: file.pread(1 << 20, 0)) / len(big),
        "fsync_s": each(20, sync),
        "folder_s": each(500, come_and_go) / 2,
    }
    file.close()
    return found


def of_network():
    here, there = socket.socketpair()
    small, big = bytes(100), bytes(100_000)

    def pass_on(data):
        here.sendall(data)
        left = len(data)
        while left:
            left -= len(there.recv(left))

    once, much = each(2000, lambda: pass_on(small)), each(200, lambda: pass_on(big))
    here.close()
    there.close()
    return {"net_s": once / 2, "net_byte_s": (much - once) / 2 / len(big)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for name, seconds in {**of_files(folder), **of_network()}.items():
            table = getattr(MEASURED, name)
            print(f"{name:14} here {seconds * 1e6:10.5f} us  table {table * 1e6:.5f}")
