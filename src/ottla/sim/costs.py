"""What things cost: how much of a node's time its callbacks take, by what they do.

Invariants: `FREE` costs nothing, so that time stands still within callbacks (unit tests); a cost is
a number of the table, never a measurement of the run, so that a run stays a function of its seed.
Pure work without a port (batches, records, codecs) is charged where its functions are called, while
`charged` is in force.
"""

import contextlib
import math
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ottla.wire import batch_header, compression, record_check, records


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a node's time. Callbacks cost `callback_s` and what they do besides."""

    callback_s: float = 0.0
    net_s: float = 0.0
    """reading from a connection or writing to it, once"""
    net_byte_s: float = 0.0
    znode_byte_s: float = 0.0
    """a byte to or from ZooKeeper: requests and responses, one znode each, are made of small
    parts"""
    file_s: float = 0.0
    """an operation on an open file"""
    read_byte_s: float = 0.0
    read_most_s: float = math.inf
    """What the bytes of one read cost at most."""
    write_byte_s: float = 0.0
    folder_s: float = 0.0
    """opening, listing, renaming, removing"""
    unlink_byte_s: float = 0.0
    fsync_s: float = 0.0
    seek_s: float = 0.0
    """reading what is not in memory"""
    batch_s: float = 0.0
    """looking at the header of a batch"""
    crc_byte_s: float = 0.0
    record_s: float = 0.0
    """reading a record into an object"""
    checked_record_s: float = 0.0
    """checking a record of a produced batch"""
    inflated_byte_s: float = 0.0

    def slower(self, factor: float) -> "Costs":
        """Return the same on a machine so much slower."""
        return replace(
            self, **{name: factor * getattr(self, name) for name in self.__dataclass_fields__}
        )


FREE = Costs()

# `python -m ottla.sim.costs`, 2026-11-22, Python 3.11.7, one core of two shared with other work, a
# virtual disk. Not from there: `callback_s` is what the callbacks of simulated brokers took on that
# machine beyond the rest of the table (76 us on average with it); `fsync_s` and `seek_s` are those
# of a plain SSD; `unlink_byte_s` is what deleting 20 GiB took (0.3 s per GiB); `znode_byte_s` is
# 30 us for a request or response of 150 bytes.
MEASURED = Costs(
    callback_s=40e-6,
    net_s=10e-6,
    net_byte_s=0.5e-9,
    znode_byte_s=0.2e-6,
    file_s=1.2e-6,
    read_byte_s=0.05e-9,
    write_byte_s=0.1e-9,
    folder_s=10e-6,
    unlink_byte_s=0.3e-9,
    fsync_s=2e-3,
    seek_s=1e-3,
    batch_s=0.4e-6,
    crc_byte_s=0.04e-9,
    record_s=2.5e-6,
    checked_record_s=0.2e-6,
    inflated_byte_s=3.2e-9,
)

Spend = Callable[[float], None]


@contextlib.contextmanager
def charged(costs: Costs, spend: Spend) -> Iterator[None]:
    """Charge batches, records and codecs to whoever works on them, in every module of ours."""
    if costs == FREE:
        yield
        return
    with contextlib.ExitStack() as stack:
        for original, wrapped in _wrapped(costs, spend):
            stack.enter_context(_replaced(original, wrapped))
        yield


def _wrapped(costs: Costs, spend: Spend) -> Iterator[tuple[Any, Any]]:
    parse, inflate = records.parse_batch_header, compression.decompress
    check, crc, read = record_check.check_records, batch_header.crc32c, records.iter_records
    whole, batch_s = records.crc_ok, costs.batch_s

    def parse_batch_header(buf: Any, pos: int = 0) -> Any:
        spend(batch_s)
        return parse(buf, pos)

    def decompress(*args: Any, **more: Any) -> Any:
        found = inflate(*args, **more)
        spend(costs.inflated_byte_s * len(found))
        return found

    def check_records(payload: Any, count: int, **more: Any) -> Any:
        spend(costs.checked_record_s * count)
        return check(payload, count, **more)

    def crc32c(data: Any) -> int:
        spend(costs.crc_byte_s * len(data))
        return crc(data)

    def crc_ok(buf: Any, pos: int, header: Any) -> bool:
        spend(costs.crc_byte_s * (header.size - batch_header.CRC_START))
        return whole(buf, pos, header)

    def iter_records(*args: Any, **more: Any) -> Iterator[Any]:
        for record in read(*args, **more):
            spend(costs.record_s)
            yield record

    yield parse, parse_batch_header
    yield inflate, decompress
    yield check, check_records
    yield crc, crc32c
    yield whole, crc_ok
    yield read, iter_records


