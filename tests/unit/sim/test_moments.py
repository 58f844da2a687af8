"""What the faults at chosen moments do to a node."""

from types import SimpleNamespace

from ottla.sim.costs import MEASURED
from ottla.sim.faults import moments


def test_f19_no_segment_takes_longer_to_read_than_a_slow_recovery_promises():
    """A start after a crash reads older segments too, from the recovery point on."""
    sizes = {
        "/a/t-0/00000000000000000000.log": 16_000,
        "/a/t-0/00000000000000000751.log": 2_600,
        "/a/t-1/00000000000000000000.log": 2_400,
        "/a/t-1/00000000000000000000.index": 90_000,
    }
    inodes = {path: SimpleNamespace(data=bytes(size)) for path, size in sizes.items()}
    files, watched = SimpleNamespace(costs=MEASURED), []
    node = SimpleNamespace(
        up=False, disk=SimpleNamespace(inodes=inodes), boot=lambda: None, files=files,
        loop=SimpleNamespace(stalls=[]), stalls=[],
    )  # fmt: skip
    strike = SimpleNamespace(watch=lambda *args: watched.append(args))
    moments._boot_slowly(strike, node, 12.0)
    assert files.costs.read_byte_s * 16_000 == 0.5
    assert watched

    del inodes["/a/t-0/00000000000000000000.log"]
    moments._boot_slowly(strike, node, 0.5)
    assert round(files.costs.read_byte_s * (2_600 + 2_400), 9) == 0.5