@contextlib.contextmanager
def _replaced(original: Any, wrapped: Any) -> Iterator[None]:
    """Replace a function under its name in every module of ours that has it."""
    name = original.__name__
    modules = [
        module
        for path, module in list(sys.modules.items())
        if path.startswith("ottla.") and vars(module).get(name) is original
    ]
    for module in modules:
        setattr(module, name, wrapped)
    try:
        yield
    finally:
        for module in modules:
            setattr(module, name, original)


# --- measuring ------------------------------------------------------------------------------------


def measure(folder: str) -> dict[str, float]:
    """Measure what can be on this machine; seconds by the table's names."""
    return {**_measure_files(folder), **_measure_network(), **_measure_records()}


def _each(times: int, call: Callable[[], object]) -> float:
    """Return the least mean of three tries."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(times):
            call()
        found.append((time.perf_counter() - began) / times)
    return min(found)


def _measure_files(folder: str) -> dict[str, float]:
    from ottla.log.files import OsFiles  # the simulator itself never needs it

    files = OsFiles()
    file = files.open(f"{folder}/costs", create=True)
    big = bytes(1 << 20)
    small_write = _each(2000, lambda: file.pwrite([b"x" * 100], 0))
    big_write = _each(20, lambda: file.pwrite([big], 0))
    big_read = _each(20, lambda: file.pread(1 << 20, 0))

    def sync() -> None:
        file.pwrite([b"x" * 4096], 0)
        file.fsync()

    def come_and_go() -> None:
        files.open(f"{folder}/other", create=True).close()
        files.remove(f"{folder}/other")

    found = {
        "file_s": small_write,
        "write_byte_s": big_write / len(big),
        "read_byte_s": big_read / len(big),
        "fsync_s": _each(20, sync),
        "folder_s": _each(500, come_and_go) / 2,
    }
    file.close()
    files.remove(f"{folder}/costs")
    return found


def _measure_network() -> dict[str, float]:
    here, there = socket.socketpair()
    small, big = bytes(100), bytes(100_000)

    def pass_on(data: bytes) -> None:
        here.sendall(data)
        left = len(data)
        while left:
            left -= len(there.recv(left))

    once, much = _each(2000, lambda: pass_on(small)), _each(200, lambda: pass_on(big))
    here.close()
    there.close()
    return {"net_s": once / 2, "net_byte_s": (much - once) / 2 / len(big)}


def _measure_records() -> dict[str, float]:
    plain = records.build_batch(
        [records.Record(-1, 0, None, b"%090d" % i, ()) for i in range(100)], codec=0
    )
    payload = plain[batch_header.HEADER_BYTES :]
    zeros = bytes(1 << 20)
    gzip = compression.compress(compression.GZIP, zeros)
    return {
        "batch_s": _each(5000, lambda: records.parse_batch_header(plain)),
        "record_s": _each(100, lambda: list(records.iter_records(plain))) / 100,
        "checked_record_s": _each(200, lambda: record_check.check_records(payload, 100)) / 100,
        "crc_byte_s": _each(50, lambda: batch_header.crc32c(zeros)) / len(zeros),
        "inflated_byte_s": _each(10, lambda: compression.decompress(1, gzip, 2 << 20)) / len(zeros),
    }


def main() -> None:
    """Print what this machine takes beside what the simulator charges."""
    import tempfile  # for this command only

    with tempfile.TemporaryDirectory(dir=".") as folder:
        for name, seconds in measure(folder).items():
            table = getattr(MEASURED, name)
            sys.stdout.write(f"{name:18} here {seconds * 1e6:10.5f} us  table {table * 1e6:.5f}\n")


if __name__ == "__main__":
    main()
